"""Rehearsals of scaling."""
