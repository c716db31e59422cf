"""Tests that start nothing. Their folders are those of the packages they test."""
