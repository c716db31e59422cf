"""`sluice drill …`: practise what has to work on a bad day, on copies."""
