"""The code of project-name."""
