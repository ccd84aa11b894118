"""A batch cut into shards, and gradients added in one fixed tree: any number of processes gives the same bits.

The number of shards decides how sums are rounded and is a setting; how many processes share them decides nothing. Every
process holds the whole model and computes what is of the whole batch (rewards, advantages, the step) by itself; cut is
what costs: sampling, and the gradient of a minibatch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor

from rlnlp.learners.common import Metrics, TrainingError
from rlnlp.optim import flat
from rlnlp.types import Allowed, Experience, NotFinite, Prompts, Rollout, Sampling, take

WHY = {"update": "do all of them see one folder of checkpoints?"}  # asked where this is not the same for all
OF_TOKENS = ("policy/clip_fraction", "policy/approx_kl")  # metrics that are means over tokens, whatever the loss is


class Team(Protocol):
    """Processes that train one policy: this one's rank, how many they are, and one tensor of each, by rank."""

    rank: int
    size: int

    def gather(self, mine: Tensor) -> list[Tensor]: ...


class Alone:
    """The team of one process."""

    rank, size = 0, 1

    def gather(self, mine: Tensor) -> list[Tensor]:
        return [mine]


def own(shards: int, team: Team) -> range:
    """The shards of this process, neighbours in the tree. Raises ``ValueError`` where they are not whole branches."""
    if shards < 1 or shards & (shards - 1) or shards % team.size:
        raise ValueError(f"shards: expected a power of two that {team.size} processes divide, got {shards}")
    each = shards // team.size
    return range(team.rank * each, (team.rank + 1) * each)


def tree(values: list[Tensor]) -> Tensor:
    """The sum of 2^n tensors, neighbours first: branches may be added by others, and then together, to the same sum."""
    while len(values) > 1:
        values = [a + b for a, b in zip(values[::2], values[1::2], strict=True)]
    return values[0]


def of_first(team: Team, number: float) -> float:
    """The first process's number; each gives its own."""
    return team.gather(torch.tensor([number], dtype=torch.float64))[0].item()


def agree(team: Team, metrics: Metrics) -> None:
    """Raise ``TrainingError`` where the processes of a team do not have the same numbers, to the last bit."""
    mine = torch.tensor(list(metrics.values()), dtype=torch.float64)
    for other in team.gather(mine):
        if differ := [k for k, a, b in zip(metrics, mine.tolist(), other.tolist()) if a != b and (a == a or b == b)]:
            names = ", ".join(differ)
            why = WHY.get(names, "is the reward random?")
            raise TrainingError(f"the processes of this run do not agree on {names}: {why}")


def rollout(
    draw: Callable[[Prompts, torch.Generator], Rollout],
    prompts: Prompts,
    sampling: Sampling,
    generator: torch.Generator,
    shards: int,
    team: Team,
) -> Rollout:
    """The rollout of all prompts, drawn shard by shard by ``draw`` and put together; numbers as without shards.

    Raises ``NotFinite`` in every process where one of them does, ``ValueError`` for no multiple of shards.
    """
    if len(prompts) % shards:
        raise ValueError(f"shards: expected batches of a multiple of {shards} episodes, got {len(prompts)}")
    cut, T, parts, spoilt = torch.arange(len(prompts)).tensor_split(shards), sampling.max_new_tokens, [], None
    for rows in (cut[i] for i in own(shards, team)):
        numbers = torch.Generator()
        numbers.set_state(generator.get_state())
        torch.rand(int(rows[0]), T, generator=numbers, dtype=torch.float64)  # those of the rows before
        try:
            parts.append(draw(take(prompts, rows), numbers))
        except NotFinite as error:  # the others wait for this process: they have to hear of it
            spoilt = error
    if any(team.gather(torch.tensor([spoilt is not None]).byte())):
        raise spoilt or NotFinite("the policy's logits are not finite in another process of this run")
    torch.rand(len(prompts), T, generator=generator, dtype=torch.float64)

    def whole(of: Callable[[Rollout], Tensor], pad: int = 0) -> Tensor:
        """All rows of a field, as wide as T."""
        rows = [widened(of(part), T, pad) for part in parts]
        return torch.cat(team.gather(torch.cat(rows)))

    mask = whole(lambda part: part.mask.byte()).bool()
    used, allowed = int(mask.any(0).sum()), None
    if parts[0].allowed is not None:
        bits = whole(lambda part: part.allowed.bits)[:, :used]
        allowed = Allowed(bits, parts[0].allowed.vocabulary)
    ended = torch.cat(team.gather(torch.cat([part.terminated.byte() for part in parts]))).bool()
    responses = whole(lambda part: part.responses, sampling.pad_id)[:, :used]
    behavior, bare = (whole(lambda part: part.behavior_logprobs), whole(lambda part: part.logprobs))
    return Rollout(prompts, responses, mask[:, :used], ended, behavior[:, :used], bare[:, :used], sampling, allowed)


def widened(values: Tensor, width: int, pad: int) -> Tensor:
    """``values`` [b, T, ...] as [b, width, ...]."""
    full = values.new_full((len(values), width, *values.shape[2:]), pad)
    full[:, : values.shape[1]] = values
    return full


def loss(
    loss_of: Callable, state: Any, batch: Experience, config: Any, shards: int, team: Team, mean_over: str
) -> tuple[Tensor, Metrics]:
    """(loss [], metrics) of a minibatch, of which every process works on its shards; ``backward`` leaves the gradients'
    sum. mean_over: what ``loss_of`` is a mean over, tokens or episodes: the share of a shard in the whole.
    """
    weights = [weight for group in state.optimizer.param_groups for weight in group["params"]]
    cut, real = torch.arange(len(batch)).tensor_split(shards), batch.rollout.mask.sum(1).double()
    tokens = torch.stack([real[rows.to(real.device)].sum() for rows in cut]) / real.sum()
    episodes = torch.tensor([len(rows) / len(batch) for rows in cut]).to(tokens)
    share = {"tokens": tokens, "episodes": episodes}[mean_over]
    gradients, seen, names, spoilt = [], [], [], None
    for i in own(shards, team):
        rows = cut[i] if len(cut[i]) else cut[0]  # more shards than episodes: one without a share, for its shape
        try:
            value, metrics = loss_of(state, take(batch, rows), config)
        except NotFinite as error:  # the others wait for this process: they have to hear of it
            spoilt = error
            break
        one = torch.autograd.grad(value * share[i].float(), weights, allow_unused=True, materialize_grads=True)
        gradients.append(flat(one))
        names = ["loss", *metrics]
        seen.append(torch.stack([torch.as_tensor(v).to(share) for v in (value.detach(), *metrics.values())]))
    if any(team.gather(torch.tensor([spoilt is not None]).byte())):
        raise spoilt or NotFinite("the loss is not finite in another process of this run")
    whole = tree(team.gather(tree(gradients)))
    rows = torch.cat(team.gather(torch.stack(seen)))
    found = {}
    for name, column in zip(names, rows.unbind(1)):
        mean = (column * (tokens if name in OF_TOKENS else share)).sum()
        found[name] = column.max() if name == "policy/ratio_error" else mean
    sizes = [weight.numel() for weight in weights]
    split = [part.view(weight.shape) for part, weight in zip(whole.split(sizes), weights, strict=True)]
    return Added.apply(found.pop("loss").float(), split, *weights), found


class Added(torch.autograd.Function):
    """A loss [] whose gradients are known: ``backward`` leaves exactly ``gradients`` at ``weights``."""

    @staticmethod
    def forward(ctx, loss: Tensor, gradients: list[Tensor], *weights: Tensor) -> Tensor:
        ctx.gradients = gradients
        return loss.clone()

    @staticmethod
    def backward(ctx, one: Tensor) -> tuple:
        return None, None, *ctx.gradients
