"""What every command line shares: printing, values, exit codes, groups of commands. It knows nothing of messages."""
