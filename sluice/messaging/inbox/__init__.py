"""The inbox gives each event its effect once, accounts for each number of a group, and sets messages aside.

It works in the caller's transaction. It calls neither AWS nor a handler.
"""
