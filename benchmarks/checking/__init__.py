"""How fast the checker judges a large history, beside DuckDB."""
