"""GRUE: seven generation tasks, their metrics and rewards, the trivial answers, and a leaderboard.

``example``: what a task makes of a row. ``tasks``: one file a task. ``world``: the generated version of each, and the
judge that knows the truth. Scores are ``workbook.scores``; learners, sampling and decoding are ``rlnlp``.
"""
