"""`sluice dlq …`: look at dead letters, mend them, bring them back.

What is done to a queue lies in `sluice.messaging.sqs`; here it is asked for, shown and confirmed.
"""
