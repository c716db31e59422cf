"""What becomes of a message: its order, its outcome, its one effect."""
