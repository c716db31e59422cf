"""A consumer's handlers in a Lambda function: batches of its queue, worked on as a worker does.

`batch` reads the event and makes the answer; `handler` works on the messages in between, with the worker's processor.
"""
