"""PPO that samples from a truncated distribution and scores as if it had sampled from all of it.

What RL4LMs does in its PPO: the sampler keeps top-k or top-p of the tokens, while old and new log-probabilities are the
bare policy's over the whole vocabulary. The ratio starts at 1, but it is not the ratio of the distribution that was
sampled from. The renormalised counterpart is PPO with the same ``top_k`` or ``top_p``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pydantic import model_validator

from rlnlp.learners import ppo
from rlnlp.learners.common import About, Metrics, Score, loop
from rlnlp.learners.ppo import State, update
from rlnlp.types import Experience, Prompts, Rollout

ABOUT = About("PPO, sampling not scored", ("sampling", "learner"), searched_as="ppo", mean_over="tokens")

init = ppo.init


class Config(ppo.Config):
    @model_validator(mode="after")
    def _on_purpose(self):
        if "scoring" not in self.breaks:
            raise ValueError(
                f"breaks {list(self.breaks)}: expected [scoring], because mismatch scores tokens by another "
                f"distribution "
                f"than it samples them from; ppo with the same top_k and top_p scores them by their own"
            )
        return self


def rollout(state: State, prompts: Prompts) -> Rollout:
    """PPO's rollout, recorded as if the bare policy had been sampled from: temperature 1, all tokens that the task
    allows."""
    drawn = ppo.rollout(state, prompts)
    bare = replace(drawn.sampling, temperature=1.0)
    return replace(drawn, behavior_logprobs=drawn.logprobs, sampling=bare, allowed=None)


def collect(state: State, prompts: Prompts, score: Score, config: Config) -> Experience:
    """PPO's experience of a rollout that is scored over the whole vocabulary."""
    return ppo.experience(state, rollout(state, prompts), score, config)


def train(state: State, prompts: Prompts, score: Score, config: Config) -> Iterator[Metrics]:
    """PPO's loop."""
    yield from loop(state, prompts, score, config, collect, update)
