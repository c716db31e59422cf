"""The command `sluice`: options, help, and what each command does.

It is the top of the library: it may import every other part, and nothing imports it.
"""
