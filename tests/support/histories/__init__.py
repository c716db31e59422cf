"""Histories and recordings of runs: written by hand, simulated, or recorded from services."""
