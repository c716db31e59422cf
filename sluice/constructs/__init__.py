"""Constructs."""
