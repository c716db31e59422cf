"""What the stacks synthesize to: every template of every declared environment, and of a few that use every option."""
