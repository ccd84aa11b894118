"""Settings, and one condition from its draw to its measured seeds."""
