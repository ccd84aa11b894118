"""Pages of the ablations: every file of workbook/reports found and drawn, planted effects read back, no run needed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import nbformat
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from scipy import stats

import workbook.runs.checks
from tests import second_results
from workbook.figures import about, dots, frontier, lines, parts
from workbook.figures.parts import svg
from workbook.ledger import told
from workbook.reports import gamma, mask, pages
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
    assert (
        text.startswith("# Is it new?")
        and "**Answer.** By each comparison's own interval, the score (reward model) is higher than PPO in" in text
    )


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
    table = dict(pages.every_condition(pages.load(planted, "samplers")))["decoded plainly"]
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


def test_a_gain_is_over_the_untrained_model_decoded_alike(mini):
    results = tables.load(mini, ["zero_shot", "ppo_kl_default"])
    own, start = (results.values(c, "score", "top_p") for c in ("ppo_kl_default", "zero_shot"))
    assert (start != results.values("zero_shot", "score")).any()
    assert design.measure(results, "ppo_kl_default", "gain:score", "top_p").tolist() == (own - start).tolist()


def test_a_share_a_spread_and_what_spans_decades_have_their_own_intervals():
    share = design.estimate(np.array([1.0, 0, 0, 0, 0]), "diverged")
    exact = stats.binomtest(1, 5).proportion_ci(method="exact")
    assert (share.estimate, share.low, share.high) == pytest.approx((0.2, exact.low, exact.high))
    none, all_ = (design.estimate(np.full(5, end), "diverged") for end in (0.0, 1.0))
    side = 0.025 ** (1 / 5)  # the share of which five of five are seen one time in forty
    assert (none.low, none.high, all_.low, all_.high) == pytest.approx((0, 1 - side, side, 1))
    spread = design.estimate(np.array([1.0, 2, 3, 4, 5]), "spread:score")  # squares 10; chi-square of 4 degrees, tables
    assert spread.estimate == pytest.approx((10 / 4) ** 0.5)
    assert (spread.low, spread.high) == pytest.approx(((10 / 11.143287) ** 0.5, (10 / 0.484419) ** 0.5), rel=1e-5)
    decades = design.estimate(np.array([1e-6, 1e-4]), "first_ratio_error")
    assert decades.estimate == pytest.approx(1e-5)  # one decade from either, times 12.706, t of 1 degree
    assert np.log10([decades.low, decades.high]) == pytest.approx([-5 - 12.706205, -5 + 12.706205])


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


def test_numbers_beside_means_lie_apart_and_a_lone_point_has_its_own(mini):
    page = pages.load(mini, "gamma")
    figure = next(s.figure for s in page.figures if s.name == "frontiers")
    figure.draw_without_rendering()
    for axis in figure.axes:
        boxes = [t.get_window_extent() for t in axis.texts]
        assert boxes and not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])
    assert "0.2" in {t.get_text() for t in figure.axes[3].texts}  # NLPO at one β
    assert {t.get_text() for t in figure.axes[0].texts} == {"0", "0.2", "0.8"}  # 0.08 is no end of a line


def test_ticks_of_a_wide_logarithmic_axis_lie_apart():
    figure = Figure(figsize=(9.6, 3), layout="constrained")
    for axis, high in zip(figure.subplots(1, 3), (17, 90, 1200)):
        axis.set_xlim(1.2, high)
        parts.plain_log(axis)
    figure.draw_without_rendering()
    for axis in figure.axes:
        boxes = [t.get_window_extent() for t in axis.get_xticklabels()]
        assert len(boxes) >= 3 and not any(a.x1 >= b.x0 for a, b in zip(boxes, boxes[1:]))


def test_the_figure_of_gamma_says_what_it_shows(mini):
    """Where all responses are of one length there is no panel of it, and a bandit is named only where one is."""
    for conditions in (mini.reports["gamma"].conditions, ["zero_shot", "ppo_gamma_050", "ppo_kl_default"]):
        name, _, figure = next(gamma.figures(tables.load(mini, conditions)))
        assert (name, len(figure.axes)) == ("gamma", 3) and "All responses are of one length" in _words(figure)
        assert ("lone point is the bandit" in _words(figure)) == ("bandit" in conditions)
    lengths = tables.load(mini, mini.reports["length"].conditions)
    _, _, figure = next(gamma.figures(lengths))
    assert len(figure.axes) == 4 and "one length" not in _words(figure)


def test_a_mask_with_another_floor_is_on_no_line_along_its_values():
    """It took the place of NLPO's own run in the figure of training, and was a second line without a name."""
    full = workbook.runs.checks.load(Path("profiles/full/params.yaml"))
    results = tables.load(full, full.reports["mask"].conditions)
    assert "nlpo_min_100" in results.conditions
    (along_p,), (along_mu,) = (mask.along(results, field) for field in ("mask_top_p", "refresh"))
    assert along_mu.conditions == ("ppo_top_p", "nlpo_sync_2", "nlpo_kl_default", "nlpo_sync_8", "nlpo_initial")
    assert len(along_p.conditions) == 12 and along_p.conditions[8] == "nlpo_kl_default"
    said = {name: figure.get_label() for name, _, figure in mask.figures(results)}
    curve = pd.read_csv("reports/full/curves.csv.xz", low_memory=False).query("condition == 'nlpo_kl_default'")
    means = curve.groupby("update")["objective/score"].mean()
    assert f"every 5 NLPO: score in training {means.iloc[0]:.3f} first, {means.iloc[-1]:.3f} last" in said["training"]


def test_along_each_rules_own_number_the_words_have_that_number(mini):
    results = tables.load(mini, mini.reports["samplers"].conditions)
    series = [design.Series("top-p", ("mask_top_p", "ppo_kl_default"), (0.95, float("inf")))]
    label = lines.each(results, series, "score", {"plain": "decoded plainly"}).get_label()
    assert " at 0.95, " in label and " at none" in label


def _words(figure):
    return " ".join(figure.get_supxlabel().split())


def test_that_a_run_may_diverge_is_said_once(mini):
    said = {n: about.broken(tables.load(mini, mini.reports[n].conditions)).splitlines() for n in ("gamma", "dropout")}
    assert said["gamma"] == ["- A run that diverges counts as a result (`breaks: [finite]`)."]
    assert said["dropout"][0] == said["gamma"][0] and len(said["dropout"]) == 3  # and those that break the ratio
    assert all(line.endswith(" breaks on purpose: ratio") for line in said["dropout"][1:])
    few = about.broken(tables.load(mini, mini.reports["budget"].conditions))
    assert few.count("diverges") == 1 and "; this holds for untrained; PPO, reward of 0 % of the labels; " in few


def test_a_claim_that_could_not_be_listed_is_said_to_lack_what_it_lacks_and_no_seeds(mini):
    ledger = json.loads((ROOT / "reports/mini/claims/claims.json").read_text())["rows"]
    assert any(told.UNLISTED in r["lacks"] for r in ledger)  # the ledger's words for it
    registered = shutil.copy(ROOT / "reports/registered.json", mini.reports_folder.parent)
    try:
        page = pages.load(mini, "vocabulary")
        text, answer = pages.claims_markdown(page), pages.answer(page)
    finally:
        Path(registered).unlink()
    lacks = (
        "2 or more repetitions (runs a seed, by `replicate`) of PPO, 50 tokens (`vocabulary_50`); a place on its list"
    )
    assert lacks in text and told.UNLISTED not in text
    assert "This profile does not judge the claims behind it; the registered design `settle`, on more draws" in answer


def test_tests_of_claims_call_learners_as_figures_do():
    table = pd.DataFrame({"test": ["ppo human perplexity", "nlpo", "the run PPO (`ppo_kl_0`)", "ppo_kl_0"]})
    assert list(told.in_words(table).test) == ["PPO human perplexity", "NLPO", "the run PPO (`ppo_kl_0`)", "ppo_kl_0"]
