"""The plan of a load test: the time, group and body of each message, as a pure function of profile and seed."""
