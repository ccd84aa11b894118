"""A DQN's settings, a score and models that several tests of it begin with."""

import torch

from rlnlp.learners import dqn
from tests.tiny import MAKE

TARGET = 7
NUCLEUS = {"explore_rule": "top_p", "explore_value": 0.9, "max_rule": "top_p", "max_value": 0.9}
VARIANTS = {
    "report": {},
    "best": {"head": "logits", "n_step": 24, "explore": "softmax", "epsilon_start": 0.0, "epsilon_end": 0.0, **NUCLEUS},
    "linear frozen": {"head": "linear", "trunk": "frozen"},
    "logits frozen": {"head": "logits", "trunk": "frozen", "double": True},
    "mlp frozen": {"trunk": "frozen", "double": True, **NUCLEUS},
    "polyak double": {"target": "polyak", "tau": 0.1, "double": True, "kl_coef": 0.1},
}


def settings(**changes):
    base = {
        "updates": 6,
        "episodes_per_update": 8,
        "gradient_steps": 3,
        "batch_size": 16,
        "max_new_tokens": 6,
        "buffer": 400,
        "learning_rate": 3e-3,
        "target_every": 4,
        "epsilon_updates": 4,
    }
    return dqn.Config(**{**base, **changes})


def toy(rollout):
    hits = ((rollout.responses == TARGET) & rollout.mask).sum(1) / rollout.mask.sum(1)
    return hits.float(), {"hits": hits.float()}


def weights(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def shallow(kind):
    return MAKE[kind](layers=1)
