"""The commands that run until they are stopped: worker and relay.

They read settings and start what `sluice.messaging` holds; no logic of messages belongs here.
"""
