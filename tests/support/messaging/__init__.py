"""Workers, relays, inboxes and databases as tests start them, honest and broken."""
