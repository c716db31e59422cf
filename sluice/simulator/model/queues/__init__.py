"""The model of SQS: queues and their operations.

This package must not import topics: a topic puts its messages into a queue, and a queue knows no topic.
"""
