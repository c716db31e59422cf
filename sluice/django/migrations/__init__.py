"""The app's migrations, where Django looks for them."""
