"""What project-name does."""
