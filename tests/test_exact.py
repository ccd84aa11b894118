"""The implemented quantities against exact enumeration of a token MDP with 4 tokens and horizon 3 (40 responses)."""

import dataclasses
import math

import pytest
import torch
from scipy.stats import chisquare

from rlnlp import models, samplers
from rlnlp.decoding import beam_search, best_rows
from rlnlp.losses import gae, kl_estimate, ppo_clip, token_rewards
from rlnlp.rollout import repeat, sample
from rlnlp.types import take
from tests.tiny import EOS, MAKE, as_rollout, every_response
from workbook.arms import bandit

V, T, PROMPT = 4, 3, torch.tensor([2, 3])
BETA = 0.3


def full_logprobs(model, prefix: tuple[int, ...]) -> torch.Tensor:
    """log pi(. | prompt, prefix) [V] by one plain, uncached forward of the whole model; independent of rlnlp.models."""
    if model.config.is_encoder_decoder:
        decoder = torch.tensor([[model.config.decoder_start_token_id, *prefix]])
        logits = model(input_ids=PROMPT[None], decoder_input_ids=decoder).logits
    else:
        logits = model(torch.cat([PROMPT, torch.tensor(prefix, dtype=torch.long)])[None]).logits
    return logits[0, -1].log_softmax(-1)


def sequence_logprobs(model, responses) -> torch.Tensor:
    """[N, T] log pi(a_t | s_t), zero after the end, differentiable."""
    cache = {}
    rows = []
    for tokens in responses:
        row = []
        for t, token in enumerate(tokens):
            if tokens[:t] not in cache:
                cache[tokens[:t]] = full_logprobs(model, tokens[:t])
            row.append(cache[tokens[:t]][token])
        rows.append(torch.stack(row + [torch.zeros(())] * (T - len(row))))
    return torch.stack(rows)


@pytest.fixture(params=list(MAKE))
def world(request):
    spread = {"causal": 0.12, "encoder-decoder": 0.4}[request.param]  # distributions neither flat nor a single token
    policy, reference = (MAKE[request.param](V, seed=seed, spread=spread) for seed in (0, 1))
    responses = every_response(V, T)
    assert len(responses) == 1 + 3 * 1 + 9 * 4
    exact = sequence_logprobs(policy, responses)
    with torch.no_grad():
        reference_exact = sequence_logprobs(reference, responses)
    rollout = as_rollout(responses, PROMPT, T)
    scores = torch.linspace(-1, 1, len(responses))[
        torch.randperm(len(responses), generator=torch.Generator().manual_seed(5))
    ]
    return policy, reference, responses, rollout, exact, reference_exact, scores


def test_probabilities_of_all_responses_sum_to_one(world):
    policy, _, _, rollout, exact, _, _ = world
    assert exact.sum(1).exp().sum().item() == pytest.approx(1, abs=1e-5)
    torch.testing.assert_close(models.score_tokens(policy, rollout), exact.detach() * rollout.mask, atol=1e-5, rtol=0)


def test_where_no_end_may_come_policy_and_reference_are_compared_without_it(world):
    """The penalty's mean over all responses is then a KL, that of the distributions which are sampled from."""
    policy, reference, responses, rollout, _, _, _ = world
    possible = [i for i, tokens in enumerate(responses) if EOS not in tokens[:2]]
    settings = dataclasses.replace(rollout.sampling, min_new_tokens=2)
    here = dataclasses.replace(take(rollout, torch.tensor(possible)), sampling=settings)
    logprobs, ref = models.score_tokens(policy, here), models.score_tokens(reference, here)
    chance = logprobs.sum(1).exp()
    assert chance.sum().item() == pytest.approx(1, abs=1e-5) == ref.sum(1).exp().sum().item()
    penalty = chance @ (kl_estimate(logprobs=logprobs, ref_logprobs=ref, kind="k1") * here.mask).sum(1)
    raw, deployed = models.exact_kl(policy, reference, here)
    assert penalty.item() == pytest.approx((chance @ deployed.sum(1)).item(), abs=1e-5) and penalty > 0.01
    assert abs(penalty - chance @ raw.sum(1)) > 1e-4  # the bare models differ in how soon they would end, too
    assert models.exact_kl(reference, reference, here)[1].abs().max() < 1e-6


def experience_parts(policy, reference, rollout, scores, gamma, lam):
    logprobs, ref = models.score_tokens(policy, rollout), models.score_tokens(reference, rollout)
    kl = kl_estimate(logprobs=logprobs, ref_logprobs=ref, kind="k1") * rollout.mask
    rewards = token_rewards(scores, kl, rollout.mask, BETA)
    return rewards, gae(rewards, torch.zeros_like(rewards), rollout.mask, gamma, lam)


def implemented_gradient(policy, rollout, advantages, weights):
    """Sum over responses of p(response) x gradient of sum_t of the clipped surrogate, by the package's functions."""
    hidden = models.hidden_states(policy, rollout)[rollout.mask]
    logprobs = models.chosen_logprobs(
        models.behavior_logits(models.head(policy, hidden), rollout), rollout.responses[rollout.mask]
    )
    weight = weights[:, None].expand(rollout.mask.shape)[rollout.mask]
    loss, _ = ppo_clip(logprobs, logprobs.detach(), advantages[rollout.mask] * weight, clip=0.2)
    return torch.autograd.grad(-loss * len(logprobs), list(policy.parameters()), allow_unused=True)


def assert_same_gradient(ours, exact):
    scale = max(g.abs().max().item() for g in exact if g is not None)
    assert scale > 1e-3  # a gradient of zeros would prove nothing
    for mine, true in zip(ours, exact):
        if true is not None:
            torch.testing.assert_close(mine, true, atol=1e-5 * max(scale, 1), rtol=1e-4)


def test_first_gradient_is_the_exact_policy_gradient(world):
    """gamma = lam = 1: the expectation over all responses of our first gradient is d/dtheta E[score - beta KL]."""
    policy, reference, _, rollout, exact, reference_exact, scores = world
    sequence = exact.sum(1)
    value = (sequence.exp() * (scores - BETA * (sequence - reference_exact.sum(1)))).sum()
    true = torch.autograd.grad(value, list(policy.parameters()), allow_unused=True)
    _, advantages = experience_parts(policy, reference, rollout, scores, 1.0, 1.0)
    assert_same_gradient(implemented_gradient(policy, rollout, advantages, sequence.exp().detach()), true)


@pytest.mark.parametrize("baseline", [0.0, 2.0])
def test_bandits_first_gradient_is_the_exact_policy_gradient(world, baseline):
    """Its own loss at ratio 1, each response weighted by its probability; a baseline of any size changes nothing."""
    policy, reference, _, rollout, exact, reference_exact, scores = world
    sequence = exact.sum(1)
    value = (sequence.exp() * (scores - BETA * (sequence - reference_exact.sum(1)))).sum()
    true = torch.autograd.grad(value, list(policy.parameters()), allow_unused=True)
    config = bandit.Config(kl_coef=BETA, whiten_advantages=False, value_coef=0.0, max_new_tokens=T)
    state = bandit.init(policy, config, seed=0)
    models.sync(state.reference, reference)
    torch.nn.init.constant_(state.value.head.bias, baseline)
    logprobs = models.score_tokens(policy, rollout)
    drawn = dataclasses.replace(rollout, logprobs=logprobs, behavior_logprobs=logprobs)
    seen = bandit.experience(state, drawn, lambda rollout: (scores, {}), config)
    weighted = dataclasses.replace(seen, advantages=seen.advantages * sequence.exp().detach()[:, None])
    loss, metrics = bandit.minibatch_loss(state, weighted, config)
    assert metrics["policy/ratio_error"] < 1e-4
    ours = torch.autograd.grad(-loss * int(rollout.mask.sum()), list(policy.parameters()), allow_unused=True)
    assert_same_gradient(ours, true)


def test_discounted_gradient_is_the_enumerated_form_without_gamma_to_the_t(world):
    policy, reference, responses, rollout, exact, reference_exact, scores = world
    gamma, probabilities = 0.6, exact.sum(1).exp().detach()
    objective = torch.zeros(())
    for i, tokens in enumerate(responses):
        rewards = [-BETA * (exact[i, t] - reference_exact[i, t]).item() for t in range(len(tokens))]
        rewards[-1] += scores[i].item()
        for t in range(len(tokens)):
            to_go = sum(gamma ** (k - t) * rewards[k] for k in range(t, len(tokens)))
            objective = objective + probabilities[i] * exact[i, t] * to_go
    true = torch.autograd.grad(objective, list(policy.parameters()), allow_unused=True)
    _, advantages = experience_parts(policy, reference, rollout, scores, gamma, 1.0)
    assert_same_gradient(implemented_gradient(policy, rollout, advantages, probabilities), true)


@pytest.mark.parametrize("gamma", [1.0, 0.6])
def test_expected_returns_are_the_dynamic_programming_values(world, gamma):
    policy, reference, responses, rollout, exact, reference_exact, scores = world
    index = {tokens: i for i, tokens in enumerate(responses)}
    with torch.no_grad():
        distributions = {p: full_logprobs(policy, p).exp() for p in {r[:t] for r in responses for t in range(len(r))}}
        ref = {p: full_logprobs(reference, p) for p in distributions}

    def value(prefix):  # Bellman's equation, backwards from the ends
        total = 0.0
        for token in range(V):
            p, following = distributions[prefix][token].item(), (*prefix, token)
            reward = -BETA * (distributions[prefix][token].log() - ref[prefix][token]).item()
            ended = following in index
            total += p * (reward + (scores[index[following]].item() if ended else gamma * value(following)))
        return total

    _, returns = experience_parts(policy, reference, rollout, scores, gamma, 1.0)  # values 0: advantages = returns
    sequence = exact.detach().sum(1).exp()
    for prefix in distributions:
        rows = [i for i, r in enumerate(responses) if r[: len(prefix)] == prefix]
        weights = sequence[rows] / sequence[rows].sum()
        assert (weights * returns[rows, len(prefix)]).sum().item() == pytest.approx(value(prefix), abs=1e-5)


def test_exact_kl_sums_to_the_sequence_kl(world):
    policy, reference, _, rollout, exact, reference_exact, _ = world
    sequence = exact.detach().sum(1)
    true = (sequence.exp() * (sequence - reference_exact.sum(1))).sum().item()
    raw, deployed = models.exact_kl(policy, reference, rollout)
    assert (sequence.exp()[:, None] * raw).sum().item() == pytest.approx(true, abs=1e-5)
    torch.testing.assert_close(raw, deployed)  # nothing truncated: both are the bare policy
    zero, _ = models.exact_kl(policy, policy, rollout)
    assert zero.abs().max().item() < 1e-6


def nucleus(probabilities: torch.Tensor, p: float) -> set[int]:
    kept, mass = set(), 0.0
    for token in probabilities.argsort(descending=True).tolist():
        kept.add(token)
        mass += probabilities[token].item()
        if mass >= p:
            return kept
    return kept


@pytest.mark.parametrize("p", [0.5, 0.8])
def test_masked_distribution_is_renormalised_over_the_mask_models_nucleus(world, p):
    """Every sampled token's stored log-probability equals the enumerated masked one; frequencies agree too."""
    policy, mask_model, responses, _, _, _, _ = world
    n = 3000
    prompts = as_rollout([(EOS,)] * n, PROMPT, T).prompts
    settings = as_rollout(responses, PROMPT, T).sampling
    rollout = sample(
        policy, prompts, settings, torch.Generator().manual_seed(0), mask_model=mask_model, mask_rule=samplers.top_p(p)
    )
    with torch.no_grad():
        masked = {}
        for prefix in {r[:t] for r in responses for t in range(len(r))}:
            allowed = nucleus(full_logprobs(mask_model, prefix).exp(), p)
            weights = full_logprobs(policy, prefix).exp()
            weights = torch.tensor([weights[v].item() if v in allowed else 0.0 for v in range(V)])
            masked[prefix] = weights / weights.sum()
    counts: dict = {}
    stored = rollout.allowed.unpack(rollout.mask)
    at = 0
    for row in range(n):
        tokens = tuple(rollout.responses[row][rollout.mask[row]].tolist())
        counts[tokens] = counts.get(tokens, 0) + 1
        for t, token in enumerate(tokens):
            distribution = masked[tokens[:t]]
            assert distribution[token] > 0, "a token outside the nucleus was sampled"
            assert rollout.behavior_logprobs[row, t].item() == pytest.approx(distribution[token].log().item(), abs=1e-4)
            assert stored[at].tolist() == (distribution > 0).tolist()
            at += 1
    expected = {r: float(torch.stack([masked[r[:t]][a] for t, a in enumerate(r)]).prod()) * n for r in responses}
    big = [r for r in responses if expected[r] >= 5]
    rest = n - sum(counts.get(r, 0) for r in big), n - sum(expected[r] for r in big)
    observed = [counts.get(r, 0) for r in big] + ([rest[0]] if rest[1] > 1e-3 else [])
    predicted = [expected[r] for r in big] + ([rest[1]] if rest[1] > 1e-3 else [])
    assert len(big) >= 4
    assert chisquare(observed, [x * sum(observed) / sum(predicted) for x in predicted]).pvalue > 1e-3


def test_masked_scoring_equals_masked_sampling(world):
    policy, mask_model, responses, _, _, _, _ = world
    prompts = as_rollout([(EOS,)] * 64, PROMPT, T).prompts
    settings = dataclasses.replace(as_rollout(responses, PROMPT, T).sampling, temperature=0.7, min_new_tokens=2)
    rollout = sample(
        policy, prompts, settings, torch.Generator().manual_seed(0), samplers.top_k(3), mask_model, samplers.top_p(0.7)
    )
    with torch.no_grad():
        logits = models.head(policy, models.hidden_states(policy, rollout)[rollout.mask])
        scored = models.chosen_logprobs(models.behavior_logits(logits, rollout), rollout.responses[rollout.mask])
    torch.testing.assert_close(scored, rollout.behavior_logprobs[rollout.mask], atol=1e-5, rtol=0)
    assert (rollout.mask.sum(1) >= 2).all()  # EOS blocked at the first two positions


# decodings that are not distributions
# -----------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 3, 8])
def test_best_of_n_has_the_enumerated_mean_and_stays_within_its_kl_bound(world, n):
    """P(best score <= x) = F(x)^n; the scores of all responses differ, so this is the whole distribution."""
    policy, _, responses, rollout, exact, _, scores = world
    probabilities = exact.detach().sum(1).exp().double()
    order = scores.argsort()
    below = torch.cat([torch.zeros(1).double(), probabilities[order].cumsum(0)])
    best = below[1:] ** n - below[:-1] ** n
    mean = (best * scores[order]).sum().item()
    kl = torch.xlogy(best, best / probabilities[order]).sum().item()
    assert kl <= math.log(n) - (n - 1) / n + 1e-6 and (n == 1 or kl > 0.02)
    found = {tuple(tokens): i for i, tokens in enumerate(responses)}
    prompts = as_rollout([(EOS,)] * 2000, PROMPT, T).prompts
    drawn = sample(policy, repeat(prompts, n), rollout.sampling, torch.Generator().manual_seed(0))
    given = scores[torch.tensor([found[tuple(r[m].tolist())] for r, m in zip(drawn.responses, drawn.mask)])]
    kept = given[best_rows(given, n)]
    error = kept.std().item() / 2000**0.5
    assert kept.mean().item() == pytest.approx(mean, abs=4 * error) and error < 0.02


@pytest.mark.parametrize("kind, spread", [("causal", 0.3), ("encoder-decoder", 1.0)])
def test_wide_beams_find_the_response_with_the_highest_mean_log_probability(kind, spread):
    """64 beams keep every prefix of the 4-token world; greedy misses the best response of some of these policies."""
    responses, missed = every_response(V, T), 0
    rollout, prompts = as_rollout(responses, PROMPT, T), as_rollout([(EOS,)], PROMPT, T).prompts
    for seed in range(6):
        policy = MAKE[kind](V, seed=seed, spread=spread)
        with torch.no_grad():
            exact = sequence_logprobs(policy, responses).sum(1)
        means = exact / rollout.mask.sum(1)
        for minimum in (0, T - 1):
            settings = dataclasses.replace(rollout.sampling, min_new_tokens=minimum)
            possible = [i for i, tokens in enumerate(responses) if EOS not in tokens[:minimum]]
            best = max(possible, key=lambda i: means[i])
            found = beam_search(policy, prompts, settings, beams=64)
            assert found.responses[found.mask].tolist() == list(responses[best])
            freely = dataclasses.replace(found, sampling=rollout.sampling)
            torch.testing.assert_close(models.score_tokens(policy, freely).sum(), exact[best], atol=1e-4, rtol=0)
            greedy = beam_search(policy, prompts, settings, beams=1)
            missed += greedy.responses[greedy.mask].tolist() != list(responses[best])
    assert missed >= 2
