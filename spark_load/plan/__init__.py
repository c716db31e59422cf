"""Which message is sent when, to which group, with which body: a pure function of profile and seed."""
