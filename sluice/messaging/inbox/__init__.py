"""The inbox: each effect once, each number of a group accounted for, and messages that are set aside.

It works in a transaction it is given. It calls neither AWS nor a handler.
"""
