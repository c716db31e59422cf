"""SNS and SQS FIFO in the process, in virtual time: a model, and a hook that lets boto3 clients talk to it.

The model is written from AWS's documentation and recordings, and knows nothing of Sluice.
"""
