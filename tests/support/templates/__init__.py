"""Environments, the templates they become, and what holds for all of them; shared by tests of `sluice.constructs`."""
