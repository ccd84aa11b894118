"""The calibration table: its shares against the assay's, its errors against alpha, and what it cannot simulate."""

import math
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from tests.claims_made import FIFTH, arms, bare, claim, contrast
from tests.test_sensitivity import SHARE, counted, of_size
from workbook.ledger import __main__ as command
from workbook.ledger import calibration, sensitivity
from workbook.ledger.contrast import measure

KNOWN = {
    "Z01": claim(contrast()),
    "Z02": claim(contrast(), contrast(name="again")),
    "Z03": claim(SHARE),
    "Z04": claim(FIFTH),
    "Z05": claim(contrast(direction="equal", effect=None, margin=0.1)),
}
WORLDS, SIZE = 400, 1.2  # the stated effect in standard deviations of a seed
MOST = 0.05 + 3 * math.sqrt(0.05 * 0.95 / WORLDS)


@pytest.fixture(scope="module")
def rows():
    return calibration.rows_of(KNOWN, bare(counted(of_size(SIZE))), list(KNOWN), seeds=(8, 16), worlds=WORLDS)


def test_a_row_is_what_the_rule_says_of_simulated_worlds(rows):
    assert [(row["id"], row["n"]) for row in rows] == [(z, n) for z in ("Z01", "Z02", "Z04", "Z05") for n in (8, 16)]
    first, made = rows[0], [measure(KNOWN["Z01"].tests[0], KNOWN["Z01"], bare(counted(of_size(SIZE))), "test")]
    own = sensitivity.assay(KNOWN["Z01"], made, [8], WORLDS)
    assert (first["holds_stated"], first["refuted_nothing"]) == (own.holds, own.refuted) and 0.5 < own.holds < 1
    assert first["holds_stated_se"] == pytest.approx(math.sqrt(own.holds * (1 - own.holds) / WORLDS))
    assert (first["worlds"], first["seed"]) == (WORLDS, sensitivity.SEED)
    assert 0 < rows[2]["smaller_stated"] < first["smaller_stated"], "the same test twice: Holm over the two sizes"
    assert rows[2]["holds_stated"] == first["holds_stated"]


def test_false_words_are_rare_and_right_ones_come_with_seeds(rows):
    for row in rows:
        assert all(row[key] <= MOST for key in calibration.ERRORS), row
    for few, more in zip(rows[::2], rows[1::2]):
        assert few["holds_stated"] < more["holds_stated"] and few["refuted_nothing"] < more["refuted_nothing"]
    (threshold,) = (row for row in rows if row["id"] == "Z04" and row["n"] == 16)
    assert threshold["smaller_stated"] == 0 and threshold["refuted_nothing"] == pytest.approx(
        threshold["holds_stated"], abs=0.06
    )


def test_the_page_says_its_errors_and_what_it_leaves_out(rows):
    said = calibration.page(rows, "mini", 5, ["Z03"])
    assert "more than three standard errors: none;" in said and "was not made: Z03." in said
    cells = next(line for line in said.splitlines() if line.startswith("| Z01 |")).split("|")
    assert cells[2].strip() == f"{rows[0]['holds_stated']:.3f} / {rows[1]['holds_stated']:.3f}"
    assert "At 8 and 16 seeds" in said and "*How to read this.*" in said and "{" not in said
    wrong = [{**rows[0], "holds_nothing": 0.2}, *rows[1:]]
    assert "Z01 at 8 (holds, nothing there: 0.200); the largest share of a false word is 0.200" in calibration.page(
        wrong, "mini", 5, []
    )
    assert "No claim of this profile can be simulated" in calibration.page([], "mini", 5, ["Z03"])


def test_a_design_is_judged_at_its_looks_by_their_levels(monkeypatch):
    """The last word is that of `sequence`; looked at twice by the level of one look a claim errs more often."""
    size, nothing = bare(counted(of_size(SIZE))), sensitivity.NOTHING
    rows = calibration.rows_of(KNOWN, size, ["Z01"], seeds=(8,), worlds=WORLDS, at=(8, 16))
    assert [row["n"] for row in rows] == [8, calibration.LOOKS]
    made = [measure(KNOWN["Z01"].tests[0], KNOWN["Z01"], size, "test")]
    last = [word for word, _ in sensitivity.sequence(KNOWN["Z01"], made, (8, 16), nothing, WORLDS)]
    assert rows[1]["holds_nothing"] == sensitivity.share(last, calibration.FOR)
    assert rows[1]["holds_stated"] > rows[0]["holds_stated"] and all(rows[1][key] <= MOST for key in calibration.ERRORS)
    said = calibration.page(rows, "settle", 5, [])
    assert "At 8 seeds, and as the design judges, at its looks:" in said and "last word at the design's looks" in said
    wrong = [rows[0], {**rows[1], "holds_nothing": 0.2}]
    assert "Z01 at its looks (holds, nothing there: 0.200)" in calibration.page(wrong, "settle", 5, [])
    monkeypatch.setattr(sensitivity, "levels", lambda looks: [0.05 for _ in looks])
    (_, often) = calibration.rows_of(KNOWN, size, ["Z01"], seeds=(8,), worlds=WORLDS, at=(8, 16))
    assert often["holds_nothing"] > rows[1]["holds_nothing"]


def test_the_command_writes_both(tmp_path, monkeypatch, capsys):
    params = SimpleNamespace(
        folder=tmp_path, root=".", profile="mini", claims=("Z01", "Z03"), all_runs=arms(0.3), reports_folder=tmp_path
    )
    monkeypatch.setattr(command, "profile_of", lambda path: params)
    monkeypatch.setattr(calibration.checks, "load", lambda path: KNOWN)
    monkeypatch.setattr(calibration.judge, "check_listed", lambda *given: None)
    monkeypatch.setattr(calibration.tables, "load", lambda *given: bare(counted(of_size(SIZE))))
    monkeypatch.setattr(calibration, "SEEDS", (8,))
    write = calibration.write
    monkeypatch.setattr(calibration, "write", lambda params: write(params, worlds=50))
    assert command.main(["calibrate", "params.yaml"]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "calibration.md")
    table = pd.read_csv(tmp_path / "calibration.csv")
    assert list(table.columns[:6]) == ["id", "n", "worlds", "seed", "holds_stated", "holds_stated_se"]
    assert set(table.id) == {"Z01"} and set(table.worlds) == {50}
    first = (tmp_path / "calibration.csv").read_bytes()
    command.main(["calibrate", str(Path("params.yaml"))])
    assert (tmp_path / "calibration.csv").read_bytes() == first, "the same table gives the same bytes"


def test_what_the_page_of_the_design_says_of_its_looks_is_in_the_table():
    root = Path(__file__).resolve().parents[1]
    told = " ".join((root / "docs/sure/design.md").read_text(encoding="utf-8").split())
    table = pd.read_csv(root / "reports/settle/calibration.csv").query("n == 'looks'").set_index("id")
    errors = table[list(calibration.ERRORS)].drop(index="P18").to_numpy()
    assert f"false in at most {100 * errors.max():.1f} % of the simulated worlds, but for P18" in told
    share, se = table.loc["P18", ["refuted_stated", "refuted_stated_se"]]
    assert f"refuted in {100 * share:.1f} % (± {100 * se:.1f})" in told
    holds, refuted = (table.holds_stated >= 0.8).sum(), (table.refuted_nothing >= 0.8).sum()
    assert f"{holds} of the {len(table)} claims hold in" in told and f"and {refuted} are refuted" in told
