"""How the suite itself is proven: tests run again under faults, results as data, the suite on several emulators."""
