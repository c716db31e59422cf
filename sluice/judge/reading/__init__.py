"""The recorded history on disk: journals made Parquet, read back, and what damage looks like."""
