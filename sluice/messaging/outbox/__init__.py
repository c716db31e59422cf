"""The outbox stores events in the transaction of the rows they are about. The relay publishes them."""
