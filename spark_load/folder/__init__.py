"""The folder of a run: which file lies where, and how its JSON is read and written.

Whoever writes a run and whoever reads one share it; it knows neither Spark nor AWS.
"""
