"""Workers and inboxes as tests start them, honest and broken; outboxes and relays are in `outbox`."""
