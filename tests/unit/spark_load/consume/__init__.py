"""Consume."""
