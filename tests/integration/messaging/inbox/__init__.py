"""The inbox: each effect once, each number accounted for, and what is set aside taken up again in order."""
