"""Each truncation rule against transformers' own processor on random, tied and degenerate rows, and against its paper's
formula in plain Python."""

import math

import pytest
import torch
from transformers import (
    EpsilonLogitsWarper,
    EtaLogitsWarper,
    MinPLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
    TypicalLogitsWarper,
)

from rlnlp import models, samplers
from rlnlp.rollout import sample, sampling_from, truncation
from tests.tiny import MAKE, prompts


def rows(vocabulary=40):
    torch.manual_seed(0)
    random = torch.randn(200, vocabulary) * torch.tensor([0.1, 1.0, 3.0, 10.0]).repeat(50)[:, None]
    tied = torch.randint(0, 3, (50, vocabulary)).float()
    flat = torch.zeros(1, vocabulary)
    peaked = torch.full((1, vocabulary), -40.0).index_fill(1, torch.tensor([7]), 40.0)
    return torch.cat([random, tied, flat, peaked])


@pytest.mark.parametrize("k", [1, 3, 40, 100])
def test_top_k_is_transformers(k):
    logits = rows()
    _, allowed, _ = samplers.top_k(k)(logits, None)
    assert torch.equal(allowed, TopKLogitsWarper(top_k=k)(None, logits) > -torch.inf)


@pytest.mark.parametrize("keep", [1, 5])
@pytest.mark.parametrize("p", [0.05, 0.3, 0.5, 0.9, 0.99])
def test_top_p_is_transformers(p, keep):
    logits = rows()
    _, allowed, _ = samplers.top_p(p, keep)(logits, None)
    theirs = TopPLogitsWarper(top_p=p, min_tokens_to_keep=keep)(None, logits) > -torch.inf
    untied = torch.tensor([len(row.unique()) == len(row) for row in logits])
    assert torch.equal(allowed[untied], theirs[untied])
    assert torch.equal(allowed.sum(1), theirs.sum(1))  # on ties, which equal token goes first is free; how many is not


@pytest.mark.parametrize("p", [0.05, 0.3, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("keep", [1, 3, 40])
def test_top_p_cuts_ties_as_a_stable_sort_does(p, keep):
    logits = torch.randint(-3, 3, (64, 50), generator=torch.Generator().manual_seed(1)).float()
    logits[::2, ::3] = -torch.inf  # what an earlier rule took away: ties too
    for each in (logits, logits.double()):
        ordered, order = each.sort(dim=-1, stable=True)
        removed = ordered.softmax(-1).cumsum(-1) <= 1 - p
        removed[:, -keep:] = False
        wanted = ~torch.zeros_like(removed).scatter_(1, order, removed)
        assert torch.equal(samplers.top_p(p, keep)(each, None)[1], wanted)


def test_top_p_does_not_take_away_what_is_not_a_number():
    logits = torch.tensor([[0.0, float("nan"), 1.0], [float("nan")] * 3])
    assert samplers.top_p(0.5)(logits, None)[1].all()  # so that whoever draws sees it


def test_a_chain_is_random_if_a_rule_of_it_is():
    random = samplers.random_mass(0.5, torch.Generator())
    assert samplers.chain(samplers.top_k(2), random).random and not samplers.chain(samplers.top_k(2)).random


def test_top_p_keeps_the_smallest_set_that_reaches_p():
    logits = torch.tensor([[0.5, 0.25, 0.125, 0.125]]).log()
    for p, kept in ((0.01, 1), (0.5, 1), (0.51, 2), (0.75, 2), (0.9, 4), (1.0, 4)):
        assert int(samplers.top_p(p)(logits, None)[1].sum()) == kept


def test_top_p_at_one_keeps_everything_even_where_probabilities_vanish():
    logits = torch.full((1, 1000), -200.0).index_fill(1, torch.tensor([3]), 0.0)
    assert samplers.top_p(1.0)(logits, None)[1].all()


@pytest.mark.parametrize("p", [0.1, 0.6, 0.9])
def test_a_random_mask_is_a_random_order_cut_where_the_mass_is_reached(p):
    logits = torch.cat([rows(), torch.full((1, 40), -torch.inf).index_fill(1, torch.tensor([3, 8]), 0.0)])
    _, allowed, state = samplers.random_mass(p, torch.Generator().manual_seed(0))(logits, None)
    keys, probabilities = torch.rand(logits.shape, generator=torch.Generator().manual_seed(0)), logits.softmax(-1)
    assert state is None
    for row in range(len(logits)):
        expected, mass = torch.zeros(40, dtype=torch.bool), 0.0
        for token in keys[row].argsort().tolist():
            expected[token] = True
            mass += probabilities[row, token].item()
            if mass >= p - 1e-6:
                break
        assert torch.equal(allowed[row], expected)
    kept = (allowed * probabilities).sum(1)
    assert (kept >= p - 1e-5).all() and not torch.equal(allowed, samplers.top_p(p)(logits, None)[1])


def test_a_random_mask_keeps_at_least_the_tokens_it_must_and_all_at_one():
    allowed = samplers.random_mass(0.01, torch.Generator().manual_seed(0), 5)(rows(), None)[1]
    assert (allowed.sum(1) >= 5).all() and (allowed.sum(1) == 5).any()
    assert samplers.random_mass(1.0, torch.Generator().manual_seed(0))(rows(), None)[1].all()
    rule = samplers.random_mass(0.5, torch.Generator().manual_seed(0))
    first, second = (rule(rows(), None)[1] for _ in range(2))
    assert not torch.equal(first, second)  # each step draws its own set


def test_chain_truncates_what_is_left():
    logits = torch.tensor([[0.4, 0.3, 0.2, 0.1]]).log()
    _, allowed, _ = samplers.chain(samplers.top_k(2), samplers.top_p(0.5))(logits, None)
    assert allowed.tolist() == [[True, False, False, False]]  # 0.4 / 0.7 > 0.5 after top-k
    assert truncation(0, 1.0) is None


def test_every_row_keeps_a_token():
    for rule in (samplers.top_k(1), samplers.top_p(1e-9), samplers.chain(samplers.top_k(3), samplers.top_p(0.1))):
        assert rule(rows(), None)[1].any(1).all()


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: samplers.top_p(0.0), "0 < p <= 1, got 0.0"),
        (lambda: samplers.top_p(1.1), "0 < p <= 1, got 1.1"),
        (lambda: samplers.random_mass(0.0, torch.Generator()), "0 < p <= 1, got 0.0"),
        (lambda: samplers.top_k(0), ">= 1, got 0"),
    ],
)
def test_bad_settings_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


# the rules of the report
# ------------------------------------------------------------------------------------------------


def degenerate(vocabulary=40):
    """Rows with tokens that do not exist: some, all but two, all but one."""
    torch.manual_seed(1)
    some = torch.randn(30, vocabulary).mul(3).masked_fill(torch.rand(30, vocabulary) < 0.5, -torch.inf)
    two = torch.full((1, vocabulary), -torch.inf).index_fill(1, torch.tensor([3, 8]), 0.0)
    one = torch.full((1, vocabulary), -torch.inf).index_fill(1, torch.tensor([5]), 2.0)
    return torch.cat([some, two, one])


def every_row():
    return torch.cat([rows(), degenerate()])


WARPERS = {
    "min_p": (MinPLogitsWarper, [0.01, 0.05, 0.2, 0.7, 1.0]),
    "typical": (TypicalLogitsWarper, [0.01, 0.2, 0.5, 0.9, 0.95, 0.99]),
    "epsilon": (EpsilonLogitsWarper, [1e-7, 1e-4, 0.01, 0.1, 0.9]),
    "eta": (EtaLogitsWarper, [3e-4, 0.004, 0.02, 0.1, 0.9]),
}


@pytest.mark.parametrize("rule, value", [(rule, value) for rule, (_, values) in WARPERS.items() for value in values])
def test_a_rule_is_transformers(rule, value):
    logits = every_row()
    same, allowed, state = samplers.named(rule, value)(logits, None)
    real = logits > -torch.inf  # transformers shows a token that did not exist before as cut
    if rule == "min_p":  # on ties it keeps one of the most probable where it must keep one; the formula keeps them all
        real &= (logits < logits.amax(1, keepdim=True)) | (logits.argmax(1, keepdim=True) == torch.arange(40))
    assert torch.equal(allowed & real, (WARPERS[rule][0](value)(None, logits) > -torch.inf) & real)
    assert same is logits and state is None and 0 < allowed.sum() < allowed.numel()


def by_formula(rule, value, probabilities):
    """The tokens that a paper's definition keeps of one distribution (a list of floats), in plain Python."""
    if rule == "min_p":
        return {i for i, p in enumerate(probabilities) if p >= value * max(probabilities)}
    h = -sum(p * math.log(p) for p in probabilities if p > 0)
    if rule in ("epsilon", "eta"):
        threshold = value if rule == "epsilon" else min(value, math.sqrt(value) * math.exp(-h))
        return {i for i, p in enumerate(probabilities) if p > threshold or p == max(probabilities)}
    distance = [abs(h + math.log(p)) if p > 0 else math.inf for p in probabilities]
    kept, mass, last = set(), 0.0, 0.0
    for i in sorted(range(len(probabilities)), key=distance.__getitem__):
        if mass >= value and distance[i] > last:
            break
        kept.add(i)
        mass, last = mass + probabilities[i], distance[i]
    return kept


@pytest.mark.parametrize("rule, value", [(rule, value) for rule, (_, values) in WARPERS.items() for value in values])
def test_a_rule_is_its_papers_formula(rule, value):
    logits = every_row().double()
    allowed = samplers.named(rule, value)(logits, None)[1]
    for row, given in enumerate(logits.softmax(-1).tolist()):
        assert set(allowed[row].nonzero().flatten().tolist()) == by_formula(rule, value, given), f"row {row}"


def sets(rule, value, probabilities):
    return samplers.named(rule, value)(torch.tensor([probabilities]).log(), None)[1][0].nonzero().flatten().tolist()


def test_worked_examples():
    flat_and_tail = [0.5, 0.25, 0.125, 0.125]  # h = 1.75 bits; distances in bits 0.75, 0.25, 1.25, 1.25
    assert sets("typical", 0.2, flat_and_tail) == [1] and sets("typical", 0.26, flat_and_tail) == [0, 1]
    assert sets("typical", 0.8, flat_and_tail) == [0, 1, 2, 3]  # the tie stays whole
    assert sets("min_p", 0.5, flat_and_tail) == [0, 1] and sets("min_p", 0.51, flat_and_tail) == [0]
    assert sets("epsilon", 0.25, flat_and_tail) == [0]  # p > epsilon, where transformers keeps p = epsilon
    assert sets("epsilon", 0.9, [0.4, 0.4, 0.2]) == [0, 1]  # the most probable, both of them
    uniform = [0.01] * 100  # epsilon cuts all it could; eta's threshold is sqrt(0.04) / 100 = 0.002
    assert len(sets("eta", 0.04, uniform)) == 100 and len(sets("epsilon", 0.04, uniform)) == 100  # nothing else is left
    spread = [0.02] + [0.0098] * 100  # here epsilon leaves one token and eta all
    assert sets("epsilon", 0.04, spread) == [0] and len(sets("eta", 0.04, spread)) == 101


def test_a_tie_is_kept_or_cut_whole():
    torch.manual_seed(2)
    logits = torch.randint(0, 4, (200, 40)).float()
    for rule, value in (
        ("top_k", 5),
        ("min_p", 0.3),
        ("typical", 0.3),
        ("epsilon", 0.03),
        ("eta", 0.1),
        ("mirostat", 1.5),
    ):
        allowed, cut = samplers.named(rule, value)(logits, None)[1], 0
        for level in range(4):
            tied = logits == level
            kept = (allowed & tied).sum(1)
            assert ((kept == 0) | (kept == tied.sum(1))).all(), rule
            cut += int((kept == 0).sum())
        assert cut, rule


# mirostat
# ---------------------------------------------------------------------------------------------------------------


def mirostat_k(probabilities, mu, top=100):
    """k of Basu et al.'s algorithm, from a list of probabilities."""
    ordered = sorted((p for p in probabilities if p > 0), reverse=True)
    n, above, below = len(ordered), 0.0, 0.0
    for i in range(1, min(top, n)):
        t, b = math.log((i + 1) / i), math.log(ordered[i - 1] / ordered[i])
        above, below = above + t * b, below + t * t
    if n == 1:
        return 1
    s = above / below
    if s == 0:
        return n
    e = s - 1
    try:
        k = (e * 2**mu / (1 - n**-e)) ** (1 / s)
    except OverflowError:
        k = n
    return max(1, min(n, round(k)))


@pytest.mark.parametrize("vocabulary, tau", [(40, 1.0), (40, 2.0), (40, 4.0), (400, 3.0), (400, 6.0)])
def test_mirostat_is_its_papers_algorithm(vocabulary, tau):
    """Twelve tokens for every row, each drawn from what the rule allows: sets and mu at each step."""
    torch.manual_seed(3)
    rule, state, mu = samplers.mirostat(tau, learning_rate=0.7), None, None
    sizes = set()
    for _ in range(12):
        random = torch.randn(40, vocabulary) * torch.rand(40, 1) * 6
        logits = torch.cat([random, rows(vocabulary)[-2:], degenerate(vocabulary)]).double()
        mu = mu or [2 * tau] * len(logits)
        _, allowed, state = rule(logits, state)
        assert state.mu.tolist() == pytest.approx(mu)
        tokens = logits.masked_fill(~allowed, -torch.inf).softmax(-1).multinomial(1).squeeze(1)
        for row, probabilities in enumerate(logits.softmax(-1).tolist()):
            k = mirostat_k(probabilities, mu[row])
            kth = sorted(probabilities, reverse=True)[k - 1]
            assert set(allowed[row].nonzero().flatten().tolist()) == {
                i for i, p in enumerate(probabilities) if p >= kth
            }
            mu[row] -= 0.7 * (-math.log2(probabilities[tokens[row]]) - tau)
            sizes.add(k)
        state = state.observe(tokens)
    assert len(sizes) >= 5


def test_mirostat_at_zipfs_exponent_of_one():
    """p_i ~ 1 / i: s = 1, where the fraction is 0 / 0 and its limit 1 / log N; k = 2^mu / log N."""
    logits = -torch.arange(1, 1001).double().log().unsqueeze(0)
    assert samplers.mirostat(3.0)(logits, None)[1].sum() == round(2**6 / math.log(1000)) == 9
    two = torch.tensor([[math.log(2), 0.0]], dtype=torch.float64)  # s is 1 to the last bit; k = round(2^mu / log 2)
    assert samplers.mirostat(0.01)(two, None)[1].sum() == 1 and samplers.mirostat(0.1)(two, None)[1].sum() == 2


@pytest.mark.parametrize("tau", [3.0, 5.0])
def test_mirostat_steers_the_surprise_to_its_target(tau):
    """Whatever the distribution: the mean surprise of many tokens of a Zipf law is tau, where untruncated it is 6.5
    bits."""
    torch.manual_seed(0)
    logits = (-1.1 * torch.arange(1, 1001).double().log()).repeat(20, 1)
    logprobs, rule, state, total = logits.log_softmax(-1), samplers.mirostat(tau, learning_rate=0.3), None, 0.0
    assert -(logprobs.exp() * logprobs).sum(-1)[0] / math.log(2) > 6
    for _ in range(150):
        _, allowed, state = rule(logits, state)
        tokens = logits.masked_fill(~allowed, -torch.inf).softmax(-1).multinomial(1)
        state = state.observe(tokens.squeeze(1))
        total += -logprobs.gather(1, tokens).mean().item() / math.log(2) / 150
    assert total == pytest.approx(tau, abs=0.15)


@pytest.mark.parametrize("place", ["own", "after top-k", "mask model"])
@pytest.mark.parametrize("kind", list(MAKE))
def test_a_rollout_tells_mirostat_what_was_drawn(kind, place):
    """The recorded sets are those of the plain algorithm, fed with the tokens of the response and teacher-forced
    logits."""
    policy, other, tau = MAKE[kind](), MAKE[kind](seed=9), 2.5
    rule, more = samplers.mirostat(tau), {}
    if place == "mask model":
        rule, more = None, {"mask_model": other, "mask_rule": rule}
    if place == "after top-k":
        rule = samplers.chain(samplers.top_k(20), rule)
    drawn = sample(policy, prompts(12), sampling_from(policy, 10), torch.Generator().manual_seed(0), rule, **more)
    seen = other if place == "mask model" else policy
    with torch.no_grad():
        logits = models.head(seen, models.hidden_states(seen, drawn)).double()
    if place == "after top-k":
        logits = logits.masked_fill(logits < logits.topk(20).values[..., -1:], -torch.inf)
    stored, at, sizes = drawn.allowed.unpack(drawn.mask), 0, set()
    for row in range(12):
        mu = 2 * tau
        for t in range(int(drawn.mask[row].sum())):
            probabilities = logits[row, t].softmax(-1)
            k = mirostat_k(probabilities.tolist(), mu)
            assert set(stored[at].nonzero().flatten().tolist()) == set(probabilities.topk(k).indices.tolist()), (row, t)
            mu -= -math.log2(probabilities[drawn.responses[row, t]].item()) - tau
            at, sizes = at + 1, sizes | {k}
    assert len(sizes) > 4


# by name
# ----------------------------------------------------------------------------------------------------------------

EXAMPLES = {
    "none": 0,
    "top_k": 3,
    "top_p": 0.5,
    "min_p": 0.2,
    "typical": 0.5,
    "epsilon": 0.05,
    "eta": 0.1,
    "mirostat": 2.0,
}


@pytest.mark.parametrize("rule", samplers.RULES)
def test_every_rule_keeps_a_token_and_no_row_depends_on_the_others(rule):
    logits = every_row()
    make = samplers.named(rule, EXAMPLES[rule])
    same, allowed, _ = make(logits, None)
    assert torch.equal(same, logits) and allowed.dtype == torch.bool
    assert (allowed & (logits > -torch.inf)).any(1).all()
    if rule != "typical":
        assert (allowed & (logits == logits.amax(1, keepdim=True))).any(1).all()
    few = torch.tensor([3, 211, 255, 280])
    assert torch.equal(make(logits[few], None)[1], allowed[few])
    make(torch.full((2, 40), torch.nan), None)  # does not raise: whoever draws says that nothing is finite


def test_typical_can_cut_the_most_probable_token():
    assert sets("typical", 0.2, [0.4] + [0.1] * 6) == [1, 2, 3, 4, 5, 6]  # h = 1.75 nats: 2.30 is closer than 0.92


@pytest.mark.parametrize(
    "rule, value", [("none", 0), ("top_k", 40), ("top_p", 1), ("min_p", 0), ("typical", 1), ("epsilon", 0), ("eta", 0)]
)
def test_every_sweep_reaches_no_truncation(rule, value):
    assert samplers.named(rule, value)(rows()[:-1], None)[1].all()


@pytest.mark.parametrize(
    "rule, value", [("top_k", 1), ("top_p", 1e-9), ("min_p", 1.0), ("epsilon", 0.999), ("mirostat", 1e-9)]
)
def test_every_sweep_reaches_greedy(rule, value):
    torch.manual_seed(0)
    logits = torch.randn(100, 40)
    assert torch.equal(samplers.named(rule, value)(logits, None)[1], logits == logits.amax(1, keepdim=True))


@pytest.mark.parametrize(
    "rule, value, message",
    [
        ("top_o", 0.9, "sampler 'top_o': expected one of none, top_k, .*mirostat; nearest top_p"),
        ("none", 0.5, "none: expected 0, because"),
        ("top_k", 0, "top_k: expected >= 1, got 0"),
        ("top_k", 2.5, "top_k: expected a whole number of tokens, got 2.5"),
        ("top_p", 0, "top_p: expected 0 < p <= 1, got 0"),
        ("typical", 0, "typical: expected 0 < p <= 1, got 0"),
        ("typical", 1.5, "typical: expected 0 < p <= 1, got 1.5"),
        ("min_p", -0.1, "min_p: expected 0 <= share <= 1, got -0.1"),
        ("min_p", 1.1, "min_p: expected 0 <= share <= 1, got 1.1"),
        ("epsilon", 1, "epsilon: expected 0 <= epsilon < 1, because no token is more probable than 1, got 1"),
        ("epsilon", -1e-9, "epsilon: expected 0 <= epsilon < 1"),
        ("eta", 1.5, "eta: expected 0 <= epsilon < 1"),
        ("mirostat", 0, "mirostat: expected a finite target > 0 bits, got 0"),
        ("mirostat", math.inf, "mirostat: expected a finite number, got inf"),
        ("top_k", math.nan, "top_k: expected a finite number, got nan"),
    ],
)
def test_a_rule_that_cannot_be_used_is_refused_with_the_reason(rule, value, message):
    with pytest.raises(ValueError, match=message):
        samplers.named(rule, value)


def test_kept_mass_and_tokens():
    logits = torch.tensor([[0.5, 0.25, 0.125, 0.125], [0.25, 0.25, 0.25, 0.25]]).log()
    mass, tokens = samplers.kept(logits, torch.tensor([[True, False, True, False], [True, True, True, True]]))
    assert mass.tolist() == [0.625, 1.0] and tokens.tolist() == [2, 4]


def test_a_chain_of_nothing_is_refused():
    with pytest.raises(ValueError, match="chain: expected one rule or more"):
        samplers.chain()
