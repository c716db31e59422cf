"""The recorded history of a run: events, and what can be told from them alone.

Pure values: nothing here reads a file or calls AWS; journals and Parquet are read elsewhere.
"""
