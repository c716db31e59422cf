"""The model's queues: what SQS does.

No topic may be imported here: a delivery is put into a queue from outside.
"""
