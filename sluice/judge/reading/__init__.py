"""The recorded history on disk: journals are turned into Parquet, read, and checked for damage."""
