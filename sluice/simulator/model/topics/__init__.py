"""The model of SNS: topics, subscriptions, and the delivery into queues."""
