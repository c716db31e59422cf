"""`sluice env …`: the declared environments, what a change of one does, and its deployment."""
