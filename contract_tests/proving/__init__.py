"""How the suite itself is proven: mutants of the model, results as data, and the same suite on several emulators."""
