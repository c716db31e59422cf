"""What `tools.generate` writes into the pages of `docs/`: a table, a page or a picture each, read from the code."""
