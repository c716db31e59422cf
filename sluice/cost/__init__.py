"""Monthly costs of a declared environment on AWS: list prices, and the bill they make for a volume of messages.

Pure arithmetic on the declaration. It reads no account and no price list, and nothing that runs or deploys needs it.
"""
