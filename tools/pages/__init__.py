"""Tables, parts of pages and pictures of `docs/`, each read from the code; `tools.generate` and guides write them."""
