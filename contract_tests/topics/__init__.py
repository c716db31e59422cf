"""What SNS promises of a FIFO topic and its subscriptions, a file for each area.

A test knows no target; what it needs comes from fixtures.
"""
