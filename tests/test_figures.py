"""Figures: drawn for every profile's shape, the same bytes each time, with alt text, seeds counted, nothing too small."""

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure

from rlnlp import figures, report
from tests.test_report import make

SHAPES = {
    "full": {},
    "imdb": {
        "conditions": tuple(f"{a}_kl_{k}" for a in ("ppo", "nlpo") for k in ("0", "default", "large")),
        "seeds": (1, 2, 3),
    },
    "smoke": {
        "conditions": ("zero_shot", "ppo_kl_0", "ppo_kl_default", "nlpo_kl_default"),
        "seeds": (1, 2),
        "updates": 3,
    },
    "one": {"conditions": ("ppo_kl_0", "ppo_target_low"), "seeds": (1,), "updates": 2},
}


def draw(results) -> dict[str, Figure]:
    table = results.per_seed
    made = {
        "learning_curves": figures.learning_curves(results.curves, table),
        "frontier": figures.frontier(table),
        "diversity": figures.diversity(table),
        "perplexities": figures.perplexities(table),
        "episode": figures.episode(report.episode_pair(results)),
    }
    for pair in report.headline(results)[:1]:
        made["decodings"] = figures.decodings(table, pair["ppo"], pair["nlpo"])
    return made


@pytest.fixture(scope="module")
def every(tmp_path_factory):
    return {name: report.load(make(tmp_path_factory.mktemp(name), **kind)) for name, kind in SHAPES.items()}


@pytest.mark.parametrize("name", SHAPES)
def test_figures_of_every_shape(every, name):
    made = draw(every[name])
    assert ("decodings" in made) == (name != "one")
    n = len(SHAPES[name].get("seeds", range(5)))
    for kind, figure in made.items():
        figure.draw_without_rendering()
        texts = [t for t in figure.findobj(mpl.text.Text) if t.get_text().strip() and t.get_visible()]
        assert min(t.get_fontsize() for t in texts) >= 9, kind
        said = " ".join(t.get_text().replace("\n", " ") for t in texts)
        assert f"n = {n} seeds" in said or kind == "episode"
        assert "n = " in said and len(figure.get_label()) > 40
        ticks = {
            id(t) for a in figure.axes for t in (*a.get_xticklabels(which="both"), *a.get_yticklabels(which="both"))
        }
        box = figure.bbox
        for text in (
            t for t in texts if id(t) not in ticks
        ):  # nothing hangs out of the picture (matplotlib hides far ticks)
            extent = text.get_window_extent()
            assert extent.x0 >= -2 and extent.x1 <= box.x1 + 2 and extent.y0 >= -2 and extent.y1 <= box.y1 + 2, (
                kind,
                text.get_text(),
            )


def test_saved_bytes_are_the_same_and_hold_no_clock(every, tmp_path):
    for folder in ("one", "two"):
        figures.save(figures.frontier(every["smoke"].per_seed), tmp_path / folder, "frontier")
    names = sorted(p.name for p in (tmp_path / "one").iterdir())
    assert names == ["alt.json", "frontier.png", "frontier.svg"]
    for name in names:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes(), name
    svg = (tmp_path / "one" / "frontier.svg").read_text()
    assert "dc:date" not in svg and not re.search(r"20\d\d-\d\d-\d\d", svg)
    assert b"Software" not in (tmp_path / "one" / "frontier.png").read_bytes()


def test_alt_text_is_in_svg_and_json(tmp_path):
    figure = Figure()
    figures.save(figure, tmp_path, "a", 'β < 0.1 & "more"')
    figures.save(figure, tmp_path, "b", "second")
    assert json.loads((tmp_path / "alt.json").read_text()) == {"a": 'β < 0.1 & "more"', "b": "second"}
    root = ElementTree.parse(tmp_path / "a.svg").getroot()
    assert root.get("role") == "img" and root.find("{*}desc").text == 'β < 0.1 & "more"'
    assert root.get("aria-labelledby").split() == [root.find("{*}title").get("id"), root.find("{*}desc").get("id")]
    with pytest.raises(ValueError, match="alt text"):
        figures.save(Figure(), tmp_path, "c")


def test_alt_text_tells_the_numbers(every):
    results = every["full"]
    score = results.values("ppo_kl_0", "score").mean()
    assert f"PPO β = 0: score {score:.2f}" in figures.frontier(results.per_seed).get_label()


def test_learning_curve_draws_the_mean_over_seeds(every):
    results = every["full"]
    axis = figures.learning_curves(results.curves, results.per_seed).axes[0]
    line = next(item for item in axis.lines if item.get_label() == "β = 0")
    own = results.curves[results.curves.condition == "ppo_kl_0"].groupby("update")["objective/score"].mean()
    np.testing.assert_allclose(line.get_ydata(), own)


def test_settings_name_and_colour(every):
    look = figures.settings(every["full"].per_seed)
    assert look.label["zero_shot"] == "zero-shot" and look.label["nlpo_target_low"] == "KL target 0.2"
    assert look.color["ppo_kl_0"] == look.color["nlpo_kl_0"] == figures.NO_KL
    assert look.color[look.algorithm == "ppo"].nunique() == 7


def test_colours_can_be_told_apart_without_red_or_green():
    """Palette neighbours differ in lightness or in the blue-yellow direction, which colour blindness leaves intact."""
    palette = [figures.NO_KL, *figures.PENALTY[:3], *figures.TARGET[:2]]
    seen = [(0.299 * r + 0.587 * g + 0.114 * b, b - (r + g) / 2) for r, g, b in map(mpl.colors.to_rgb, palette)]
    apart = [np.hypot(*np.subtract(a, b)) for i, a in enumerate(seen) for b in seen[:i]]
    assert min(apart) > 0.1


def test_tokens_html():
    page = figures.tokens_html(["<eos>", " good", "a\nb"], [-1.0, 0.0, 2.0], "reward & more")
    assert "&lt;eos&gt;" in page and "reward &amp; more 2" in page and "<eos>" not in page and page.count("<span") == 3
    blue, red = (mpl.colors.to_rgb(c) for c in (re.findall(r"background:(#\w{6})", page)[i] for i in (0, 2)))
    assert blue[2] > blue[0] and red[0] > red[2]
    with pytest.raises(ValueError, match="2 tokens but 1 values"):
        figures.tokens_html(["a", "b"], [1.0], "x")
    assert "<p" in figures.tokens_html([], [], "nothing")


def test_long_episodes_wrap_inside_the_picture():
    tokens = [f"word{i}" for i in range(48)]
    item = {"prompt": "a b", "tokens": tokens, "score": 1.0, **{k: [0.0] * 48 for k in ("rewards", "kl", "advantages")}}
    figure = figures.episode([("one", item)])
    figure.draw_without_rendering()
    shown = [t for t in figure.findobj(mpl.text.Text) if t.get_text() in tokens]
    assert len(shown) == 3 * 48 and max(t.get_window_extent().x1 for t in shown) <= figure.bbox.x1


def test_no_rows_is_an_error(every):
    with pytest.raises(ValueError, match="no test rows decoded 'greedy'"):
        figures.frontier(every["one"].per_seed, "greedy")


def test_notebook_budgets():
    book = json.loads((Path(__file__).parents[1] / "notebooks" / "report_kl.ipynb").read_text())
    code = ["".join(c["source"]) for c in book["cells"] if c["cell_type"] == "code"]
    assert max(len(c.splitlines()) for c in code) <= 15 and sum(len(c.splitlines()) for c in code) <= 120
    assert len(book["cells"]) - len(code) >= len(code)
    assert all(not c.get("outputs") for c in book["cells"])
    assert code[1].startswith("from rlnlp.nb import check_parameters; check_parameters(In)")
