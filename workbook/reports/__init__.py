"""What each ablation shows."""
