"""`sluice dlq …`: look at dead letters, mend them, bring them back.

These modules read options, print, and ask for `--yes`. The calls of SQS are in `sluice.messaging.sqs`.
"""
