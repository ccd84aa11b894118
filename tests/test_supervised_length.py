"""Supervised policies decoded as long as all others: the committed page, and a run of it."""

from __future__ import annotations

from tests.built import given
from workbook.runs import experiment
from workbook.stages import supervised_length
from workbook.store.tables import read_table


def test_the_committed_page_is_of_the_committed_table():
    table = read_table(supervised_length.OUT)
    assert supervised_length.OUT.with_suffix(".md").read_text() == supervised_length.page(table)
    assert {row["condition"] for row in table} == {*supervised_length.CONDITIONS}


def test_a_policy_is_its_runs_and_is_decoded_both_ways(built, monkeypatch):
    asked, evaluate = [], supervised_length.evaluate_state
    spy = lambda *given: asked.append([one.min_new_tokens for one in given[-1]]) or evaluate(*given)
    monkeypatch.setattr(supervised_length, "evaluate_state", spy)
    params = given(built, "supervised")
    free, fixed = list(supervised_length.rows(params))[:2]
    T = params.config().max_new_tokens
    assert asked[0] == [0, T] and fixed["length"] == T
    assert (free["texts"], fixed["texts"]) == (supervised_length.FREE, supervised_length.FIXED)
    final = experiment.run_seed(params, free["seed"], {})
    ran = [row for row in read_table(final / "per_seed.csv") if (row["split"], row["decoding"]) == ("test", "plain")]
    assert {name: ran[0][name] for name in supervised_length.METRICS} == {m: free[m] for m in supervised_length.METRICS}
