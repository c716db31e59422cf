"""`sluice replay`: hand events of the past to a consumer, from the outbox or from the topic's archive."""
