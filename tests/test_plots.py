"""Figures of the ablations: what is in the tables is in the picture, and what is not is not; alt text, n, nothing cut off."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure
from ruamel.yaml import YAML

import rlnlp.config
from rlnlp import ablations, figures, plots, second_paper, second_plots
from tests.test_ablations import ROOT, make


def draw(results, name: str) -> dict[str, Figure]:
    """The figures of a report, drawn by its notebook's own cells."""
    made: dict[str, Figure] = {}
    book = json.loads((ROOT / "notebooks" / f"report_{name}.ipynb").read_text())
    cells = ["".join(c["source"]) for c in book["cells"] if c["cell_type"] == "code"]

    class Shown:
        @staticmethod
        def show(figure, folder, key, alt=""):
            made[key] = figure

    names = {"results": results, "ablations": ablations, "plots": plots, "figures": Shown, "folder": None, "display": list,
             "second_paper": second_paper, "second_plots": second_plots}  # fmt: skip
    for cell in cells:
        if "figures.show" in cell:
            exec(cell, names)
    return made


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    seeds = {"full": (1, 2, 3), "mini": (1, 2, 3, 4, 5), "smoke": (1, 2)}
    return {profile: make(tmp_path_factory.mktemp(profile), profile, some) for profile, some in seeds.items()}


@pytest.fixture(scope="module")
def loaded(paths):
    return {p: {n: ablations.load(rlnlp.config.load(path), n) for n in ablations.NAMES} for p, path in paths.items()}


def texts_of(figure: Figure) -> list[mpl.text.Text]:
    figure.draw_without_rendering()
    return [t for t in figure.findobj(mpl.text.Text) if t.get_text().strip() and t.get_visible()]


@pytest.mark.parametrize("name", ablations.NAMES)
@pytest.mark.parametrize("profile", ["full", "mini", "smoke"])
def test_figures_of_every_report_and_profile(loaded, profile, name):
    results = loaded[profile][name]
    made = draw(results, name)
    assert made
    assert_readable(made, results)


def assert_readable(made: dict[str, Figure], results) -> None:
    """No small print, n in the picture and in the alt text, nothing that hangs out of it."""
    for kind, figure in made.items():
        texts = texts_of(figure)
        assert min(t.get_fontsize() for t in texts) >= 9, kind
        said = " ".join(t.get_text().replace("\n", " ") for t in texts)
        n = f"{len(results.seeds)} seeds"
        assert f"n = {n}" in said and n in figure.get_label() and len(figure.get_label()) > 40, kind
        ticks = {
            id(t) for a in figure.axes for t in (*a.get_xticklabels(which="both"), *a.get_yticklabels(which="both"))
        }
        for text in (t for t in texts if id(t) not in ticks):  # nothing hangs out of the picture
            extent = text.get_window_extent()
            assert extent.x0 >= -2 and extent.x1 <= figure.bbox.x1 + 2, (kind, text.get_text())
            assert extent.y0 >= -2 and extent.y1 <= figure.bbox.y1 + 2, (kind, text.get_text())


@pytest.mark.parametrize("name", ablations.NAMES)
def test_labels_titles_and_legends_do_not_touch(loaded, name):
    assert_apart(draw(loaded["full"][name], name))


def assert_apart(made: dict[str, Figure]) -> None:
    for kind, figure in made.items():
        figure.draw_without_rendering()
        labels = [
            lab for a in figure.axes for lab in (a.xaxis.label, a.yaxis.label, a.title, a._left_title) if lab.get_text()
        ]
        labels += [
            t
            for legend in figure.legends
            for t in (*legend.get_texts(), legend.get_title())
            if t.get_text() not in ("", "None")
        ]
        labels += [t for t in (figure._suptitle, figure._supxlabel) if t is not None]
        boxes = [(lab.get_text(), lab.get_window_extent()) for lab in labels]
        for i, (text, box) in enumerate(boxes):
            for other, beside in boxes[:i]:
                apart = (
                    box.x1 <= beside.x0 + 1
                    or beside.x1 <= box.x0 + 1
                    or box.y1 <= beside.y0 + 1
                    or beside.y1 <= box.y0 + 1
                )
                assert apart, (kind, text, other)


def ticks(figure: Figure) -> list[str]:
    figure.draw_without_rendering()
    return [t.get_text() for t in figure.axes[0].get_xticklabels()]


def test_a_value_taken_out_of_the_report_is_taken_out_of_the_figure(paths, loaded):
    whole = draw(loaded["full"]["gamma"], "gamma")
    assert ticks(whole["gamma"]) == ["0.5", "0.9", "0.95", "0.99", "1"] and "0.9" in whole["gamma"].get_label()
    path = paths["full"].with_name("less.yaml")
    yaml = YAML(typ="safe")
    raw = yaml.load(paths["full"].read_text())
    raw["reports"]["gamma"]["conditions"] = [c for c in raw["reports"]["gamma"]["conditions"] if "gamma_090" not in c]
    with open(path, "w") as file:
        yaml.dump(raw, file)
    results = ablations.load(rlnlp.config.load(path), "gamma")
    less = draw(results, "gamma")
    assert ticks(less["gamma"]) == ["0.5", "0.95", "0.99", "1"] and not results.missing
    assert "γ = 0.9 " in whole["frontiers"].get_label() and "γ = 0.9 " not in less["frontiers"].get_label()


def test_a_listed_run_that_is_missing_is_named_in_the_caption(tmp_path):
    path = make(tmp_path, "smoke", (1, 2), leave_out=("bandit",))
    for kind, figure in draw(ablations.load(rlnlp.config.load(path), "gamma"), "gamma").items():
        assert "MISSING: bandit." in figure.get_supxlabel().replace("\n", " "), kind
        assert "MISSING: bandit." in figure.get_label()


def test_nothing_to_draw_is_said(tmp_path):
    path = make(tmp_path, "smoke", (1, 2), leave_out=("ppo_top_p", "ppo_kl_default"))
    (figure,) = draw(ablations.load(rlnlp.config.load(path), "sampling"), "sampling").values()
    said = " ".join(t.get_text().replace("\n", " ") for t in texts_of(figure))
    assert "Not run in this profile" in said and "MISSING: ppo_kl_default, ppo_top_p." in said


def test_a_line_goes_through_the_means_and_bars_are_their_intervals(loaded):
    results = loaded["mini"]["gamma"]
    series = ablations.gamma_lines(results)
    axis = plots.sweep(results, series, ("score",), "γ").axes[0]
    drawn = [line for line in axis.lines if line.get_marker() == "o"][0]
    np.testing.assert_allclose(drawn.get_ydata(), [results.values(c, "score").mean() for c in series[0].conditions])
    bars = next(c for c in axis.collections if isinstance(c, mpl.collections.LineCollection))
    found = ablations.estimate(results.values(series[0].conditions[0], "score"), "score")
    np.testing.assert_allclose(bars.get_segments()[0][:, 1], [found.low, found.high])
    dots = next(c for c in axis.collections if isinstance(c, mpl.collections.PathCollection))
    assert len(dots.get_offsets()) == 5 * len(series[0].x)  # every seed


def test_below_three_seeds_there_is_no_interval(loaded):
    figure = draw(loaded["smoke"]["gamma"], "gamma")["gamma"]
    assert not any(isinstance(c, mpl.collections.LineCollection) for a in figure.axes for c in a.collections)
    assert "too few for an interval" in figure.get_supxlabel()


def test_series_can_be_told_apart_without_colour(loaded):
    figure = draw(loaded["full"]["budget"], "budget")["budget"]
    lines = [line for line in figure.axes[0].lines if line.get_marker() not in ("", "None", None)]
    assert len(lines) == 5 and len({line.get_marker() for line in lines}) == 5
    assert len({str(line._unscaled_dash_pattern) for line in lines}) == 5


def test_colours_differ_in_lightness_or_along_blue_and_yellow():
    seen = [
        (0.299 * r + 0.587 * g + 0.114 * b, b - (r + g) / 2) for r, g, b in map(mpl.colors.to_rgb, plots.COLORS[:6])
    ]
    assert min(np.hypot(*np.subtract(a, b)) for i, a in enumerate(seen) for b in seen[:i]) > 0.1


def test_the_broken_invariant_stands_above_its_limit(loaded):
    figure = draw(loaded["full"]["dropout"], "dropout")["dropout_0"]
    axis = figure.axes[0]
    assert axis.get_yscale() == "log" and any(set(line.get_ydata()) == {ablations.RATIO_LIMIT} for line in axis.lines)
    update_only = next(line for line in axis.lines if line.get_marker() == "o")
    assert (np.array(update_only.get_ydata()) > ablations.RATIO_LIMIT).tolist() == [False, True, True, True]


def test_refreshes_are_marked_where_they_happened(loaded):
    figure = draw(loaded["mini"]["mask"], "mask")["training"]
    axis = next(a for a in figure.axes if a._left_title.get_text() == "refreshed every 8 updates")
    marks = [c for c in axis.collections if isinstance(c, mpl.collections.PathCollection)]
    assert [int(x) for x, _ in marks[0].get_offsets()] == [9, 17, 25]


def test_matched_cells_are_framed(loaded):
    figure = draw(loaded["mini"]["sampling"], "sampling")["heat"]
    frames = [p for p in figure.axes[0].patches if isinstance(p, mpl.patches.Rectangle)]
    assert [(round(p.get_x() + 0.48), round(p.get_y() + 0.47)) for p in frames] == [(0, 0), (1, 1), (2, 2), (3, 3)]
    cells = ablations.sampling_grid(loaded["mini"]["sampling"], "gain:score")
    said = " ".join(t.get_text() for t in texts_of(figure))
    assert f"{cells['top-k', 'beam'].mean():+.3f}" in said


def test_alt_text_tells_the_numbers(loaded):
    results = loaded["mini"]["warm_start"]
    figure = draw(results, "warm_start")["pairs"]
    gap = (results.values("sup_ppo", "score") - results.values("ppo_kl_default", "score")).mean()
    assert f"sup_ppo − ppo_kl_default, score (reward model): {gap:+.3f}" in figure.get_label()


def test_saved_bytes_are_the_same(loaded, tmp_path):
    for folder in ("one", "two"):
        figures.save(draw(loaded["smoke"]["mask"], "mask")["controls"], tmp_path / folder, "controls")
    for name in ("alt.json", "controls.png", "controls.svg"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes(), name


@pytest.mark.slow
@pytest.mark.parametrize("name", ablations.NAMES)
def test_the_notebook_runs_as_the_pipeline_runs_it(paths, name):
    folder = paths["smoke"].parent
    out = folder / "reports" / "smoke" / name
    done = subprocess.run(
        [sys.executable, "-m", "rlnlp.nb", "run", str(ROOT / f"notebooks/report_{name}.ipynb"), str(out / "report.ipynb"),
         "--html", str(out / "report.html")],
        check=False, cwd=folder, capture_output=True, text=True, timeout=280,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    book = json.loads((out / "report.ipynb").read_text())
    outputs = [o for c in book["cells"] if c["cell_type"] == "code" for o in c["outputs"]]
    pictures = [o for o in outputs if "image/png" in o.get("data", {})]
    assert pictures and all(o["metadata"]["image/png"]["alt"] for o in pictures)
    first = "".join(outputs[0]["data"]["text/markdown"])
    assert first.startswith("**Answer.**") and "Hash of the rule" in first
    assert {p.name for p in out.glob("*.png")} == {f"{key}.png" for key in json.loads((out / "alt.json").read_text())}
    page = (out / "report.html").read_text(encoding="utf-8")
    assert re.search(r"<img[^>]+alt=", page) and str(Path.home()) not in first
    shutil.rmtree(out)
