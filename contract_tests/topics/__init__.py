"""What SNS promises of a FIFO topic and its subscriptions, a file for each area."""
