"""The outbox: events are written in the transaction of the rows they speak of.

Publishing them is the relay's part.
"""
