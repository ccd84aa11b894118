"""Hand-worked numbers, the original library's golden values, and identities."""

import pytest
import torch

from rlnlp.losses import (
    entropy,
    explained_variance,
    gae,
    group_relative,
    leave_one_out,
    masked_mean,
    per_response,
    policy_gradient,
    ppo_clip,
    rewards_to_go,
    token_rewards,
    value_loss,
    whiten,
)
from rlnlp.models import chosen_logprobs, restrict
from rlnlp.types import NotFinite, Sampling


def close(actual, expected, tolerance=1e-6):
    torch.testing.assert_close(torch.as_tensor(actual), torch.as_tensor(expected), atol=tolerance, rtol=0)


def test_returns_read_as_digits():
    """gamma = 0.1, lam = 1, values 0: the return of rewards 1 2 3 is 1.23, then 2.3, then 3."""
    rewards, mask = torch.tensor([[1.0, 2.0, 3.0]]), torch.ones(1, 3, dtype=torch.bool)
    close(gae(rewards, torch.zeros(1, 3), mask, 0.1, 1.0), [[1.23, 2.3, 3.0]])


def test_gae_golden_values_of_the_original_library():
    rewards = torch.tensor([[0.0, 0.0, 1.0], [0.0, 0.5, 0.0]])
    values = torch.tensor([[0.1, 0.2, 0.3], [0.4, 0.5, 9.0]])
    mask = torch.tensor([[True, True, True], [True, True, False]])
    close(gae(rewards, values, mask, 0.99, 0.95), [[0.808407, 0.755350, 0.7], [0.095, 0.0, 0.0]])


def test_gae_reads_nothing_outside_the_mask_and_is_delta_at_lam_zero():
    torch.manual_seed(0)
    rewards, values = torch.randn(4, 6), torch.randn(4, 6)
    mask = torch.arange(6) < torch.tensor([[6], [3], [1], [4]])
    inside = gae(rewards * mask, values * mask, mask, 0.9, 0.8)
    close(gae(rewards, values, mask, 0.9, 0.8), inside)
    assert (inside[~mask] == 0).all()
    following = torch.cat([(values * mask)[:, 1:], torch.zeros(4, 1)], 1)
    close(gae(rewards, values, mask, 0.9, 0.0), (rewards + 0.9 * following - values) * mask)


def test_whitening_ignores_padding():
    values, mask = torch.tensor([[1.0, 2.0, 4.0]]), torch.ones(1, 3, dtype=torch.bool)
    wide = torch.nn.functional.pad(values, (0, 40), value=7.0), torch.nn.functional.pad(mask, (0, 40))
    close(whiten(*wide)[:, :3], whiten(values, mask))
    close(whiten(values, mask), (values - values.mean()) / values.std(), 1e-5)
    close(masked_mean(*wide), 7 / 3)


@pytest.mark.parametrize("size", [0.0, 1.0, 1e4])
def test_values_that_differ_by_rounding_alone_are_whitened_to_nothing(size):
    """As a constant reward leaves them, with a value network that has learned it: else they were as large as any."""
    noise = torch.randn(64, 24, generator=torch.Generator().manual_seed(0)) * max(size, 1.0) * 1e-7
    mask = torch.arange(24) < torch.arange(1, 65).unsqueeze(1) % 24 + 1
    values = size + noise
    advantages = size - values
    assert (whiten(advantages, mask, advantages + values) == 0).all()
    for told in (whiten(1e3 * noise, mask, size + 1e3 * noise)[mask], whiten(1e3 * noise * mask, mask)[mask]):
        close(told.mean(), torch.tensor(0.0), 1e-3)
        close(told.std(), torch.tensor(1.0), 1e-3)


def test_ppo_minibatch_golden_values():
    """RL4LMs' formulas on four tokens: whitened advantages .3 -1.3 -.1 1.1."""
    logprobs, old = torch.tensor([-1.0, -2.0, -0.5, -3.0]), torch.tensor([-1.2, -1.5, -0.5, -3.3])
    advantages = whiten(torch.tensor([[1.0, -1.0, 0.5, 2.0]]), torch.ones(1, 4, dtype=torch.bool))[0]
    close(advantages, [0.3, -1.3, -0.1, 1.1], 1e-1)
    loss, seen = ppo_clip(logprobs, old, advantages, 0.2)
    ratio = (logprobs - old).exp().tolist()
    close(ratio, [1.221403, 0.606531, 1.0, 1.349859])
    close(seen["policy/approx_kl"], 0.044448)
    close(seen["policy/ratio_error"], 1 - 0.606531)
    assert seen["policy/clip_fraction"] == 0.75
    by_hand = -sum(min(r * a, min(max(r, 0.8), 1.2) * a) for r, a in zip(ratio, advantages.tolist())) / 4
    close(loss, by_hand)
    close(loss, -0.135, 2e-3)
    values, returns = torch.tensor([0.4, 0.3, 0.6, 0.1]), torch.tensor([0.5, 0.2, 1.0, 0.0])
    close(value_loss(values, values, returns, 0.0), 0.0475)


def test_value_clipping_keeps_the_larger_error():
    value, old, target = torch.tensor([2.0]), torch.tensor([0.0]), torch.tensor([2.0])
    close(value_loss(value, old, target, 0.0), 0.0)
    close(value_loss(value, old, target, 0.5), 2.25)


def test_masked_distribution_is_renormalised():
    """Logits 2 1 0 -1 -2, first two allowed. The original keeps -0.4519 and entropy 0.7209; these are the right
    ones."""
    logits = torch.tensor([[2.0, 1.0, 0.0, -1.0, -2.0]])
    allowed = torch.tensor([[True, True, False, False, False]])
    masked = restrict(logits, Sampling(eos_id=4, pad_id=4, max_new_tokens=1), torch.tensor([0]), allowed)
    close(chosen_logprobs(masked, torch.tensor([0])), [-0.313262])
    close(entropy(masked), 0.582203)


def test_entropy_of_a_masked_distribution_has_a_finite_gradient():
    logits = torch.tensor([[1.0, 0.0, -torch.inf]], requires_grad=True)
    entropy(logits).backward()
    assert torch.isfinite(logits.grad).all()


def test_explained_variance():
    returns = torch.tensor([1.0, 2.0, 3.0])
    assert explained_variance(returns, returns) == 1 and explained_variance(torch.zeros(3), returns) == pytest.approx(0)
    assert explained_variance(returns, torch.ones(3)) == 0


def test_rewards_to_go_read_as_digits_and_stop_at_the_mask():
    rewards = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 9.0]])
    mask = torch.tensor([[True, True, True], [True, True, False]])
    close(rewards_to_go(rewards, mask, 0.1), [[1.23, 2.3, 3.0], [4.5, 5.0, 0.0]])
    close(rewards_to_go(rewards, mask, 1.0), [[6.0, 5.0, 3.0], [9.0, 5.0, 0.0]])
    close(rewards_to_go(rewards, mask, 0.0), rewards * mask)


def test_leave_one_out_by_hand():
    """Of 1 2 6 the others' means are 4, 3.5 and 1.5; a second group knows nothing of the first."""
    scores = torch.tensor([1.0, 2.0, 6.0, 10.0, 10.0, 40.0])
    close(leave_one_out(scores, 3), [-3.0, -1.5, 4.5, -15.0, -15.0, 30.0])
    close(leave_one_out(torch.tensor([1.0, 4.0]), 2), [-3.0, 3.0])
    close(leave_one_out(torch.stack([scores, -2 * scores], 1), 3)[:, 1], [6.0, 3.0, -9.0, 30.0, 30.0, -60.0])


def test_group_relative_by_hand():
    """1 2 6: mean 3, unbiased variance (4 + 1 + 9) / 2 = 7."""
    scores = torch.tensor([1.0, 2.0, 6.0, 10.0, 10.0, 40.0])
    close(group_relative(scores, 3, normalise=False), [-2.0, -1.0, 3.0, -10.0, -10.0, 20.0])
    close(group_relative(scores, 3, normalise=True)[:3], [-2 / 7**0.5, -1 / 7**0.5, 3 / 7**0.5])
    close(group_relative(scores, 3, normalise=True)[3:], [-1 / 3**0.5, -1 / 3**0.5, 2 / 3**0.5])
    close(group_relative(scores, 6, normalise=False), leave_one_out(scores, 6) * 5 / 6, 1e-5)


@pytest.mark.parametrize("normalise", [True, False])
@pytest.mark.parametrize("score", [0.1, 0.7, 1e6 / 3])
def test_a_group_of_equal_scores_says_exactly_nothing(score, normalise):
    """The mean of three equal float32 numbers is not always that number; divided by a deviation as small it would be
    0.5."""
    for group in (3, 5, 6, 7):
        assert (group_relative(torch.full((2 * group,), score), group, normalise) == 0).all()


@pytest.mark.parametrize("rows, group", [(4, 1), (5, 2), (2, 4)])
def test_groups_of_one_and_broken_groups_are_refused(rows, group):
    for rule in (leave_one_out, lambda scores, group: group_relative(scores, group, True)):
        with pytest.raises(ValueError, match=f"group: expected at least 2, .*got {rows} rows in groups of {group}"):
            rule(torch.ones(rows), group)


def test_policy_gradient_by_hand():
    """Advantages 2 and -3 on two tokens' log-probabilities: the gradient is -A / count; the advantages get none."""
    logprobs = torch.tensor([-1.0, -0.5], requires_grad=True)
    advantages = torch.tensor([2.0, -3.0], requires_grad=True)
    loss = policy_gradient(logprobs, advantages.detach())
    close(loss.detach(), 0.25)
    loss.backward()
    close(logprobs.grad, [-1.0, 1.5])
    close(policy_gradient(logprobs.detach(), advantages.detach(), 10), 0.05)


def test_a_score_is_paid_at_the_end_or_token_by_token():
    mask = torch.tensor([[True, True, True], [True, True, False]])
    scores = torch.tensor([1.0, 2.0])
    assert per_response(scores, mask) is scores
    each = torch.tensor([[0.5, 0.0, 0.25], [1.0, -2.0, float("nan")]])  # what is not a token is not paid
    close(per_response(each, mask), [0.75, -1.0])
    kl = torch.tensor([[0.1, 0.2, 0.3], [0.4, 0.5, 0.0]])
    close(token_rewards(each, kl, mask, 2.0), [[0.3, -0.4, -0.35], [0.2, -3.0, 0.0]])
    with pytest.raises(ValueError, match=r"scores: expected shape \(2,\) or \(2, 3\), got \(2, 2\)"):
        token_rewards(each[:, :2], kl, mask, 2.0)
    with pytest.raises(NotFinite, match=r"scores: not finite at index \[0, 1\]"):
        token_rewards(torch.tensor([[0.5, float("nan"), 0.0], [0.0, 0.0, 0.0]]), kl, mask, 2.0)
