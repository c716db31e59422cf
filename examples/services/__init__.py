"""Three services that consume the orders' events: each keeps what it needs in tables of its own.

They are the example to copy: billing adds up, shipping acts once, audit keeps everything. Their tables here share one
database for the demo's sake; each would have its own.
"""
