"""Dead letters: reading, redriving, replacing, and what is done to an inbox."""
