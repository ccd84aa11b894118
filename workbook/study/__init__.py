"""The preference study."""
