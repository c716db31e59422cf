"""Promises of SQS about a FIFO queue, a file for each area.

Where a test of this suite does not compare the text of a refusal, or its code, AWS's was not recorded.
"""
