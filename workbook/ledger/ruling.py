"""The rule in words, what had been seen when it was written, the words it gives, and the hash that fixes it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from workbook.ledger.claim import Claim, Test
from workbook.ledger.published import YARDSTICKS
from workbook.results.measures import MEASURES
from workbook.statistics import paired
from workbook.statistics.rule import AGAINST, FOR, OPENS

AWAITING, ELSEWHERE = "awaiting", "not testable here"
WORDS = (*FOR, *AGAINST, *OPENS, AWAITING, ELSEWHERE)
TURNS = " (turns at half the budget)"
RULE = (
    "The unit is the seed. A test makes one number per seed from the conditions it names, on the test prompts at the "
    "final checkpoint. It holds if the mean lies in the claimed direction, the two-sided t test gives p <= alpha and "
    "the exact one-sided sign-flip test too; it holds, but smaller than stated, if two one-sided t tests also put "
    "the effect within plus or minus the one stated beforehand. It is too small if it does not hold and they do so: "
    "an effect of the stated size is excluded both ways. It is opposite if what holds asks for is true of the other "
    "direction and the effect is not shown to be too small. A claim of equality holds if two one-sided t tests put "
    "the difference within its margin, and is opposite if the difference is shown to lie beyond it. A test marked as "
    "a threshold sets a condition against a point between two others (more than a fifth of PPO's gain over the "
    "untrained model, say) and asks whether that is passed: its number is the distance from that threshold, of which "
    "no size is stated, so that it holds, or is opposite (the threshold is shown to be missed), or is open. "
    "Everything else is open and leans to where the mean lies; a mean of 0 leans nowhere. A spread is the standard "
    "deviation of a condition over its repetitions on one draw's models, and the logarithm of its ratio to another's "
    "is tested draw by draw, freed of the bias of few repetitions. What is the same number in every run (a judge "
    "that says 0 of all) is not compared. Shares of runs are compared by Fisher's exact test, and their difference "
    "is too small if each is shown to be below the stated one (exact binomial). A condition that is repeated with "
    "other random numbers counts elsewhere as the mean of those repetitions that have all that the test compares. A "
    "peak is tested by its curvature and by inner points above the first and above the last (its size is how far its "
    "middle rises above its ends), two orders of the same conditions by Kendall's tau within each seed (its mean "
    "over seeds against 0), two sweeps at an equal measured KL or, of masks, at an equal share of probability kept. "
    "A claim with several tests, all needed: it holds if each one holds, without adjustment (intersection-union), "
    "and is smaller than stated if one is, after Holm over the sizes of all; it is opposite, or else too small, if "
    "one test is, after Holm over the claim's own deciding tests, each with the smaller of its two p. Where any one "
    "is enough: it holds if one holds after Holm, and is refuted if each one is, opposite if all are. How many parts "
    "hold is said beside the word. Tests that stand beside take no part. Where so few seeds cannot reach alpha "
    "whatever they show, no test is made and the claim is not testable here. A contrast and a spread need all their "
    "conditions; trend, peak, matched, frontier, fraction and rank take those of their conditions that the profile "
    "lists, at least as many as the test says. A listed condition without results is an error; where a deciding test "
    "has no numbers for some seeds, because their runs diverged, the claim is open. Effects are in yardsticks: how "
    "far PPO without the KL penalty moves a metric from the untrained model (judges, drop and the score in training "
    "by how far it moves the score, KL while training by the KL; log-perplexity on human text always by the "
    "published .234 nats, as ours depends on the learning rate); in a world of its own (numbers, dates), whose "
    "models and scores are others, how far PPO as it stands there moves it from that world's untrained model. "
    "Intervals in yardsticks leave out the yardstick's own uncertainty; where its own 95 % interval over seeds "
    "includes 0, no test is made with it, and a claim that such a test decides is open. The same is done at half the "
    "training budget on the validation prompts; flagged are words for a claim turning into words against it or back, "
    "and a changed sign of a deciding effect that, at one of the two, is shown to have it (holds or is opposite). "
    'The p of a claim is that of "holds"; beside each "holds" stands its q (Benjamini-Yekutieli, over the p of all '
    "claims that the ledger tests), which changes no word. In a design with several looks that p is stage-wise: what "
    "the looks before have spent of alpha, and the chance to come as far at this one. There, a draw in which a run "
    "ends in an error, and again when it is tried once more, is replaced by the next one that is registered; a run "
    "that diverges is a result."
)
WRITTEN = (
    "The tests of P01 to P05 were written after earlier runs of these conditions had been seen (an earlier report, "
    "of the same seeds), so they are no predictions. The tests of all other claims were written before any of their "
    "own runs; the untrained model, the KL runs and PPO in its own nucleus, which some of them compare with, had "
    "been seen. Those of P38, P41 and C01 to C18 were written before any other run of their conditions on seeds 1 to "
    "5; their learners' settings were chosen by trial on draw 0. In the world of numbers the learners without a mask "
    "or with NLPO's (PPO, also with the reward at the end, NLPO, A2C, GRPO, TRPO) had been seen on draws 1 to 5 in "
    "an earlier trial, whose code was written anew since. The rule's words (smaller than stated, too small, "
    "opposite, open; a threshold passed or missed) were written after the results of all profiles had been seen, and "
    "so, later the same day, were the tests of instability (P05, P21, P37: within a draw), those of P09 (the mean of "
    "both learners), the roles of parts that nothing could decide (P03, P24), DQN by the judge (C09, C10, C13, C14), "
    "and the stated effects, which are the published ones and no longer half of them. All of this before the first "
    "draw of the design `settle`, whose words it is meant for. A hostile reader's review came between: effects on "
    "human text are in nats since (O01 states .1 nats), P04, P25 and P40 state what was published for reviews, P24's "
    "part on greedy decoding stands beside, and P37 has six repetitions."
)


def rule_hash(claims: Mapping[str, Claim]) -> str:
    """SHA-256, hex, of the rule, alpha, every claim's tests and the published numbers that state their effects; prose
    and names of tests are not in it. The first 12 digits are shown.

    Of what was read alone, nothing computed: how a processor rounds a stated effect is no part of it.
    """
    defaults = {name: Test.model_fields[name].default for name in ("role", "decoding", "yardstick", "threshold")}
    tests = {
        name: {
            "decided_by": claim.decided_by,
            "tests": [t.model_dump(mode="json", exclude={"name"}, exclude_defaults=True) for t in claim.tests],
            "compared": {m: _compared(m) for t in claim.tests for m in t.metrics},
            "published": {row: claim.published[row] for t in claim.tests for row in t.published},
        }
        for name, claim in claims.items()
        if claim.tests
    }
    fixed = {"rule": RULE, "alpha": paired.ALPHA, "yardsticks": YARDSTICKS, "defaults": defaults, "claims": tests}
    return hashlib.sha256(json.dumps(fixed, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _compared(metric: str) -> list[str | float | None]:
    """In what a metric's effects are counted, and by what size."""
    return [MEASURES[metric].compared, MEASURES[metric].yardstick]
