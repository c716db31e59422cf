"""The folder of a run: which file lies where, and how its JSON is read and written. It knows neither Spark nor AWS."""
