"""Proof of the suite itself: tests run again under faults, results as data, the suite on several emulators."""
