"""The commands of `sluice load`, a module each."""
