"""Pages of the ablations: every file of workbook/reports found and drawn, planted effects read back, no run needed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import nbformat
import pytest

import workbook.runs.checks
from tests import second_results
from workbook.figures import dots, frontier, lines
from workbook.figures.parts import svg
from workbook.reports import pages
from workbook.results import design
from workbook.results import results as tables
from workbook.results.results import ReportError
from workbook.runs import ablations
from workbook.stages import nb, reports

pytestmark = pytest.mark.xdist_group("pages")  # what it sets up takes seconds: once, not once a worker

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """Tables of the profile mini's masks, DQN and family, whose truth is planted; the runs they came from are gone."""
    folder = tmp_path_factory.mktemp("planted")
    params = workbook.runs.checks.load(second_results.make(folder, leave_out=("mask_eta",)))
    shutil.rmtree(folder / "runs")
    shutil.rmtree(folder / "models")
    return params


@pytest.fixture(scope="module")
def mini(tmp_path_factory):
    """The repository's own tables of mini."""
    folder = tmp_path_factory.mktemp("mini")
    for name in ("params.yaml", "claims.yaml"):
        shutil.copy(ROOT / name, folder)
    (folder / "reports/mini").mkdir(parents=True)
    for path in (ROOT / "reports/mini").iterdir():
        if path.is_file():
            shutil.copy(path, folder / "reports/mini")
    return workbook.runs.checks.load(folder / "params.yaml")


def test_an_ablation_is_one_file_of_at_most_90_lines():
    assert len(ablations.names()) >= 11
    for name in ablations.names():
        assert len((ROOT / f"workbook/reports/{name}.py").read_text().splitlines()) <= 90, name


def test_a_new_ablation_is_a_new_file_and_nothing_else(planted, tmp_path, monkeypatch):
    source = (ROOT / "workbook/reports/family.py").read_text()
    (tmp_path / "brand_new.py").write_text(source.replace("Is there anything special about PPO?", "Is it new?"))
    assert ablations.names(tmp_path) == ("brand_new",)
    import workbook.reports

    monkeypatch.setattr(workbook.reports, "__path__", [*workbook.reports.__path__, str(tmp_path)])
    shown = planted.model_copy(update={"reports": {"brand_new": planted.reports["family"]}})
    shown._path = planted.path
    text = pages.opening(pages.load(shown, "brand_new"))
    assert text.startswith("# Is it new?") and "**Answer.** NLPO minus PPO: the score" in text


@pytest.mark.parametrize("name", second_results.NAMES)
def test_a_page_from_tables_alone(planted, name, tmp_path):
    page = pages.load(planted, name)
    files = pages.write(page, tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([*files, "alt.json"])
    text = (tmp_path / "verdict.md").read_text()
    assert page.ablation.TITLE in text and "## Claims" in text and "## What this does not show" in text
    for shown in page.figures:
        assert f"({shown.name}.svg)" in text and shown.read and "<desc" in (tmp_path / f"{shown.name}.svg").read_text()
    first = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    pages.write(pages.load(planted, name), tmp_path)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == first  # same tables, same bytes


def test_the_headline_reads_back_what_was_planted(planted):
    rows = {(r.label, r.metric): r.difference for r in pages.load(planted, "family").headline}
    found, truth = rows["A2C − PPO", "score"], 0.28 * (0.8 - 1)
    assert found.low <= truth <= found.high and found.difference == pytest.approx(truth, abs=0.02)


def test_missing_runs_are_named_first(planted):
    text = pages.opening(pages.load(planted, "samplers"))
    assert "**MISSING RUNS: `mask_eta`.**" in text.split("**Answer.**")[0]
    table = dict(pages.every_condition(pages.load(planted, "samplers")))["decoded plain"]
    assert set(table.loc["PPO, eta mask 0.0003"]) == {"MISSING"}


def test_a_table_that_is_not_there_is_said(planted, tmp_path):
    out = planted.reports_folder
    kept = tmp_path / "curves.csv"
    shutil.move(out / "curves.csv", kept)
    try:
        page = pages.load(planted, "family")
        assert "`curves.csv` (curves of training)" in pages.notes(page)
        labels = {s.name: s.figure.get_label() for s in page.figures}
        assert labels["numbers"].startswith("No picture: No curves of")
    finally:
        shutil.move(kept, out / "curves.csv")


def test_no_table_at_all_names_the_file(planted, tmp_path):
    shown = planted.model_copy(update={"profile": "nowhere"})
    shown._path = planted.path
    with pytest.raises(ReportError, match=r"nowhere/per_seed\.csv: no such file; run the pipeline"):
        pages.load(shown, "family")


def test_the_words_are_the_ledgers(mini):
    ledger = json.loads((ROOT / "reports/mini/claims/claims.json").read_text())["rows"]
    said = {r["id"]: r["word"] for r in ledger}
    rows, lost = pages.load(mini, "kl").judged
    assert not lost and rows
    assert {r["id"]: r["word"] for r in rows} == {r["id"]: said[r["id"]] for r in rows}


def test_committed_tables_make_every_page_of_mini(mini, capsys):
    few = mini.model_copy(update={"reports": {n: mini.reports[n] for n in ("kl", "gamma")}})
    few._path = mini.path
    made = reports.make(few)
    assert [p.parent.name for p in made] == ["kl", "gamma"] and all(p.is_file() for p in made)
    for name in (
        "mini/claims/claims.json",
        "mini/claims/forest.svg",
        "mini/claims/forest_rest.svg",
        "mini/careful/verdict.md",
        "claims.md",
        "forest.svg",
        "rule.md",
    ):
        assert (mini.reports_folder.parent / name).is_file(), name


def test_runs_are_told_apart_by_their_settings(mini):
    results = tables.load(mini, list(mini.all_runs))
    assert design.untrained(results) == "zero_shot" and design.untrained(results, 50) == "zero_shot_50"
    assert design.untrained(results, world="numbers") == "numbers_zero_shot"
    assert design.plainest(results, "ppo") == "ppo_kl_default" and design.plainest(results, "nlpo") == "nlpo_kl_default"
    (gamma,) = (s for s in design.lines(results, "gamma", algorithm="nlpo") if len(s.x) > 1)
    assert gamma.conditions == ("nlpo_gamma_050", "nlpo_gamma_095", "nlpo_kl_default", "nlpo_gamma_100")
    assert set(design.differing(results, "dqn_logits", "dqn_mlp")) == {"head"}
    budget = tables.load(mini, mini.reports["budget"].conditions)
    shares = {s.label: s.x for s in design.lines(budget, "share") if len(s.x) > 2}
    assert shares == {"ppo": (0.0, 0.1, 0.5, 1.0), "supervised": (0.1, 0.5, 1.0)}


def test_a_collapsed_run_is_ringed_and_named(mini):
    results = tables.load(mini, mini.reports["kl"].conditions)
    fallen = results.per_seed.condition == "ppo_target_low"
    results.per_seed.loc[fallen, "distinct_2"] /= 4  # fewer than half as many different word pairs
    assert design.collapsed(results, "ppo_target_low") and not design.collapsed(results, "ppo_kl_default")
    series = [design.Series("PPO", ("ppo_target_low", "ppo_kl_default"), (0.5, 0.05))]
    figure = frontier.frontier(results, {"": series}, [("kl_deployed", "score")])
    assert "Collapsed: PPO, KL target 0.1." in figure.get_label() and "collapsed" in figure.get_supxlabel()


def test_a_figure_draws_the_means_and_their_intervals(mini):
    results = tables.load(mini, mini.reports["gamma"].conditions)
    series = [s for s in design.lines(results, "gamma", lambda r: "NLPO", algorithm="nlpo") if len(s.x) > 1]
    (axis,) = lines.sweep(results, series, ("score",), "γ").axes
    drawn = next(line for line in axis.lines if len(line.get_ydata()) == 4)
    means = [results.values(c, "score").mean() for c in series[0].conditions]
    assert list(drawn.get_ydata()) == pytest.approx(means)
    bars = sorted(tuple(segment[:, 1]) for c in axis.collections for segment in getattr(c, "get_segments", list)())
    wanted = [design.estimate(results.values(c, "score"), "score") for c in series[0].conditions]
    assert bars == [pytest.approx((w.low, w.high)) for w in sorted(wanted, key=lambda w: w.low)]


def test_a_figure_saved_again_is_the_same(mini):
    """The notebook shows what was written to the page's folder before: one file, and `make reports` makes it again."""
    for shown in pages.load(mini, "kl").figures[:2]:
        assert svg(shown.figure, shown.name) == svg(shown.figure, shown.name)


def test_scores_of_two_worlds_share_no_axis(mini):
    results = tables.load(mini, ["ppo_kl_default", "numbers_ppo"])
    with pytest.raises(ValueError, match="different worlds do not compare"):
        dots.arms(results, ["ppo_kl_default", "numbers_ppo"], ("score",), "x")


def test_the_notebook_links_its_pictures(mini, monkeypatch):
    folder = mini.folder
    monkeypatch.chdir(folder)
    out = mini.reports_folder / "vocabulary"
    target, html = str(out / "report.ipynb"), str(out / "report.html")
    assert nb.run(str(ROOT / "notebooks/ablation.ipynb"), target, {"name": "vocabulary"}, html) == 0
    cells = nbformat.read(out / "report.ipynb", as_version=4).cells
    shown = "".join(str(o.get("data", "")) for c in cells for o in c.get("outputs", ()))
    assert '<img src="vocabulary.svg" alt=' in shown and "image/png" not in shown and "image/svg" not in shown
    assert (out / "vocabulary.svg").is_file() and 'src="vocabulary.svg"' in (out / "report.html").read_text()
