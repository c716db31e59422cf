"""Benchmarks of the checker: its speed on a large history, beside DuckDB."""
