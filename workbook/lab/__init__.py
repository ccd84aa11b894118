"""Widgets and helpers of the lessons."""
