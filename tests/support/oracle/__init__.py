"""Decides tiny histories by brute force, knowing nothing of the checker's rules: what the checker is held against."""
