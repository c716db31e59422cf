"""The package in which Django looks for the commands of `manage.py`."""
