"""The history of a run: its events, and functions of events alone.

Pure values: nothing here reads a file or calls AWS; journals and Parquet are read elsewhere.
"""
