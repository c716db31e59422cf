"""The worker: lanes take messages from a queue to a handler, and every effect is committed once.

`processing` works on one message. The modules here keep the worker going: its threads, settings, hooks and signs of
life. `build` is the one place that assembles it. It calls hooks and knows no metric, span or recorder.
"""
