"""Outboxes and relays as tests start them, honest and broken, and the databases below them."""
