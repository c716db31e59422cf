"""The commands of `python -m spark_load`, a module each."""
