"""`sluice subject …`: the content of one subject's messages, such as a person's: found, and erased."""
