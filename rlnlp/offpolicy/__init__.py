"""Replay, value heads and exploration: what DQN and SAC use."""
