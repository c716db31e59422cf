"""The app's commands, where Django looks for them."""
