"""botocore hooks: one side records what a client does, the other breaks what the service promised."""
