"""`sluice schema …`: the tables of outbox and inbox are created, upgraded and compared."""
