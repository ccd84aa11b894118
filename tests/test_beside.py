"""A registered design's words beside the effects of a profile that runs its first draws."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from tests.test_ledger import component, row
from workbook.ledger import beside, page
from workbook.stages import digests

DESIGN = [
    row("P01", "too small", component("score", "too small"), look=8, settled=True),
    row("P02", "open", component("trend", "open"), look=16, settled=False),
]
EFFECTS = [  # of four seeds: effects, and no word
    row("P01", "not testable here", component("score", "too few seeds", effect=0.25), seeds=4, lacks=["5 seeds"]),
    row("P02", "not testable here", component("trend", "too few seeds"), seeds=4),
    row("P03", "not testable here", seeds=4, lacks=["the run x"]),  # its runs are not here
    row("P04", "not testable here", component("score", "too few seeds"), seeds=4),  # the design has not got it
]  # fmt: skip


def params(folder, seeds):
    return SimpleNamespace(reports_folder=folder / "mini", seeds=seeds)


@pytest.fixture
def reports(tmp_path):
    beside.keep("other", [7, 8, 9], DESIGN, tmp_path)
    beside.keep("settled", [1, 2, 3, 4, 5, 6], DESIGN, tmp_path)
    return tmp_path


def test_the_first_draws_of_a_design_get_its_words(reports):
    rows = beside.put(EFFECTS, params(reports, (1, 2, 3, 4)))
    assert [beside.word(r) for r in rows] == [
        "too small (settled, 8 draws)",
        "open (settled, 16 draws, not settled)",
        "",
        "",
    ]
    said = beside.said(rows)
    assert said.startswith("4 draws give effects and no words (5 are the fewest).") and "on 8 to 16 draws" in said
    assert said.endswith("of the 2 claims here: 1 too small; 1 open.")
    shown = page.decided(rows)
    assert list(shown.verdict)[:2] == ["**too small (settled, 8 draws)**", "**open (settled, 16 draws, not settled)**"]
    assert list(shown.alone)[:2] == ["too small (settled)", "open (settled)"] and shown["here [95 %]"][0].startswith(
        "+0.25"
    )
    assert page.answer(rows) == said


@pytest.mark.parametrize(
    "seeds",
    [
        (2, 3, 4, 5),  # not its first
        (1, 2, 4, 3),  # in another order
        (1, 2, 3, 4, 5),  # enough for words of their own
    ],
)
def test_other_seeds_get_none(reports, seeds):
    rows = beside.put(EFFECTS, params(reports, seeds))
    assert not any("registered" in r for r in rows) and beside.said(rows) == ""


def test_a_claim_with_a_word_of_its_own_keeps_it(reports):
    rows = beside.put([row("P01", "holds", component("score"))], params(reports, (1, 2, 3, 4)))
    assert "registered" not in rows[0]


def test_without_a_design_nothing_is_said(tmp_path):
    assert beside.put(EFFECTS, params(tmp_path, (1, 2, 3, 4))) == EFFECTS


def test_a_designs_words_are_put_beside_those_of_others(reports):
    beside.keep("settled", [1, 2, 3, 4], DESIGN[:1], reports)
    found = json.loads((reports / "registered.json").read_text())
    assert {name: list(design["claims"]) for name, design in found.items()} == {
        "other": ["P01", "P02"],
        "settled": ["P01"],
    }


def test_a_report_is_made_again_when_the_design_says_something_else(reports):
    values = {"root": ".", "claims": ["P01"], "seeds": [1, 2, 3, 4]}
    folder = reports.parent
    reports.rename(folder / "reports")
    before = digests.registered(values, folder)
    assert before and not digests.registered({**values, "seeds": [3, 4]}, folder)
    assert not digests.registered({**values, "claims": []}, folder)
    beside.keep("settled", [1, 2, 3, 4], DESIGN[1:], folder / "reports")
    assert digests.registered(values, folder) != before
