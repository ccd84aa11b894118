"""Files that are whole or absent, states, locks, and the identity of what decides a number."""
