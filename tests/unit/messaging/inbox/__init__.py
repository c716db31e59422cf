"""Inbox."""
