"""rlnlp: is reinforcement learning for language generation what its papers say it is?

Nothing heavy is imported here; import the module you need, e.g. ``from rlnlp import rollout``.
"""

__version__ = "0.1.0"
