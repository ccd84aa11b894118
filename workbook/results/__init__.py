"""Finished runs as tables."""
