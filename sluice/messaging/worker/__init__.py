"""The worker: lanes receive messages from a queue and call the handler, and every effect is committed once.

`processing` works on one message. The modules here run the worker: its threads, settings, hooks and signs of life.
`build` is the only module that assembles a worker. The worker calls hooks, and imports no metrics, tracing or recorder.
"""
