"""What SQS promises of a FIFO queue, a file for each area.

A test knows no target; what it needs comes from fixtures.
"""
