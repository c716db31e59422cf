"""Which fault begins when, and how it is done."""
