"""What a chaos run does and finds, without one."""
