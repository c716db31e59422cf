"""The command line: a module for each part of the runtime."""
