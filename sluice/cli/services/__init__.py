"""The commands that run until they are stopped: worker and relay.

They read settings and start the worker or relay of `sluice.messaging`, which has all the logic of messages.
"""
