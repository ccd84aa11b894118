"""Supervised training at other rates: the committed page, the rule that it states, and what is trained."""

from __future__ import annotations

from tests.executed import ROOT
from workbook.runs import checks
from workbook.stages import supervised_rate
from workbook.store.tables import read_table


def test_the_committed_page_is_of_the_committed_table():
    table = read_table(supervised_rate.OUT)
    assert supervised_rate.OUT.with_suffix(".md").read_text() == supervised_rate.page(table)
    free = [(row["seed"], row["learning_rate"]) for row in table if row["texts"] == supervised_rate.FREE]
    assert free == [(seed, rate) for seed in (6, 7) for rate in supervised_rate.RATES]


def row(rate: float, seed: int, texts: str = supervised_rate.FREE, **said: float) -> dict:
    """A row of a table, without a change but for what is said."""
    return {"learning_rate": rate, "seed": seed, "texts": texts, **{m: 0.5 for m in supervised_rate.METRICS}, **said}


def test_the_page_names_the_best_of_the_rates_that_both_limits_allow_and_the_lowest_loss():
    untrained = [row(0.0, s, t) for s in (6, 7) for t in (supervised_rate.FREE, supervised_rate.FIXED)]
    rates = [row(1e-5, s, score=0.6, held_out_loss=0.4) for s in (6, 7)] + [row(1e-4, s, score=0.7) for s in (6, 7)]
    rates += [row(1e-3, s, score=0.9, human_log_perplexity=p) for s, p in ((6, 0.55), (7, 0.66))]  # 0.105 above
    said = supervised_rate.page([*untrained, *rates])
    assert said.count(": 0.0001.\n") == 2 and said.endswith("Lowest loss on held-out reviews: 1e-05.\n")
    assert "| 0.001 | 0.900, 0.900 | 0.500, 0.500 | 0.500, 0.500 | 0.550, 0.660 |" in said
    assert supervised_rate.page([*untrained, *rates[-2:]]).count(": none.\n") == 2


def test_all_but_the_rate_is_as_in_the_runs_that_words_are_about():
    pilot, counted = (checks.load(ROOT / "profiles" / name / "params.yaml") for name in ("reviews_pilot", "reviews"))
    runs = counted.learner_config("supervised")
    assert supervised_rate.condition(pilot, runs.learning_rate).config() == runs
    assert supervised_rate.condition(pilot, 1e-4).config() == runs.replace(learning_rate=1e-4)
    assert pilot.task.replace(test_prompts=counted.task.test_prompts) == counted.task
