"""The driver of a load test, from start to verdict; it also resumes a run that broke off."""
