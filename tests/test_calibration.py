"""The calibration table: its shares against the assay's, its errors against alpha, and what it cannot simulate."""

import json
import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy import stats as scipy_stats

from tests.claims_made import FIFTH, ROOT, arms, bare, claim, contrast, results
from tests.test_sensitivity import SHARE, counted, of_size
from workbook.ledger import __main__ as command
from workbook.ledger import calibration, checks, sensitivity, yardsticks
from workbook.ledger.claim import ClaimError
from workbook.ledger.contrast import measure
from workbook.runs.checks import load

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
    return calibration.rows_of(KNOWN, everywhere(bare(counted(of_size(SIZE)))), seeds=(8, 16), worlds=WORLDS)


def everywhere(results, names=KNOWN) -> dict:
    return dict.fromkeys(names, results)


def test_a_row_is_what_the_rule_says_of_simulated_worlds(rows):
    assert [(row["id"], row["n"]) for row in rows] == [(z, n) for z in ("Z01", "Z02", "Z04", "Z05") for n in (8, 16)]
    first, made = rows[0], [measure(KNOWN["Z01"].tests[0], KNOWN["Z01"], bare(counted(of_size(SIZE))), "test")]
    own = sensitivity.assay(KNOWN["Z01"], made, [8], WORLDS)
    assert (first["holds_stated"], first["refuted_nothing"]) == (own.holds, own.refuted) and 0.5 < own.holds < 1
    assert first["holds_stated_se"] == pytest.approx(math.sqrt(own.holds * (1 - own.holds) / WORLDS))
    assert (first["worlds"], first["seed"]) == (WORLDS, sensitivity.SEED)
    assert 0 < rows[2]["smaller_stated"] < first["smaller_stated"], "the same test twice: Holm over the two sizes"
    assert rows[2]["holds_stated"] == first["holds_stated"]


def test_a_claim_of_which_one_part_alone_is_just_false_is_as_false_as_that_part(rows):
    """The same test twice: where one passes with nothing there, the other, as stated, does by the same noise."""
    for one, two in zip(rows[:2], rows[2:4]):
        assert one[calibration.PART] == one["holds_nothing"] > 0, "of one part there is no other"
        assert two[calibration.PART] == one["holds_nothing"]
    anyone = KNOWN["Z02"].model_copy(update={"decided_by": "any"})
    (row,) = calibration.rows_of({"Z": anyone}, everywhere(bare(counted(of_size(SIZE))), ["Z"]), (8,), WORLDS)
    assert row[calibration.PART] == row["holds_nothing"], "true if one part is: false only with none"
    for name, level in (("Z04", 0.025), ("Z05", 0.05)):  # the threshold itself, and the margin, which errs most often
        for row in (row for row in rows if row["id"] == name):
            near = pytest.approx(level, abs=3 * math.sqrt(level * (1 - level) / WORLDS))
            assert row[calibration.PART] > row["holds_nothing"] and (row["n"] == 8 or row[calibration.PART] == near)


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
    said = calibration.page(rows, "mini", ["Z03"])
    assert "more than three standard errors: none;" in said and "was not made: Z03." in said
    cells = next(line for line in said.splitlines() if line.startswith("| Z01 |")).split("|")
    assert cells[2].strip() == f"{rows[0]['holds_stated']:.3f} / {rows[1]['holds_stated']:.3f}"
    assert "At 8 and 16 seeds" in said and "*How to read this.*" in said and "{" not in said
    wrong = [{**rows[0], "holds_nothing": 0.2}, *rows[1:]]
    assert "Z01 at 8 (holds, nothing there: 0.200); the largest share of a false word is 0.200" in calibration.page(
        wrong, "mini", []
    )
    assert "No claim of this profile can be simulated" in calibration.page([], "mini", ["Z03"])
    assert "the covariance over the 5 seeds" in said
    assert "the 5 or 32 seeds" in calibration.page([rows[0], {**rows[1], "own": 32}], "mini", [])


def test_a_design_is_judged_at_its_looks_by_their_levels(monkeypatch):
    """The last word is that of `sequence`; looked at twice by the level of one look a claim errs more often."""
    size, nothing = bare(counted(of_size(SIZE))), sensitivity.NOTHING
    one = everywhere(size, ["Z01"])
    rows = calibration.rows_of(KNOWN, one, seeds=(8,), worlds=WORLDS, at=(8, 16))
    assert [row["n"] for row in rows] == [8, calibration.LOOKS]
    made = [measure(KNOWN["Z01"].tests[0], KNOWN["Z01"], size, "test")]
    last = [word for word, _ in sensitivity.sequence(KNOWN["Z01"], made, (8, 16), nothing, WORLDS)]
    assert rows[1]["holds_nothing"] == sensitivity.share(last, calibration.FOR)
    assert rows[1]["holds_stated"] > rows[0]["holds_stated"] and all(rows[1][key] <= MOST for key in calibration.ERRORS)
    said = calibration.page(rows, "settle", [])
    assert "At 8 seeds, and as the design judges, at its looks:" in said and "last word at the design's looks" in said
    wrong = [rows[0], {**rows[1], "holds_nothing": 0.2}]
    assert "Z01 at its looks (holds, nothing there: 0.200)" in calibration.page(wrong, "settle", [])
    (_, strict) = calibration.rows_of(KNOWN, one, seeds=(8,), worlds=WORLDS, at=(8, 16), alpha=0.001)
    assert strict["holds_stated"] < rows[1]["holds_stated"]
    monkeypatch.setattr(sensitivity, "levels", lambda looks, alpha: [0.05 for _ in looks])
    (_, often) = calibration.rows_of(KNOWN, one, seeds=(8,), worlds=WORLDS, at=(8, 16))
    assert often["holds_nothing"] > rows[1]["holds_nothing"]


@pytest.mark.parametrize("many", [1, 4])
def test_a_noise_of_too_few_seeds_is_refused(many):
    """Of one draw every world would come out open, and the page would say that there are no errors."""
    few = everywhere(results({c: {"score": v["score"][:many]} for c, v in of_size(SIZE).items()}, (1, 2, 3, 4)[:many]))
    with pytest.raises(ClaimError, match=f"at least 5 seeds .* found {many} of Z01 and of 4 others"):
        calibration.rows_of(KNOWN, few, seeds=(8,), worlds=10)


def test_the_noise_of_a_claim_is_that_of_the_draws_that_judged_it():
    """As of the ledger's own shares, of fewer worlds: by the eight draws that have every condition P18 would have .46
    where the ledger has .62."""
    rows = {r["id"]: r for r in json.loads((ROOT / "reports/settle/claims/claims.json").read_text())["rows"]}
    table = pd.read_csv(ROOT / "reports/settle/calibration.csv").query("n == 'looks'").set_index("id")
    for name, row in rows.items():
        assert (name in table.index) == (row["assay"] is not None)
        if name in table.index:
            share, own = table.holds_stated[name], row["assay"]["holds"]
            spread = math.sqrt(max(share * (1 - share), 0.002) * (1 / sensitivity.REPEATS + 1 / calibration.WORLDS))
            assert table.own[name] == row["look"] and abs(share - own) < 4 * spread, name


def test_the_draws_that_judged_a_claim_are_read_from_the_design(monkeypatch):
    params = load(ROOT / "profiles/settle/params.yaml")
    monkeypatch.setattr(calibration.looks, "results_of", lambda table, draws, params: list(draws))
    found = calibration.judged(calibration._registered(ROOT / "profiles/settle/registered.yaml"), params)
    assert (found["P01"], found["P18"]) == ([*range(101, 109)], [*range(101, 133)]) and len(found["P07"]) == 16


def test_by_a_yardstick_that_is_drawn_only_typical_sampling_would_have_stayed_open():
    """Two one-sided t tests of the difference against a tenth of the yardstick, draw by draw, at their look's level."""
    params, known = load(ROOT / "profiles/settle/params.yaml"), checks.load(ROOT / "claims.yaml")
    results = calibration.judged(calibration._registered(ROOT / "profiles/settle/registered.yaml"), params)
    p = {}
    for name in ("C03", "C15"):
        for test in known[name].deciding:
            d, span = (
                measure(test, known[name], results[name], "test").sample.values[0],
                yardsticks.numbers(test, results[name]),
            )
            size = 0.1 * span * np.sign(span.mean())
            tests = [scipy_stats.ttest_1samp(size + sign * d, 0, alternative="greater") for sign in (1, -1)]
            p[name, test.name] = max(one.pvalue for one in tests)
            assert (
                len(d) == 16
                and round(100 * scipy_stats.t.ppf(0.975, 15) * scipy_stats.sem(span) / abs(span.mean())) == 29
            )
    typical = {k: v for k, v in p.items() if "typical" in k[1]}
    assert {round(v, 3) for v in typical.values()} == {0.023} and len(typical) == 2
    assert all(v < 5e-5 for k, v in p.items() if k not in typical) and len(p) == 8
    told = (ROOT / "docs/sure/design.md").read_text(encoding="utf-8")
    assert "would have stayed open (p = 0.023; all others 0.00005 or less)" in told


# the yardstick ------------------------------------------------------------------------------------------------------


def test_a_yardstick_that_is_estimated_makes_small_easier_to_say():
    """Without a spread it changes nothing; where it alone has one, every second world's is too large."""
    rng = np.random.default_rng(1)
    d, span = rng.normal(size=(2, 16))
    exact, drawn = yardsticks.smaller(d, np.full(16, 30.0), 0.1, 0.0161)
    assert exact == drawn == pytest.approx(0.0161, abs=3 * math.sqrt(0.0161 / yardsticks.WORLDS))
    span = 1 + 0.56 * (span - span.mean()) / span.std(ddof=1)  # a standard error of 14 %
    assert yardsticks.smaller(1e-6 * d, span, 0.1, 0.0161)[1] == pytest.approx(0.5, abs=0.02)
    noisy = yardsticks.smaller(0.05 * d / d.std(ddof=1), span, 0.1, 0.0161)
    assert noisy[0] < 0.02 and noisy[1] > 4 * noisy[0]


def test_only_yardsticks_of_seeds_are_drawn():
    values = counted(of_size(SIZE))
    own = everywhere(bare(values))
    found = yardsticks.rows_of(KNOWN, own, dict.fromkeys(KNOWN, 0.05), worlds=200)
    assert [row["id"] for row in found] == ["Z01", "Z02", "Z02", "Z05"]  # no count of runs, no threshold
    human = {c: {"human_log_perplexity": v["score"]} for c, v in of_size(SIZE).items()}
    known = {"Z01": claim(contrast(metric="human_log_perplexity"))}
    assert yardsticks.rows_of(known, everywhere(bare(human), known), {"Z01": 0.05}, worlds=200) == []
    broken = {c: {"score": v["score"]} for c, v in values.items()}
    broken["ppo_kl_0"] = {"score": [*broken["ppo_kl_0"]["score"][:-1], math.nan]}  # which leaves every test open
    assert yardsticks.rows_of(KNOWN, everywhere(results(broken), ["Z01", "Z05"]), dict.fromkeys(KNOWN, 0.05), 50) == []
    few = yardsticks.text([{**found[0], "drawn": 0.2}, {**found[1], "drawn": 0.05}])
    assert few.count("| Z01 |") == 1 and "| Z02 |" not in few and "0.200" in few


def test_the_command_writes_both(tmp_path, monkeypatch, capsys):
    params = SimpleNamespace(
        folder=tmp_path, root=".", profile="mini", claims=("Z01", "Z03"), all_runs=arms(0.3), reports_folder=tmp_path
    )
    monkeypatch.setattr(command, "profile_of", lambda path: params)
    monkeypatch.setattr(calibration.checks, "load", lambda path: KNOWN)
    monkeypatch.setattr(calibration.listed, "check", lambda *given: None)
    monkeypatch.setattr(calibration.tables, "load", lambda *given: bare(counted(of_size(SIZE))))
    monkeypatch.setattr(calibration, "SEEDS", (8,))
    write = calibration.write
    monkeypatch.setattr(calibration, "write", lambda params: write(params, worlds=50))
    assert command.main(["calibrate", "params.yaml"]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "calibration.md")
    table = pd.read_csv(tmp_path / "calibration.csv")
    assert list(table.columns[:6]) == ["id", "n", "own", "worlds", "seed", "holds_stated"]
    assert set(table.id) == {"Z01"} and set(table.worlds) == {50} and set(table.own) == {5}
    assert list(pd.read_csv(tmp_path / "yardsticks.csv").id) == ["Z01"]
    first = (tmp_path / "calibration.csv").read_bytes()
    command.main(["calibrate", str(Path("params.yaml"))])
    assert (tmp_path / "calibration.csv").read_bytes() == first, "the same table gives the same bytes"


def test_what_the_page_of_the_design_says_of_its_looks_is_in_the_table():
    root = Path(__file__).resolve().parents[1]
    told = " ".join((root / "docs/sure/design.md").read_text(encoding="utf-8").split())
    table = pd.read_csv(root / "reports/settle/calibration.csv").query("n == 'looks'").set_index("id")
    errors = table[list(calibration.ERRORS)].drop(index=["P18", "P20", "P27"]).to_numpy()
    assert f"false in at most {math.ceil(1000 * errors.max()) / 10:.1f} % of the simulated worlds, those among" in told
    margins = [f"{100 * table[calibration.PART][name]:.1f} %" for name in ("P20", "P27")]
    assert f"for P20 and P27, which hold in {margins[0]} and {margins[1]} of those" in told
    rest = [key for key in calibration.ERRORS if key != calibration.PART]
    assert table.loc[["P20", "P27"], rest].to_numpy().max() <= errors.max()
    share, se = table.loc["P18", ["refuted_stated", "refuted_stated_se"]]
    assert f"refuted in {100 * share:.1f} % (± {100 * se:.1f})" in told
    drawn = pd.read_csv(root / "reports/settle/yardsticks.csv").set_index("id")
    assert f"{drawn.drawn['P41'].max():.3f}" in told
    for name in ("C03", "C15"):
        assert f"{drawn.drawn[name].min():.3f} to {drawn.drawn[name].max():.3f}" in told
    holds, refuted = (table.holds_stated >= 0.8).sum(), (table.refuted_nothing >= 0.8).sum()
    assert f"{holds} of the {len(table)} claims hold in" in told and f"and {refuted} are refuted" in told
