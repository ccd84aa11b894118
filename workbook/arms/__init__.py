"""Conditions that are no algorithms of their own: one file an arm, with the protocol of `rlnlp.learners`."""
