"""Tests of the registered design's claims that only other profiles can make: which they are, and what they say."""

from __future__ import annotations

import shutil

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from tests.test_style import ROOT
from workbook.ledger import combine, further
from workbook.results.files import FURTHER


@pytest.fixture(scope="module")
def rows():
    return further.found(ROOT)


@pytest.fixture(scope="module")
def committed():
    return list(further.read(ROOT / "reports"))


def test_the_committed_table_is_what_the_committed_runs_say(rows, committed):
    assert len(committed) == len(rows) > 0
    for now, then in zip(rows, committed):
        assert {k: pytest.approx(v, abs=1e-9) if isinstance(v, float) else v for k, v in now.items()} == then


def test_a_test_is_here_where_the_design_lacks_runs_or_points_and_not_where_it_has_all(rows):
    by = {(row["claim"], row["name"]): row for row in rows}
    assert by["P18", "best inside the range"]["in_design"] == "opposite"  # its grid begins at 0.3
    assert by["P18", "best inside the range"]["conditions"].split()[0] == "nlpo_p_010"
    assert by["P09", "score against longer ppo"]["in_design"] == "not run here"
    assert ("P01", "ppo score") not in by  # the design has every run of it, the other profile too
    assert {row["in_design"] for row in rows if row["kind"] == "contrast"} == {"not run here"}  # of two runs, no more
    assert {row["profile"] for row in rows} == {"full", "follow_up"}  # mini has too few draws, imdb others


def test_a_difference_is_that_of_the_profiles_table(committed):
    row = next(r for r in committed if (r["claim"], r["name"]) == ("C09", "ppo learns at equal tokens"))
    first, second = row["conditions"].split()
    table = pd.read_csv(ROOT / "reports/follow_up/per_seed.csv.xz")
    table = table[(table.split == "test") & (table.decoding == "plain")]
    wide = table.pivot(index="seed", columns="condition", values=row["metric"])
    apart = (wide[first] - wide[second]).to_numpy()
    half = stats.t.ppf(0.975, len(apart) - 1) * apart.std(ddof=1) / np.sqrt(len(apart))
    assert (row["n"], row["difference"]) == (8, pytest.approx(apart.mean()))
    assert (row["low"], row["high"]) == (pytest.approx(apart.mean() - half), pytest.approx(apart.mean() + half))


def test_the_ledgers_page_leads_there_where_there_is_one(tmp_path):
    (tmp_path / "reports").mkdir()
    source = {"settle": ROOT / "reports/settle/claims/claims.json"}
    combine.combine(source, tmp_path / "reports")
    assert "further.md" not in (tmp_path / "reports/claims.md").read_text()
    shutil.copy(ROOT / "reports" / FURTHER, tmp_path / "reports")
    combine.combine(source, tmp_path / "reports")
    assert "(further.md)" in (tmp_path / "reports/claims.md").read_text()
