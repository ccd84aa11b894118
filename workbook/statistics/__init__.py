"""Statistics on seeds."""
