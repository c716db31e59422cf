"""Publishing, against the parts it hands messages to."""
