"""Shared parts of all command lines: printing, values, exit codes, groups of commands. None knows of messages."""
