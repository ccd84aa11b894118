"""The verdict rule: by hand, and on planted effects by simulation at the seeds a run has (5) and should have (8, 10).

Effects are in sd of a seed-wise difference. Noise is normal, or heavy-tailed (t with 3 degrees of freedom, sd 1).
Rates are over SAMPLES seeded samples; wrong verdicts may reach alpha plus three binomial standard errors.
"""

import math

import numpy as np
import pytest

from workbook.statistics import rule
from workbook.statistics.paired import equivalence, many, one_sample
from workbook.statistics.rule import (
    AGAINST,
    FEW,
    FOR,
    HOLDS,
    HOLDS_SMALLER,
    OPEN,
    OPEN_AGAINST,
    OPEN_FOR,
    OPENS,
    OPPOSITE,
    TOO_SMALL,
    Evidence,
    adjusted,
    combine,
    decide,
    stepped_down,
)

ALPHA = 0.05
SAMPLES = 300
WRONG = ALPHA + 3 * math.sqrt(ALPHA * (1 - ALPHA) / SAMPLES)  # 0.088
designs = pytest.mark.parametrize("kind, n", [("normal", 5), ("normal", 10), ("t3", 5), ("t3", 10)])


def noise(kind, shape, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=shape) if kind == "normal" else rng.standard_t(3, shape) / math.sqrt(3)


def rates(words):
    return {word: words.count(word) / len(words) for word in (*FOR, *AGAINST, *OPENS, FEW)}


def share(words, wanted):
    return sum(word in wanted for word in words) / len(words)


def evidence(p_for=1.0, p_against=1.0, exact_for=0.0, exact_against=0.0, p_small=1.0, towards=0.0):
    return Evidence(p_for, p_against, exact_for, exact_against, ALPHA, p_small=p_small, towards=towards)


def part(p_for, p_against=1.0, p_small=1.0):
    """A part whose effect lies on the side of its two p that is not 1."""
    return evidence(p_for, p_against, p_small=p_small, towards=1.0 if p_for < p_against else -1.0)


# --- by hand


def test_decide_needs_both_p():
    assert decide(evidence(0.05, 1.0, 0.05)) == HOLDS and decide(evidence(0.051)) == OPEN
    assert decide(evidence(0.01, 1.0, 0.06)) == OPEN and evidence(0.01, 1.0, 0.06).p == 0.06
    assert decide(evidence(1.0, 0.01, 1.0, 0.05)) == OPPOSITE
    assert decide(evidence(1.0, 0.01, 1.0, 0.06)) == OPEN
    assert decide(rule.untestable(ALPHA)) == FEW


def test_what_is_open_leans_to_where_the_mean_lies():
    words = {towards: decide(evidence(0.2, 0.2, towards=towards)) for towards in (1e-9, 0.0, -1e-9)}
    assert words == {1e-9: OPEN_FOR, 0.0: OPEN, -1e-9: OPEN_AGAINST}
    for parts, word in (([0.0, 1.0], OPEN), ([0.0, -1.0], OPEN_AGAINST), ([1.0, 1.0], OPEN_FOR)):
        assert decide(combine([evidence(0.2, 0.2, towards=towards) for towards in parts], "all")) == word
    assert decide(evidence(0.2, 0.2, towards=1.0).opposite) == OPEN_AGAINST
    assert rule.OPENS == ("open", "open, leans for", "open, leans against")


@pytest.mark.parametrize(
    "found, word",
    [
        (evidence(0.05, p_small=0.051), HOLDS),
        (evidence(0.05, p_small=0.05), HOLDS_SMALLER),  # holds, and is not too small
        (evidence(0.051, p_small=0.05), TOO_SMALL),
        (evidence(0.01, exact_for=0.06, p_small=0.01, towards=1.0), TOO_SMALL),  # what does not hold, wherever it leans
        (evidence(1.0, 0.001, p_small=0.05), TOO_SMALL),  # the other way, and shown to be small: too small
        (evidence(1.0, 0.001, p_small=0.051), OPPOSITE),
        (evidence(1.0, 0.05, exact_against=0.06, p_small=0.051, towards=-1.0), OPEN_AGAINST),
        (evidence(p_small=0.051), OPEN),
    ],
)
def test_the_order_of_the_words_of_one_test(found, word):
    assert decide(found) == word
    assert word in {**dict.fromkeys(FOR), **dict.fromkeys(AGAINST), **dict.fromkeys(OPENS)}


def test_the_words_as_they_are_read():
    assert FOR == ("holds", "holds, but smaller than stated")
    assert AGAINST == ("too small", "opposite")
    assert FEW == "too few seeds for a test; direction only"


def test_what_goes_against_a_test_is_the_smaller_p_of_an_effect_the_other_way_and_of_one_too_small():
    assert evidence(1.0, 0.02, exact_against=0.05).p_refuted == 0.02
    assert evidence(1.0, 0.02, exact_against=0.06).p_refuted == 1.0
    assert evidence(1.0, 0.02, exact_against=0.06, p_small=0.03).p_refuted == 0.03
    assert evidence(1.0, 0.02, p_small=0.01).p_refuted == 0.01
    assert evidence(0.05, p_small=0.001).p_refuted == 1.0  # it holds: small or not
    assert evidence(0.051, p_small=0.001).p_refuted == 0.001


def test_a_mean_of_zero_leans_nowhere_however_it_is_rounded():
    """.1 + .2 - .3 is 6e-17: the sign of such a sum tells nothing."""
    d = np.array([1.0, -1.0, 0.1, 0.2, -0.3])
    assert d.mean() != 0
    for sign in (1, -1):
        assert decide(one_sample(sign * d, "greater")) == decide(many(sign * d[None], "greater")[0]) == OPEN
        assert decide(one_sample(sign * d * 1e-30, "greater")) == OPEN, "whatever the unit"
    shift = d.std(ddof=1) / math.sqrt(len(d))  # a standard error
    assert decide(one_sample(d + 1e-7 * shift, "greater")) == OPEN_FOR, "a small mean has a side"
    assert decide(one_sample(d - 1e-7 * shift, "greater")) == OPEN_AGAINST


def test_a_two_sided_p_counts_on_the_side_seen():
    assert rule.directed(0.1, 0.02, 0.0, 0.0, ALPHA) == evidence(0.02, 1.0, towards=0.1)
    assert rule.directed(-0.1, 0.02, 0.0, 0.0, ALPHA) == evidence(1.0, 0.02, towards=-0.1)


@pytest.mark.parametrize("seed", range(20))
def test_one_contrast_is_decided_by_interval_and_permutation(seed):
    """What the rule has said since the first runs, in its first words."""
    result = one_sample(noise("normal", 5, seed) + 1, "greater")
    holds = result.low > 0 and result.p_permutation <= ALPHA
    lean, other = (OPEN_FOR, OPEN_AGAINST) if result.difference > 0 else (OPEN_AGAINST, OPEN_FOR)
    assert decide(result) == (HOLDS if holds else lean)
    assert decide(one_sample(noise("normal", 5, seed) + 1, "less")) == (OPPOSITE if holds else other)


def test_holm_within_a_claim():
    parts = [part(0.02), part(0.03), part(1.0, 0.01), rule.untestable(ALPHA)]
    found = adjusted(parts)
    assert [e.p_for for e in found] == pytest.approx([0.08, 0.09, 1, 1])
    assert [e.p_against for e in found] == pytest.approx([1, 1, 0.04, 1])
    assert [decide(e) for e in found] == [OPEN_FOR, OPEN_FOR, OPPOSITE, FEW]
    assert adjusted(parts[:1]) == parts[:1]


def test_holm_over_what_goes_against_each_part():
    """The family of what goes against each: 0.01, 0.02, 1 (it holds) and 1 (no test); the second becomes 0.06."""
    parts = [part(1.0, 0.01), part(0.2, p_small=0.02), part(0.01, p_small=0.001), rule.untestable(ALPHA)]
    found = stepped_down(parts)
    assert [e.p_against for e in found] == pytest.approx([0.04, 1, 1, 1])
    assert [e.p_small for e in found] == pytest.approx([1, 0.06, 0.004, 1])  # the size of what holds: a family too
    assert [e.p_for for e in found] == [e.p_for for e in parts]
    assert [decide(e) for e in found] == [OPPOSITE, OPEN_FOR, HOLDS_SMALLER, FEW]
    # both at once: in the family with the smaller of the two p, and each is at least that after Holm
    (both, _) = stepped_down([part(1.0, 0.001, 0.04), part(0.01)])
    assert (both.p_against, both.p_small) == pytest.approx((0.002, 0.04)) and decide(both) == TOO_SMALL
    (small, _) = stepped_down([part(1.0, 0.04, 0.001), part(0.01)])
    assert (small.p_against, small.p_small) == pytest.approx((0.04, 0.002))
    assert stepped_down(parts[:1]) == parts[:1]


def test_holm_leaves_the_exact_p_alone():
    """At 5 seeds the exact p is 1/32 at best; adjusted for two contrasts no claim of two could ever hold."""
    clear = one_sample([1.0, 1.1, 0.9, 1.05, 0.95], "greater")
    assert clear.p_permutation == 1 / 32
    assert [decide(e) for e in adjusted([clear, clear, clear])] == [HOLDS] * 3
    assert decide(combine([clear, clear, clear], "any")) == HOLDS
    against = one_sample([-1.0, -1.1, -0.9, -1.05, -0.95], "greater")
    assert decide(combine([clear, clear, against], "all")) == OPPOSITE


@pytest.mark.parametrize(
    "how, parts, word, p",
    [
        ("all", [(0.04, 1), (0.05, 1)], HOLDS, 0.05),  # unadjusted: intersection-union
        ("all", [(0.001, 1), (0.06, 1)], OPEN_FOR, 0.06),
        ("all", [(0.001, 1), (1, 0.02)], OPPOSITE, 1),  # 0.04 after Holm
        ("all", [(0.001, 1), (1, 0.03)], OPEN_AGAINST, 1),  # 0.06 after Holm
        ("any", [(0.02, 1), (1, 0.001)], HOLDS, 0.04),
        ("any", [(0.03, 1), (1, 0.001)], OPEN_FOR, 0.06),
        ("any", [(1, 0.04), (1, 0.05)], OPPOSITE, 1),
        ("any", [(1, 0.001), (1, 0.06)], OPEN_AGAINST, 1),
    ],
)
def test_combine(how, parts, word, p):
    """Parts of which no size was stated."""
    found = combine([part(*q) for q in parts], how)
    assert decide(found) == word and found.p == pytest.approx(p)
    # the opposite claim has the opposite verdict under the opposite combination
    opposite = combine([part(*q).opposite for q in parts], "any" if how == "all" else "all")
    turned = {HOLDS: OPPOSITE, OPPOSITE: HOLDS, OPEN_FOR: OPEN_AGAINST, OPEN_AGAINST: OPEN_FOR}
    assert decide(opposite) == turned[word]


HELD, SMALL_HELD = (0.01, 1, 1), (0.01, 1, 0.001)  # p_for, p_against, p_small


@pytest.mark.parametrize(
    "parts, word",
    [
        ([HELD, HELD], HOLDS),
        ([(0.01, 1, 0.05)], HOLDS_SMALLER),  # alone it is not adjusted
        ([HELD, (0.01, 1, 0.025)], HOLDS_SMALLER),  # if one part is: 0.05 after Holm over the sizes
        ([HELD, (0.01, 1, 0.026)], HOLDS),  # 0.052
        ([(0.01, 1, 0.03), (0.01, 1, 0.03)], HOLDS),  # 0.06 and 0.06
        ([HELD, (0.2, 1, 0.02)], TOO_SMALL),  # 0.04 after Holm
        ([HELD, (0.2, 1, 0.03)], OPEN_FOR),  # 0.06
        ([(0.2, 1, 0.03)], TOO_SMALL),  # alone it is not adjusted
        ([HELD, (1, 0.001, 0.04)], TOO_SMALL),  # one test: too small before opposite
        ([HELD, (1, 0.001, 0.051)], OPPOSITE),
        ([(0.2, 1, 0.001), (1, 0.02, 1)], OPPOSITE),  # two tests: opposite before too small
        ([(1, 0.001, 0.04), (1, 0.02, 1)], OPPOSITE),
        ([(0.2, 1, 0.02), (1, 0.06, 1)], TOO_SMALL),  # the opposite is not shown
        ([(0.2, 1, 0.02), (1, 0.04, 1)], OPPOSITE),  # Holm over min(p_against, p_small): 0.04 and 0.04
        ([(0.2, 1, 0.03), (1, 0.04, 1)], OPEN_AGAINST),  # 0.06 and 0.06
        ([(0.2, 1, 0.02), (1, 0.03, 1), HELD], OPEN_AGAINST),  # 0.06, 0.06 and 1
        ([(0.2, 1, 1), (1, 0.3, 1), HELD], OPEN_AGAINST),  # leans against if a part that does not hold does
        ([(0.2, 1, 1), (0.3, 1, 1), HELD], OPEN_FOR),
    ],
)
def test_sizes_where_all_parts_are_needed(parts, word):
    assert decide(combine([part(*p) for p in parts], "all")) == word
    assert decide(combine([part(*p) for p in reversed(parts)], "all")) == word, "in any order"


@pytest.mark.parametrize(
    "others, word",
    [
        ([(0.2, 1, 1)], OPEN_FOR),
        ([(1, 0.3, 1)], OPEN_AGAINST),
        ([(1, 0.02, 1)], OPPOSITE),
        ([(0.2, 1, 0.02)], TOO_SMALL),
        ([], HOLDS_SMALLER),
    ],
)
def test_a_part_that_holds_and_is_small_never_refutes_its_claim(others, word):
    """The word is that of the other parts; with none, or others that hold, the claim holds and is smaller."""
    assert decide(combine([part(*p) for p in [SMALL_HELD, *others]], "all")) == word
    assert decide(combine([part(*p) for p in [SMALL_HELD, (0.01, 1, 1)]], "all")) == HOLDS_SMALLER
    few = combine([part(*SMALL_HELD), rule.untestable(ALPHA)], "all")
    assert decide(few) == FEW and few.p_small == 1.0


@pytest.mark.parametrize(
    "parts, word",
    [
        ([SMALL_HELD, (0.2, 1, 1)], HOLDS_SMALLER),  # every part that holds is
        ([SMALL_HELD, SMALL_HELD], HOLDS_SMALLER),
        ([SMALL_HELD, HELD], HOLDS),
        ([SMALL_HELD, (0.06, 1, 1)], HOLDS_SMALLER),
        ([HELD, (0.2, 1, 0.001), (1, 0.001, 1)], HOLDS),  # one is enough
        ([(0.2, 1, 0.05), (0.3, 1, 0.04)], TOO_SMALL),  # unadjusted: each must be
        ([(0.2, 1, 0.051), (0.3, 1, 0.04)], OPEN_FOR),
        ([(0.2, 1, 0.05), (1, 0.05, 1)], TOO_SMALL),  # not all are opposite
        ([(1, 0.05, 1), (1, 0.05, 1)], OPPOSITE),
        ([(1, 0.05, 0.04), (1, 0.05, 1)], TOO_SMALL),  # one of them is shown to be small, so not all are opposite
        ([(1, 0.05, 1), (1, 0.051, 1)], OPEN_AGAINST),
        ([(0.2, 1, 0.001), (0.2, 1, 1)], OPEN_FOR),
        ([(0.2, 1, 1), (1, 0.001, 1)], OPEN_FOR),  # leans against only if every part does
        ([(0.03, 1, 0.001), (0.3, 1, 0.001)], TOO_SMALL),  # 0.06 after Holm, so that it does not hold
    ],
)
def test_sizes_where_one_part_is_enough(parts, word):
    assert decide(combine([part(*p) for p in parts], "any")) == word
    assert decide(combine([part(*p) for p in reversed(parts)], "any")) == word, "in any order"


def test_combine_picks_a_part_whose_two_p_agree():
    """The part with the smaller t p fails its exact test; the other passes both."""
    parts = [evidence(0.001, 1, 0.2), evidence(0.02, 1, 0.03)]
    found = combine(parts, "any")
    assert (found.p_for, found.exact_for) == (0.02, 0.03) and decide(found) == HOLDS  # Holm: 0.002, 0.02
    assert decide(combine(parts[:1], "any")) == OPEN
    against = combine([e.opposite for e in parts], "all")  # the first refutes nothing: 0.02 becomes 0.04
    assert (against.p_against, against.exact_against) == pytest.approx((0.04, 0.03)) and decide(against) == OPPOSITE


def test_combinations_combine():
    weak, strong, wrong = part(0.2), part(0.01), part(1, 0.01)
    either = combine([weak, strong], "any")  # 0.02
    assert decide(combine([strong, either], "all")) == HOLDS
    assert decide(combine([strong, combine([wrong, wrong], "any")], "all")) == OPPOSITE
    assert decide(combine([strong, combine([wrong, weak], "any")], "all")) == OPEN_FOR
    assert decide(combine([strong, combine([wrong, part(1, 0.2)], "any")], "all")) == OPEN_AGAINST


def test_a_claim_within_a_claim_carries_its_size():
    small, strong, wrong = part(0.2, p_small=0.01), part(0.01), part(1, 0.01)
    inner = combine([small, strong], "all")  # too small: 0.02 after its own Holm
    assert (decide(inner), inner.p_small) == (TOO_SMALL, pytest.approx(0.02))
    assert decide(combine([inner, strong], "all")) == TOO_SMALL  # 0.04 after the outer one
    assert decide(combine([inner, strong, strong], "all")) == OPEN_FOR  # 0.06
    both = combine([small, wrong, strong], "all")
    assert (decide(both), both.p_small) == (OPPOSITE, 1.0)  # and it is the opposite that is handed on
    assert both.p_against == pytest.approx(0.03) and decide(combine([both, part(1, 0.05)], "any")) == OPPOSITE
    assert decide(combine([combine([part(*SMALL_HELD), small], "any"), strong], "all")) == HOLDS_SMALLER


def test_the_shape_of_a_peak_has_no_size_of_its_own():
    """Curvature, some point above the first, some above the last: nothing is stated of them, so none is too small; what
    is known of the height stands in for it."""
    up, flat, down = part(0.001), part(0.5), part(1, 0.001)

    def shape(curvature, over_first, over_last):
        return combine([curvature, combine(over_first, "any"), combine(over_last, "any")], "all")

    words = {
        "peak": decide(shape(up, [up, flat], [flat, up])),
        "dip": decide(shape(down, [down, down], [down, down])),
        "rise": decide(shape(flat, [up, up], [down, down])),
        "level": decide(shape(flat, [flat, flat], [flat, flat])),
    }
    assert words == {"peak": HOLDS, "dip": OPPOSITE, "rise": OPPOSITE, "level": OPEN_FOR}
    for found in (shape(up, [up], [up]), shape(down, [down], [down]), shape(flat, [flat], [flat])):
        assert found.p_small == 1.0
    assert shape(flat, [up, up], [down, down]).p_against == pytest.approx(0.003)  # after Holm over the three


def word_of_parts(words, how):
    """What the words of its parts make of a claim, as the rule is told in words; OPEN: whichever way it leans."""
    enough, all_against = any if how == "any" else all, all(w in AGAINST for w in words)
    if enough(w in FOR for w in words):
        held = [w for w in words if w in FOR]
        return HOLDS_SMALLER if (HOLDS_SMALLER in held if how == "all" else HOLDS not in held) else HOLDS
    if how == "all" and {*words} & {*AGAINST}:
        return OPPOSITE if OPPOSITE in words else TOO_SMALL
    if how == "any" and all_against:
        return OPPOSITE if {*words} == {OPPOSITE} else TOO_SMALL
    return FEW if FEW in words else OPEN


@pytest.mark.parametrize("how", ["all", "any"])
def test_a_claim_says_what_the_words_of_its_parts_say(how):
    """The words that stand beside it (`rule.fair`), for 3000 claims of one to three parts with all kinds of p."""
    rng = np.random.default_rng(8)
    grid = (0.001, 0.02, 0.03, 0.04, 0.2)
    for _ in range(3000):
        parts = []
        for _ in range(rng.integers(1, 4)):
            p, small, exact = (float(rng.choice(v)) for v in (grid, (*grid, 1.0, 1.0), (0.03, 0.06)))
            for_it = evidence(p, 1.0, exact, 1.0, small, 1.0)
            against_it = evidence(1.0, p, 1.0, exact, small, -1.0)
            parts.append([for_it, against_it, rule.untestable(ALPHA)][rng.choice(3, p=[0.45, 0.45, 0.1])])
        word, words = decide(combine(parts, how)), [decide(e) for e in rule.fair(parts, how)]
        expected = word_of_parts(words, how)
        assert word == expected or (expected == OPEN and word in OPENS), (words, parts)


def test_combine_with_too_few_seeds_and_refusals():
    few, strong, wrong = rule.untestable(ALPHA), evidence(0.001), evidence(1, 0.001)
    assert decide(combine([strong, few], "all")) == FEW and decide(combine([wrong, few], "all")) == OPPOSITE
    assert decide(combine([part(0.2, p_small=0.001), few], "all")) == TOO_SMALL
    assert decide(combine([strong, few], "any")) == HOLDS and decide(combine([wrong, few], "any")) == FEW
    assert decide(combine([part(0.2, p_small=0.001), few], "any")) == FEW
    with pytest.raises(ValueError, match="'most'"):
        combine([strong], "most")
    with pytest.raises(ValueError, match="one alpha"):
        combine([strong, Evidence(0.1, 0.1, 0, 0, 0.01)], "all")
    with pytest.raises(ValueError, match="one alpha"):
        combine([], "all")


# --- on planted effects


@designs
def test_one_difference(kind, n):
    """Observed: null 0.005 to 0.04 each; 3 sd holds 0.96 (t3, 5 seeds) to 1; reversed is opposite as often and never
    holds."""
    d = noise(kind, (SAMPLES, n))
    null, true, reverse = (rates([decide(one_sample(x + e, "greater")) for x in d]) for e in (0, 3, -3))
    assert null[HOLDS] <= WRONG and null[OPPOSITE] <= WRONG and null[HOLDS] + null[OPPOSITE] <= WRONG
    assert null[HOLDS] + null[OPPOSITE] > 0  # a rule that never speaks would pass the rest
    assert true[HOLDS] >= 0.93 and true[OPPOSITE] == 0
    assert reverse[OPPOSITE] >= 0.93 and reverse[HOLDS] == 0


@designs
def test_equivalence(kind, n):
    """Margin 3 sd. Observed: no difference holds 0.96 to 1, 6 sd is opposite 0.97 to 1; at the margin 0.03 to 0.06
    hold."""
    d = noise(kind, (SAMPLES, n), seed=1)
    none, margin, far = (rates([decide(equivalence(x + e, 3)) for x in d]) for e in (0, 3, -6))
    assert none[HOLDS] >= 0.94 and none[OPPOSITE] == 0
    assert far[OPPOSITE] >= 0.94 and far[HOLDS] == 0
    assert 0 < margin[HOLDS] <= WRONG and margin[OPPOSITE] <= WRONG


# how, effects of three parts, verdict: the word with its least rate, or OPEN where words must stay rare
COMPOSITE = [
    ("all", (3, 3, 3), HOLDS, 0.85),  # 0.89 to 1
    ("all", (3, 3, 0), OPEN, 0.9),  # the hardest claim that is not true: 0.015 to 0.045 hold
    ("all", (0, 0, 0), OPEN, 0.9),  # 0.005 to 0.03 are opposite
    ("all", (3, 3, -3), OPPOSITE, 0.85),  # 0.94 to 1
    ("any", (3, 0, 0), HOLDS, 0.85),  # 0.915 to 1
    ("any", (0, 0, 0), OPEN, 0.9),  # 0.01 to 0.035 hold
    ("any", (-3, -3, 0), OPEN, 0.9),  # 0.005 to 0.03 are opposite
    ("any", (-3, -3, -3), OPPOSITE, 0.85),  # 0.905 to 1
]


@designs
@pytest.mark.parametrize("shared", [0.0, 0.8])
def test_claims_of_three_parts(kind, n, shared):
    """Parts independent, or correlated 0.8 (metrics of the same runs are). Rates observed over 200 samples."""
    samples = 120
    wrong = ALPHA + 3 * math.sqrt(ALPHA * (1 - ALPHA) / samples)
    own, common = noise(kind, (samples, 3, n), 2), noise(kind, (samples, 1, n), 3)
    d = math.sqrt(1 - shared) * own + math.sqrt(shared) * common
    at = {e: [[one_sample(x + e, "greater") for x in sample] for sample in d] for e in (-3, 0, 3)}
    for how, effects, word, least in COMPOSITE:
        parts = [[at[e][i][j] for j, e in enumerate(effects)] for i in range(samples)]
        found = rates([decide(combine(p, how)) for p in parts])
        case = (how, effects, found)
        assert sum(found[w] for w in (OPENS if word == OPEN else (word,))) >= least, case
        if word == OPEN:
            assert found[HOLDS] <= wrong and found[OPPOSITE] <= wrong, case
        else:
            assert found[OPPOSITE if word == HOLDS else HOLDS] == 0, case


@designs
def test_holm_keeps_the_error_rate_of_a_family(kind, n):
    """Five contrasts, none true: any "holds" among them after Holm; after it 0.015 to 0.03, without it 0.075 to
    0.125."""
    d = noise(kind, (200, 5, n), 4)
    families = [[one_sample(x, "greater") for x in sample] for sample in d]
    after = np.mean([any(decide(e) == HOLDS for e in adjusted(f)) for f in families])
    before = np.mean([any(decide(r) == HOLDS for r in f) for f in families])
    assert after <= ALPHA + 3 * math.sqrt(ALPHA * (1 - ALPHA) / 200) and before > after


# --- with a stated effect: words that can refute (`many` is one_sample and equivalence, see tests/test_paired.py)

SIZED = 1000
RARE = ALPHA + 3 * math.sqrt(ALPHA * (1 - ALPHA) / SIZED)  # 0.071
sized = pytest.mark.parametrize("kind, n", [("normal", 5), ("normal", 8), ("t3", 5), ("t3", 8)])
stated_effects = pytest.mark.parametrize("stated", [1.0, 3.0])


@sized
@stated_effects
def test_words_about_a_stated_effect_are_rarely_wrong(kind, n, stated):
    """One test of an effect that is as stated, absent, half of it, reversed. Observed of wrong words: 0.033 to 0.053,
    0.023 to 0.048, 0 to 0.001, and reversed 0 for the claim and 0.045 to 0.065 "too small"."""
    d = noise(kind, (SIZED, n), 5)

    def words(truth):
        return [decide(e) for e in many(d + truth * stated, "greater", stated)]

    true, null, half, reverse = (words(truth) for truth in (1, 0, 0.5, -1))
    assert share(true, (*AGAINST, HOLDS_SMALLER)) <= RARE, rates(true)
    assert share(null, (*FOR, OPPOSITE)) <= RARE, rates(null)
    assert share(half, (OPPOSITE,)) <= RARE, rates(half)
    assert share(reverse, FOR) <= RARE and share(reverse, (TOO_SMALL,)) <= RARE, rates(reverse)
    if stated == 3:  # a rule that never speaks would pass the rest
        assert share(true, FOR) > 0.93 and share(null, AGAINST) > 0.93 and share(reverse, AGAINST) > 0.93
        assert share(half, (HOLDS_SMALLER, TOO_SMALL)) > 0.8
        assert 0.01 < share(true, (*AGAINST, HOLDS_SMALLER))


@pytest.mark.parametrize("shared", [0.0, 0.8])
@pytest.mark.parametrize("parts", [1, 2, 3, 5])
def test_parts_as_stated_are_rarely_called_smaller(parts, shared):
    """Every part exactly as stated and shown to hold (5 sd, 8 seeds), independent or correlated .8. Observed, for 1, 2,
    3 and 5 parts: 0.05 each, and 0.05, 0.04, 0.035, 0.03; without Holm over the sizes up to 0.23 and 0.12."""
    samples, stated = 4000, 5.0
    own, common = noise("normal", (samples, parts, 8), 9), noise("normal", (samples, 1, 8), 10)
    d = math.sqrt(1 - shared) * own + math.sqrt(shared) * common
    judged = zip(*(many(d[:, j] + stated, "greater", stated) for j in range(parts)))
    words = [decide(combine(p, "all")) for p in judged]
    assert share(words, FOR) > 0.99
    assert share(words, (HOLDS_SMALLER,)) <= ALPHA + 3 * math.sqrt(ALPHA * (1 - ALPHA) / samples), rates(words)


# how, truths of three parts in stated effects, words wrong of them, words right of them, least rate of these at 3 sd
CLAIMS = [
    ("all", (1, 1, 1), AGAINST, FOR, 0.85),  # wrong 0 to 0.041, right 0.89 to 1
    ("all", (0, 0, 0), FOR, AGAINST, 0.93),  # wrong 0 to 0.003, right 0.97 to 1
    ("all", (1, 1, 0), FOR, AGAINST, 0.88),  # the hardest claim that is not true: wrong 0.003 to 0.028
    ("all", (0.5, 0.5, 0.5), (OPPOSITE,), (HOLDS_SMALLER, TOO_SMALL), 0.7),  # wrong 0 to 0.001
    ("all", (-1, -1, -1), FOR, (OPPOSITE,), 0.93),  # wrong 0
    ("all", (1, 1, -1), FOR, (OPPOSITE,), 0.85),  # wrong 0 to 0.001
    ("any", (1, 1, 1), AGAINST, FOR, 0.93),  # wrong 0 to 0.019
    ("any", (1, 0, 0), AGAINST, FOR, 0.9),  # wrong 0 to 0.021
    ("any", (1, -1, -1), AGAINST, FOR, 0.9),  # the hardest claim that is true: wrong 0 to 0.056
    ("any", (0, 0, 0), FOR, AGAINST, 0.85),  # wrong 0.013 to 0.032
    ("any", (0, -1, -1), FOR, AGAINST, 0.85),  # wrong 0.003 to 0.015
    ("any", (0.5, 0.5, 0.5), (OPPOSITE,), (HOLDS_SMALLER, TOO_SMALL), 0.55),  # wrong 0
    ("any", (-1, -1, -1), FOR, (OPPOSITE,), 0.75),  # wrong 0
]


@sized
@stated_effects
@pytest.mark.parametrize("shared", [0.0, 0.8])
def test_words_about_claims_of_three_stated_effects_are_rarely_wrong(kind, n, stated, shared):
    """Parts independent, or correlated 0.8. Rates observed: beside each claim."""
    own, common = noise(kind, (SIZED, 3, n), 6), noise(kind, (SIZED, 1, n), 7)
    d = math.sqrt(1 - shared) * own + math.sqrt(shared) * common
    truths = {truth for _, effects, *_ in CLAIMS for truth in effects}
    at = {t: [many(d[:, j] + t * stated, "greater", stated) for j in range(3)] for t in truths}
    for how, effects, wrong, right, least in CLAIMS:
        parts = zip(*(at[t][j] for j, t in enumerate(effects)))
        words = [decide(combine(p, how)) for p in parts]
        assert share(words, wrong) <= RARE, (how, effects, rates(words))
        if stated == 3:
            assert share(words, right) >= least, (how, effects, rates(words))
