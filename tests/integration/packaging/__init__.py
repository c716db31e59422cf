"""Tests of what is installed: the wheel in clean environments."""
