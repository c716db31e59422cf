"""One load test from start to verdict, and how a broken one goes on: the driver's side."""
