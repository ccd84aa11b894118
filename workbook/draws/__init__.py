"""What a draw supplies: base models, classifiers, judges, and further variants of them."""
