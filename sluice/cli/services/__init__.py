"""The commands that run: worker, relay, their health check, the recorder.

They read settings and start what `sluice.messaging` and `sluice.recorder` hold; no logic of messages belongs here.
"""
