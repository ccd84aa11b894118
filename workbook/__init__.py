"""The experiment: everything that makes, runs, judges and shows. The algorithms are in `rlnlp`, which imports nothing
of it."""
