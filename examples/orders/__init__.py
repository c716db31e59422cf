"""A shop's orders: business rows, and events about them that are committed with them or not at all.

`models` are the rows, `service` is what a shop does with them, `trade` does a lot of it and `checking` looks whether
rows and events tell the same; `python -m examples.orders` runs both.
"""
