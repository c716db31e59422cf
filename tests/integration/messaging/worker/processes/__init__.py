"""Workers as processes of their own, on a LocalStack: killed, frozen, cut off, told to stop."""
