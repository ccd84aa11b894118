"""Claims and the one rule that judges them."""
