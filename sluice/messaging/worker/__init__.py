"""The worker: lanes take messages from a queue to a handler, and every effect is committed once.

`build` is the one place that assembles it. It calls hooks and knows no metric, span or recorder.
"""
