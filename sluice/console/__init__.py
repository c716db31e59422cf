"""The console, `sluice ui`: pages for an operator, on 127.0.0.1 and with his own credentials.

It shows what `sluice status`, `find`, `dlq`, `inbox` and `outbox` show, and acts by the functions they act by.
"""
