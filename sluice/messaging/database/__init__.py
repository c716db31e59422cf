"""Databases: engines, the transaction guard, schema, credentials, audit.

It knows SQLAlchemy and no tables: outbox and inbox hand theirs in.
"""
