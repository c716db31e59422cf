"""The folder of a run: the places of its files, and how its JSON is read and written.

It knows neither Spark nor AWS.
"""
