"""The process that the learners solve, one token at a time: the specification that batched rollouts are tested against.

Nothing in training uses this file. It is for reading, for tests, and for agents from elsewhere.
"""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from transformers import PreTrainedTokenizerBase

from rlnlp.scoring import Reward, TokenReward, evaluate_reward, evaluate_token_reward
from rlnlp.types import Prompts, Sampling, take


class TextEnv(gymnasium.Env):
    """One episode = one response to one prompt; one step = one token (Ramamurthy et al. 2023, arXiv:2210.01241).

        s_0 = prompt;   s_{t+1} = s_t + a_t;   terminated if a_t = EOS;   truncated if t + 1 = T and a_t is not EOS
        r_t = token_reward_t + [the episode ends at t] score(prompt, response)

    prompts       B prompts [B, P]
    tokenizer     decodes a response, special tokens left out, for ``reward``
    reward        batched function of strings, called with one example at the end of an episode
    sampling      eos_id, pad_id, max_new_tokens (T) and min_new_tokens; temperature is the agent's business
    vocabulary    number of actions V; None = len(tokenizer). A model's head may be wider than its tokenizer.
    token_reward  optional; [1, t + 1] tokens so far in, of which the last column is paid

    Observation: {"ids": int64 [P + T], left-padded prompt and response so far, then padding; "mask": int8 [P + T], 1 =
    real token}. Action: a token id. ``info``: "allowed" int8 [V] (``action_space.sample(mask=...)`` takes it: EOS is
    not allowed before ``min_new_tokens`` tokens, and nothing is once the episode is over), "row" and "example_id" of
    the prompt; at the end also "response" (text), "score" and "reward_parts".
    The score is paid at EOS and at the cut at T alike: T is part of the task, so a cut does not bootstrap. No KL term:
    that is the learner's, not the world's.
    Limits: EOS as first token is an episode of one step and an empty response; T = 1 ends every episode at once.
    RL4LMs shows prompt and response in separate left-padded arrays, runs rewards inside worker processes, and pays 0
    where generation stops short of T without EOS.
    """

    metadata: ClassVar = {"render_modes": ["ansi"], "render_fps": 4}

    def __init__(
        self,
        prompts: Prompts,
        tokenizer: PreTrainedTokenizerBase,
        reward: Reward,
        sampling: Sampling,
        vocabulary: int | None = None,
        token_reward: TokenReward | None = None,
        render_mode: str | None = None,
    ):
        """Raises ValueError: no prompts, an id (prompt, EOS, padding) outside the vocabulary, unknown render mode."""
        self.prompts, self.tokenizer, self.reward, self.sampling = prompts, tokenizer, reward, sampling
        self.token_reward, self.render_mode = token_reward, render_mode
        self.vocabulary = len(tokenizer) if vocabulary is None else vocabulary
        if not len(prompts):
            raise ValueError("prompts: an environment needs one or more")
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise ValueError(f"render_mode: expected None or 'ansi', got {render_mode!r}")
        for name, low, high in (
            ("prompts.ids", int(prompts.ids.min()), int(prompts.ids.max())),
            ("sampling.eos_id", sampling.eos_id, sampling.eos_id),
            ("sampling.pad_id", sampling.pad_id, sampling.pad_id),
        ):
            if low < 0 or high >= self.vocabulary:
                raise ValueError(f"{name}: expected 0 to {self.vocabulary - 1}, got {low if low < 0 else high}")
        width = prompts.ids.shape[1] + sampling.max_new_tokens
        self.action_space = spaces.Discrete(self.vocabulary)
        self.observation_space = spaces.Dict(
            {"ids": spaces.Box(0, self.vocabulary - 1, (width,), np.int64), "mask": spaces.MultiBinary(width)}
        )
        self._row: int | None = None
        self._tokens: list[int] = []
        self._over = True

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[dict, dict]:
        """Begin an episode with prompt ``options["row"]`` (0 to B - 1), or with one drawn uniformly.

        Raises ValueError for another option or a row that does not exist.
        """
        super().reset(seed=seed)
        options = dict(options or {})
        row = options.pop("row", None)
        if options:
            raise ValueError(f"reset: unknown option {min(options)!r}; there is 'row'")
        if row is None:
            row = self.np_random.integers(len(self.prompts))
        whole = isinstance(row, (int, np.integer)) and not isinstance(row, bool)
        if not whole or not 0 <= row < len(self.prompts):
            raise ValueError(f"reset: row: expected a whole number from 0 to {len(self.prompts) - 1}, got {row!r}")
        self._row, self._tokens, self._over = int(row), [], False
        return self._observation(), self._info()

    def step(self, action: int) -> tuple[dict, float, bool, bool, dict]:
        """Append a token: (observation, reward, terminated, truncated, info).

        Raises gymnasium.error.ResetNeeded outside an episode, InvalidAction for a token that is not in the vocabulary
        or not allowed, RewardError as ``scoring.evaluate_reward``.
        """
        if self._over:
            raise gymnasium.error.ResetNeeded("TextEnv.step: no episode is running; call reset()")
        if not self.action_space.contains(action):
            raise gymnasium.error.InvalidAction(f"token: expected 0 to {self.vocabulary - 1}, got {action!r}")
        token, eos = int(action), self.sampling.eos_id
        if token == eos and self._blocked():
            raise gymnasium.error.InvalidAction(
                f"token {token} (EOS) is not allowed before {self.sampling.min_new_tokens} tokens; "
                f"this would be token {len(self._tokens) + 1}"
            )
        self._tokens.append(token)
        terminated = token == eos
        truncated = not terminated and len(self._tokens) == self.sampling.max_new_tokens
        self._over = terminated or truncated
        payment, info = 0.0, self._info()
        prompt = take(self.prompts, torch.tensor([self._row]))
        if self.token_reward is not None:
            so_far = torch.tensor([self._tokens])
            payment += float(evaluate_token_reward(self.token_reward, prompt, so_far, so_far >= 0)[0, -1])
        if self._over:
            response = self.response()
            scores, parts = evaluate_reward(self.reward, prompt, [response])
            payment += float(scores[0])
            info["response"], info["score"] = response, float(scores[0])
            info["reward_parts"] = {name: float(value[0]) for name, value in parts.items()}
        return self._observation(), payment, terminated, truncated, info

    def response(self) -> str:
        """The response so far as text, special tokens left out."""
        return self.tokenizer.decode(self._tokens, skip_special_tokens=True)

    def render(self) -> str | None:
        """In mode "ansi": prompt and response so far, a bar between them."""
        if self.render_mode is None:
            return None
        return "" if self._row is None else f"{self.prompts.texts[self._row]} | {self.response()}"

    def _blocked(self) -> bool:
        return len(self._tokens) < self.sampling.min_new_tokens

    def _observation(self) -> dict[str, np.ndarray]:
        P = self.prompts.ids.shape[1]
        ids = np.full(self.observation_space["ids"].shape, self.sampling.pad_id, dtype=np.int64)
        mask = np.zeros(self.observation_space["mask"].shape, dtype=np.int8)
        real = self.prompts.mask[self._row].cpu().numpy()
        ids[:P][real] = self.prompts.ids[self._row].cpu().numpy()[real]
        mask[:P] = real
        ids[P : P + len(self._tokens)] = self._tokens
        mask[P : P + len(self._tokens)] = 1
        return {"ids": ids, "mask": mask}

    def _info(self) -> dict[str, Any]:
        allowed = np.full(self.vocabulary, 0 if self._over else 1, dtype=np.int8)
        if self._blocked():
            allowed[self.sampling.eos_id] = 0
        return {"allowed": allowed, "row": self._row, "example_id": self.prompts.example_ids[self._row]}
