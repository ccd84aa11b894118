"""Each truncation rule against transformers' own processor on random, tied and degenerate rows."""

import pytest
import torch
from transformers import TopKLogitsWarper, TopPLogitsWarper

from rlnlp import samplers


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
    assert samplers.truncation(0, 1.0) is None


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
