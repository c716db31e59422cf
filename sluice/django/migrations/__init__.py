"""The app's migrations; Django looks for them here."""
