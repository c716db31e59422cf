"""`sluice init`: a new project, and the wheel of Sluice that it brings along."""
