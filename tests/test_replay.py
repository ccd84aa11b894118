"""The replay against a plain deque of episodes; uniform draws, memory, and work that does not grow with what is
held."""

import sys
from collections import Counter, deque

import pytest
import torch
from scipy.stats import chisquare
from torch.utils._python_dispatch import TorchDispatchMode

from rlnlp.offpolicy.replay import Replay
from rlnlp.types import Prompts, Rollout, Sampling
from tests.tiny import EOS, PAD

HORIZON = 7
SAMPLING = Sampling(EOS, PAD, HORIZON)


def random_rollout(rows, seed, horizon=HORIZON, prompts=None, width=5):
    """Episodes of every length with random tokens; about half of them end in EOS."""
    numbers = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, horizon + 1, (rows,), generator=numbers)
    used = int(lengths.max())
    mask = torch.arange(used) < lengths[:, None]
    responses = torch.randint(2, 50, (rows, used), generator=numbers)
    ended = torch.rand(rows, generator=numbers) < 0.5
    responses[torch.arange(rows), lengths - 1] = torch.where(ended, EOS, responses[torch.arange(rows), lengths - 1])
    ids = torch.randint(2, 50, (rows, width), generator=numbers)
    real = torch.randint(1, width + 1, (rows,), generator=numbers)
    keep = torch.arange(width) >= width - real[:, None]
    names = [str(i) for i in range(rows)]
    prompts = prompts or Prompts(ids * keep, keep, names, [[] for _ in names], names)
    zeros = torch.zeros(mask.shape)
    rollout = Rollout(prompts, responses * mask, mask, ended, zeros, zeros, SAMPLING)
    return rollout, torch.randn(mask.shape, generator=numbers) * mask


def as_episodes(rollout, rewards):
    """(prompt, tokens, rewards) as plain lists, one per row."""
    rows = zip(rollout.prompts.ids, rollout.prompts.mask, rollout.responses, rollout.mask, rewards)
    return [(p[m].tolist(), r[k].tolist(), w[k].tolist()) for p, m, r, k, w in rows]


class Deque:
    """The same replay with a deque of lists: whole episodes leave from the left until the new ones fit."""

    def __init__(self, capacity):
        self.capacity, self.episodes = capacity, deque()

    def add(self, episodes):
        new = sum(len(tokens) for _, tokens, _ in episodes)
        while self.episodes and new + sum(len(tokens) for _, tokens, _ in self.episodes) > self.capacity:
            self.episodes.popleft()
        self.episodes.extend(episodes)

    def transitions(self, n, gamma):
        """(prompt, tokens before, token, n-step return, discount, tokens before the state to bootstrap from or
        None)."""
        out = []
        for prompt, tokens, rewards in self.episodes:
            for t in range(len(tokens)):
                total = sum(gamma**k * rewards[t + k] for k in range(n) if t + k < len(rewards))
                follows = t + n < len(tokens) and gamma > 0
                out.append(
                    (
                        prompt,
                        tokens[:t],
                        tokens[t],
                        total,
                        gamma**n if follows else 0.0,
                        tokens[: t + n] if follows else None,
                    )
                )
        return out


def as_lists(batch):
    """A batch of the replay in the form of ``Deque.transitions``."""
    episodes, out = batch.episodes, []
    for i in range(len(batch)):
        row, t, discount = int(batch.rows[i]), int(batch.steps[i]), float(batch.discounts[i])
        prompt = episodes.prompts.ids[row][episodes.prompts.mask[row]].tolist()
        before = episodes.responses[row, :t].tolist()
        assert episodes.mask[row, : t + 1].all() and episodes.responses[row, t] == batch.tokens[i]
        following = episodes.responses[row, : int(batch.next_steps[i])].tolist() if discount else None
        assert following is None or episodes.mask[row, int(batch.next_steps[i])]
        out.append((prompt, before, int(batch.tokens[i]), float(batch.returns[i]), discount, following))
    return out


@pytest.mark.parametrize("n_step, gamma", [(1, 1.0), (1, 0.9), (3, 0.9), (HORIZON, 1.0), (50, 0.7), (2, 0.0)])
def test_it_holds_and_returns_what_a_deque_of_episodes_does(n_step, gamma):
    replay, plain = Replay(60, SAMPLING), Deque(60)
    for seed in range(12):  # round the ring several times
        rollout, rewards = random_rollout(1 + seed % 8, seed)
        replay.add(rollout, rewards)
        plain.add(as_episodes(rollout, rewards))
        expected = plain.transitions(n_step, gamma)
        assert len(replay) == len(expected) <= 60
        found = as_lists(replay.transitions(torch.arange(len(replay)), n_step, gamma))
        for mine, theirs in zip(found, expected, strict=True):
            assert mine[:3] == theirs[:3] and mine[5] == theirs[5]
            assert mine[3:5] == pytest.approx(theirs[3:5], abs=1e-5)
    assert replay.first > replay.capacity  # it did go round


def test_an_episode_that_loses_its_beginning_goes_whole():
    replay = Replay(10, SAMPLING)
    for lengths in ([4, 4], [3]):  # 8 held, 3 more: one token too many, so the first four go
        mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
        zeros, rows = torch.zeros(mask.shape), len(lengths)
        names = ["x"] * rows
        prompts = Prompts(
            torch.full((rows, 1), 2), torch.ones(rows, 1, dtype=torch.bool), names, [[] for _ in names], names
        )
        replay.add(
            Rollout(prompts, 5 * mask.long(), mask, torch.zeros(rows, dtype=torch.bool), zeros, zeros, SAMPLING), zeros
        )
    assert len(replay) == 7 and replay.transitions(torch.arange(7), 1, 1.0).steps.tolist() == [0, 1, 2, 3, 0, 1, 2]


def test_a_rollout_as_large_as_the_replay_replaces_everything():
    whole = random_rollout(8, 1)
    replay = Replay(int(whole[0].mask.sum()), SAMPLING)
    for seed in range(7):  # what is left in the cells is in the middle of some response
        replay.add(*random_rollout(3, seed))
    assert replay.cells["step"][replay.last % replay.capacity] > 0
    replay.add(*whole)
    assert len(replay) == replay.capacity == int(whole[0].mask.sum())
    assert (
        replay.transitions(torch.arange(len(replay)), 1, 1.0).tokens.tolist()
        == whole[0].responses[whole[0].mask].tolist()
    )


def test_draws_are_uniform_over_tokens_not_over_episodes():
    replay = Replay(60, SAMPLING)
    for seed in range(9):
        replay.add(*random_rollout(8, seed))
    drawn = Counter()
    numbers = torch.Generator().manual_seed(0)
    everything = replay.transitions(torch.arange(len(replay)), 1, 1.0)
    names = {(r, s): i for i, (r, s) in enumerate(zip(everything.returns.tolist(), everything.steps.tolist()))}
    assert len(names) == len(replay)  # rewards are random numbers: they name the token
    for _ in range(200):
        batch = replay.sample(64, 1, 1.0, numbers)
        drawn.update(names[key] for key in zip(batch.returns.tolist(), batch.steps.tolist()))
    assert chisquare([drawn[i] for i in range(len(replay))]).pvalue > 1e-3
    again = replay.sample(64, 1, 1.0, torch.Generator().manual_seed(3))
    same = replay.sample(64, 1, 1.0, torch.Generator().manual_seed(3))
    assert torch.equal(again.returns, same.returns)


def test_one_and_a_half_million_tokens_take_less_than_a_gigabyte():
    replay, horizon = Replay(1_500_000, Sampling(EOS, PAD, 40)), 40
    mask = torch.ones(7500, horizon, dtype=torch.bool)
    zeros, names = torch.zeros(mask.shape), ["x"] * len(mask)
    for part in range(5):
        responses = torch.randint(2, 50257, mask.shape, generator=torch.Generator().manual_seed(part))
        ids = torch.arange(part * len(mask), (part + 1) * len(mask)).unsqueeze(1).expand(-1, 5)  # no prompt twice
        prompts = Prompts(ids, torch.ones_like(ids, dtype=torch.bool), names, [[] for _ in names], names)
        replay.add(
            Rollout(prompts, responses, mask, torch.zeros(len(mask), dtype=torch.bool), zeros, zeros, replay.sampling),
            zeros,
        )
    assert len(replay) == 1_500_000

    def size(thing):
        if isinstance(thing, torch.Tensor):
            return thing.untyped_storage().nbytes()
        if isinstance(thing, dict):
            return sys.getsizeof(thing) + sum(size(k) + size(v) for k, v in thing.items())
        return sys.getsizeof(thing) + (sum(map(size, thing)) if isinstance(thing, tuple) else 0)

    total = sum(size(thing) for thing in vars(replay).values())
    assert 0.99 * total < replay.bytes <= total < 50e6  # bytes
    assert (
        sum(cell.element_size() for cell in replay.cells.values()) == 16
    )  # ids, a reward, positions; no states, no logits
    assert all(cell.shape == (1_500_000,) for cell in replay.cells.values())


class Work(TorchDispatchMode):
    """Counts the elements that operations write."""

    def __init__(self):
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, (tuple, list)) else (out,):
            if isinstance(tensor, torch.Tensor):
                self.elements += tensor.numel()
        return out


def test_a_draws_work_does_not_grow_with_what_is_held():
    work = {}
    for held in (10_000, 100_000, 1_000_000):
        replay = Replay(1_000_000, Sampling(EOS, PAD, 40))
        n = held // 40
        cells = {
            "token": torch.full((held,), 5),
            "reward": torch.zeros(held),
            "step": torch.arange(40).repeat(n),
            "left": 39 - torch.arange(40).repeat(n),
            "prompt": torch.zeros(held),
            "prompts": torch.full((1, 3), 7),
            "lengths": torch.tensor([3]),
        }
        replay.load_tensors(cells)
        with Work() as counted:
            replay.sample(64, 5, 1.0, torch.Generator().manual_seed(0))
        work[held] = counted.elements
    assert work[1_000_000] < 64 * 1000  # of 64 draws with 40 tokens each
    assert work[1_000_000] == pytest.approx(work[100_000], rel=0.1) == pytest.approx(work[10_000], rel=0.2)


def test_a_prompt_is_stored_once_however_it_is_padded():
    replay = Replay(200, SAMPLING)
    names = ["x"] * 2
    for width in (3, 6, 4):
        ids = torch.zeros(2, width, dtype=torch.long)
        ids[0, -2:], ids[1, -3:] = torch.tensor([7, 8]), torch.tensor([9, 7, 8])
        mask = torch.arange(width) >= width - torch.tensor([[2], [3]])
        rollout, rewards = random_rollout(2, width, prompts=Prompts(ids, mask, names, [[], []], names))
        replay.add(rollout, rewards)
    assert len(replay.prompts) == 2 and replay.lengths.tolist() == [2, 3]
    seen = {tuple(p) for p, *_ in as_lists(replay.transitions(torch.arange(len(replay)), 1, 1.0))}
    assert seen == {(7, 8), (9, 7, 8)}


def test_padding_tokens_that_are_real_stay_real():
    """The generated tasks' prompts are padding tokens with a True mask."""
    replay, names = Replay(200, SAMPLING), ["x"] * 2
    prompts = Prompts(torch.full((2, 5), PAD), torch.ones(2, 5, dtype=torch.bool), names, [[], []], names)
    replay.add(*random_rollout(2, 0, prompts=prompts))
    batch = replay.transitions(torch.arange(len(replay)), 1, 1.0)
    assert batch.episodes.prompts.ids.tolist() == [[PAD] * 5] * 2 and batch.episodes.prompts.mask.all()


def test_saved_and_loaded_it_goes_on_as_if_nothing_had_happened():
    replay = Replay(60, SAMPLING)
    for seed in range(9):
        replay.add(*random_rollout(5, seed))
    saved = {name: tensor.clone() for name, tensor in replay.tensors().items()}
    assert len(saved["token"]) == len(replay) < replay.capacity
    other = Replay(60, SAMPLING)
    other.load_tensors(saved)
    everything = [as_lists(one.transitions(torch.arange(len(replay)), 2, 0.9)) for one in (replay, other)]
    assert len(other) == len(replay) and everything[0] == everything[1]
    for seed in range(9, 15):
        for one in (replay, other):
            one.add(*random_rollout(5, seed))
        mine, theirs = (one.sample(32, 2, 0.9, torch.Generator().manual_seed(seed)) for one in (replay, other))
        assert as_lists(mine) == as_lists(theirs) and torch.equal(mine.rows, theirs.rows)
    assert len(other.prompts) == len(replay.prompts)


def test_what_cannot_be_held_is_refused():
    replay = Replay(5, SAMPLING)
    with pytest.raises(ValueError, match="nothing to draw from"):
        replay.sample(1, 1, 1.0, torch.Generator())
    with pytest.raises(ValueError, match="tokens at once do not fit into 5"):
        replay.add(*random_rollout(8, 0))
    with pytest.raises(ValueError, match="rewards: expected shape"):
        rollout, rewards = random_rollout(1, 3)
        replay.add(rollout, rewards[:, :0])
    with pytest.raises(ValueError, match="at least 1 token, got 0"):
        Replay(0, SAMPLING)
    with pytest.raises(ValueError, match="less than 32768 tokens, got 32768"):
        Replay(5, Sampling(EOS, PAD, 2**15))
    large = Replay(60, SAMPLING)
    large.add(*random_rollout(6, 0))
    with pytest.raises(ValueError, match="saved tokens do not fit into 5"):
        replay.load_tensors(large.tensors())
