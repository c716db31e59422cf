"""Relay."""
