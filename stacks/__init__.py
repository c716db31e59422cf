"""The stacks of this project: which construct stands in which stack, and nothing else.

What can be used elsewhere is in `sluice.constructs`.
"""
