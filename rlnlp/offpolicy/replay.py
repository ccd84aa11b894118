"""Replay for off-policy learners: whole responses in a ring of single tokens, stored as ids, drawn uniformly over
tokens.

In: rollouts with token rewards. Out: ``Transitions`` with n-step returns. A state is a prompt and the tokens before it,
so 16 bytes a token are all there is to keep: hidden states and logits are recomputed for the states that are drawn.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import torch
from torch import Tensor

from rlnlp.offpolicy.td import n_step_returns
from rlnlp.types import Prompts, Rollout, Sampling, expect


@dataclass(frozen=True)
class Transitions:
    """N tokens drawn from a replay, and the distinct episodes they stand in.

    episodes    Rollout [E, T'], cut after the last state that is read; its log-probabilities are zero
    rows, steps [N] int64: token i is ``episodes.responses[rows[i], steps[i]]``, chosen in the state before it
    tokens      [N] int64, those tokens
    returns     [N] reward units: the next n rewards, discounted; fewer where the episode ends before
    next_steps  [N] int64: steps + n, the state to bootstrap from; ``steps`` where there is none
    discounts   [N] gamma^n; 0 where the episode ended within n tokens, at EOS or at the horizon: nothing follows
    """

    episodes: Rollout
    rows: Tensor
    steps: Tensor
    tokens: Tensor
    returns: Tensor
    next_steps: Tensor
    discounts: Tensor

    def __post_init__(self) -> None:
        N = len(self.rows)
        for name in ("steps", "tokens", "returns", "next_steps", "discounts"):
            expect(**{name: (getattr(self, name), (N,))})

    def __len__(self) -> int:
        return len(self.rows)


def _key(ids: Tensor) -> bytes:
    return ids.numpy().tobytes()  # a fifth of the memory of a tuple


class Replay:
    """The last ``capacity`` tokens of whole responses; the oldest responses make room for new ones.

    A token's cell: its id, reward, position in the response, tokens that follow it, and its prompt's row in a table of
    the different prompts seen. The valid cells are one run of the ring, so a uniform draw is one random number.
    sampling: settings of the rollouts it will hold. Raises ``ValueError`` where a capacity or a horizon cannot be held.
    """

    CELLS = {
        "token": torch.int32,
        "reward": torch.float32,
        "step": torch.int16,
        "left": torch.int16,
        "prompt": torch.int32,
    }

    def __init__(self, capacity: int, sampling: Sampling, device: str | torch.device = "cpu"):
        if capacity < 1:
            raise ValueError(f"replay: expected a capacity of at least 1 token, got {capacity}")
        if sampling.max_new_tokens >= 2**15:
            raise ValueError(f"replay: expected responses of less than {2**15} tokens, got {sampling.max_new_tokens}")
        self.capacity, self.sampling = capacity, sampling
        self.cells = {name: torch.zeros(capacity, dtype=dtype, device=device) for name, dtype in self.CELLS.items()}
        self.prompts = torch.zeros(0, 0, dtype=torch.int32, device=device)  # [R, P], left padded
        self.lengths = torch.zeros(0, dtype=torch.int32, device=device)  # [R] real tokens of each
        self.known: dict[bytes, int] = {}  # a prompt's ids: its row in the table
        self.first, self.last = 0, 0  # the tokens held are first .. last - 1, counted from the first one ever added

    def __len__(self) -> int:
        return self.last - self.first

    @property
    def bytes(self) -> int:
        """Memory of all its tensors and of its index of prompts."""
        index = sys.getsizeof(self.known) + sum(
            sys.getsizeof(key) + sys.getsizeof(row) for key, row in self.known.items()
        )
        return index + sum(t.numel() * t.element_size() for t in (*self.cells.values(), self.prompts, self.lengths))

    def add(self, rollout: Rollout, rewards: Tensor) -> None:
        """Keep every token of a rollout with its reward [B, T]. Raises ``ValueError`` if the rollout alone does not
        fit."""
        mask = rollout.mask
        expect(rewards=(rewards, tuple(mask.shape)))
        new, lengths = int(mask.sum()), mask.sum(1, keepdim=True)
        if new > self.capacity:
            raise ValueError(f"replay: {new} tokens at once do not fit into {self.capacity}")
        self._make_room(new)
        steps = torch.arange(mask.shape[1], device=mask.device).expand_as(mask)
        values = {
            "token": rollout.responses,
            "reward": rewards,
            "step": steps,
            "left": lengths - 1 - steps,
            "prompt": self._prompt_rows(rollout.prompts).unsqueeze(1).expand_as(mask),
        }
        at = torch.arange(self.last, self.last + new, device=mask.device) % self.capacity
        for name, value in values.items():
            self.cells[name][at] = value[mask].to(self.CELLS[name])
        self.last += new

    def _make_room(self, new: int) -> None:
        oldest = self.last + new - self.capacity  # the first token that can stay
        if oldest >= self.last:
            self.first = self.last
        elif oldest > self.first:  # a response that loses its beginning goes whole
            at = oldest % self.capacity
            self.first = oldest if self.cells["step"][at] == 0 else oldest + int(self.cells["left"][at]) + 1

    def _prompt_rows(self, prompts: Prompts) -> Tensor:
        """Each prompt's row [B] in the table; prompts not seen before are added to it."""
        rows, fresh = [], []
        for ids, mask in zip(prompts.ids.cpu().int(), prompts.mask.cpu()):
            key = _key(ids[mask])
            if key not in self.known:
                self.known[key] = len(self.known)
                fresh.append(ids[mask].tolist())
            rows.append(self.known[key])
        if fresh:
            width = max(self.prompts.shape[1], *map(len, fresh))
            pad, device = self.sampling.pad_id, self.prompts.device
            old = torch.nn.functional.pad(self.prompts, (width - self.prompts.shape[1], 0), value=pad)
            table = torch.tensor([[pad] * (width - len(ids)) + ids for ids in fresh], dtype=torch.int32, device=device)
            self.prompts = torch.cat([old, table])
            self.lengths = torch.cat([self.lengths, torch.tensor([*map(len, fresh)], dtype=torch.int32, device=device)])
        return torch.tensor(rows, device=prompts.ids.device)

    def sample(self, size: int, n_step: int, gamma: float, generator: torch.Generator) -> Transitions:
        """``size`` tokens, uniformly over those held, with replacement. ``generator`` is a CPU generator."""
        if not len(self):
            raise ValueError("replay: nothing to draw from")
        return self.transitions(torch.randint(len(self), (size,), generator=generator), n_step, gamma)

    def transitions(self, which: Tensor, n_step: int, gamma: float) -> Transitions:
        """The transitions of the tokens ``which`` [N] int64, counted from the oldest held. Work and memory O(N (n +
        T))."""
        picks = self.first + which.to(self.prompts.device)

        def cell(name: str, at: Tensor) -> Tensor:
            return self.cells[name][at % self.capacity]

        steps, left = cell("step", picks).long(), cell("left", picks).long()
        ahead = torch.arange(min(n_step, int(left.max()) + 1), device=picks.device)
        rewards = cell("reward", picks.unsqueeze(1) + ahead) * (ahead <= left.unsqueeze(1))
        goes_on = left >= n_step
        next_steps = torch.where(goes_on, steps + n_step, steps)

        begins, rows = torch.unique(picks - steps, return_inverse=True)
        lengths = cell("left", begins).long() + 1
        columns = torch.arange(int(next_steps.max()) + 1, device=picks.device)
        mask = columns < lengths.unsqueeze(1)
        responses = cell("token", begins.unsqueeze(1) + columns).long().masked_fill(~mask, self.sampling.pad_id)
        ended = cell("token", begins + lengths - 1) == self.sampling.eos_id
        zeros = torch.zeros(mask.shape, device=picks.device)
        episodes = Rollout(
            self._prompts_at(cell("prompt", begins).long()), responses, mask, ended, zeros, zeros, self.sampling
        )
        return Transitions(
            episodes,
            rows,
            steps,
            cell("token", picks).long(),
            n_step_returns(rewards, gamma),
            next_steps,
            goes_on * float(gamma) ** n_step,
        )

    def _prompts_at(self, rows: Tensor) -> Prompts:
        width = int(self.lengths[rows].max())
        ids = self.prompts[rows, self.prompts.shape[1] - width :].long()
        mask = torch.arange(width, device=rows.device) >= width - self.lengths[rows].unsqueeze(1)
        names = [""] * len(rows)
        return Prompts(ids, mask, names, [[] for _ in names], names)

    def tensors(self) -> dict[str, Tensor]:
        """All it holds, oldest first, for a checkpoint: it is as large as what is held, not as the capacity."""
        at = torch.arange(self.first, self.last, device=self.prompts.device) % self.capacity
        return {
            **{name: cell[at] for name, cell in self.cells.items()},
            "prompts": self.prompts,
            "lengths": self.lengths,
        }

    def load_tensors(self, tensors: dict[str, Tensor]) -> None:
        """Hold what ``tensors`` returned. Raises ``ValueError`` where it does not fit."""
        held = len(tensors["token"])
        if held > self.capacity:
            raise ValueError(f"replay: {held} saved tokens do not fit into {self.capacity}")
        for name, cell in self.cells.items():
            cell[:held] = tensors[name]
        device = self.prompts.device
        self.first, self.last = 0, held
        self.prompts, self.lengths = tensors["prompts"].to(device, copy=True), tensors["lengths"].to(device, copy=True)
        rows = zip(self.prompts.cpu(), self.lengths.tolist())
        self.known = {_key(ids[len(ids) - length :]): row for row, (ids, length) in enumerate(rows)}
