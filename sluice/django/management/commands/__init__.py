"""The commands of `manage.py`; Django looks for them here."""
