"""Figures: kept once as a small SVG, the same bytes each time, with alt text, colours that can be told apart."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure

from workbook.figures import frontier, heat, parts, style, tokens

REPORTS = Path(__file__).parents[1] / "reports"


def example(label: str = "what it shows") -> Figure:
    figure = Figure()
    figure.subplots().plot(np.arange(40), np.sin(np.arange(40)), "o")
    return parts.alt_text(figure, label)


def test_saved_bytes_are_the_same_and_hold_no_clock(tmp_path):
    for folder in ("one", "two"):
        parts.save(example(), tmp_path / folder, "a")
    assert sorted(p.name for p in (tmp_path / "one").iterdir()) == ["a.svg", "alt.json"]
    svg = (tmp_path / "one/a.svg").read_text()
    assert svg == (tmp_path / "two/a.svg").read_text()
    assert "dc:date" not in svg and not re.search(r"20\d\d-\d\d-\d\d", svg)


def test_alt_text_is_in_svg_and_json(tmp_path):
    parts.save(example(), tmp_path, "a", 'β < 0.1 & "more"')
    parts.save(example(), tmp_path, "b", "second")
    assert json.loads((tmp_path / "alt.json").read_text()) == {"a": 'β < 0.1 & "more"', "b": "second"}
    root = ElementTree.parse(tmp_path / "a.svg").getroot()
    assert root.get("role") == "img" and root.find("{*}desc").text == 'β < 0.1 & "more"'
    assert root.get("aria-labelledby").split() == [root.find("{*}title").get("id"), root.find("{*}desc").get("id")]
    with pytest.raises(ValueError, match="alt text"):
        parts.save(Figure(), tmp_path, "c")


def test_what_is_read_aloud_of_a_figure_has_an_end_and_says_how_much_is_left():
    few = [f"run {i} score 0.5" for i in range(20)]
    assert parts.listed(few) == "; ".join(few) and parts.listed([]) == ""
    many = parts.listed([f"run {i:03d} score 0.5" for i in range(400)])
    kept = many.count("score")
    assert many.endswith(f"score 0.5; and {400 - kept} more") and 900 < len(many) < parts.READ_OUT + 20
    assert parts.listed(["x" * 2000, "y"]) == "x" * 2000 + "; and 1 more"


def test_no_committed_picture_is_read_aloud_for_more_than_a_minute():
    read = {path: json.loads(path.read_text("utf-8")) for path in sorted(REPORTS.glob("*/*/alt.json"))}
    assert len(read) > 30
    assert not [(path, name) for path, alts in read.items() for name, alt in alts.items() if len(alt) > 1800]


def test_a_compact_svg_keeps_places_and_looks():
    path = '<path d="M 1.23456 2\nL 3.5 -4.5678" style="fill: red" transform="scale(0.015625)"/>'
    mark = '<path id="m" d="M 0.12345 1"/>\n<use xlink:href="#m" x="7.86" y="9.99"/>'
    svg = f'<svg><defs><style type="text/css">*{{a: b}}</style></defs>\n  {path * 3}{mark}</svg>'
    small = parts.compact(svg)
    assert small.count('d="M 1.2 2\nL 3.5 -4.5" class="s0" transform="scale(0.015625)"') == 3
    assert '<path id="i0" d="M 0.12 1"/>' in small and 'x="7.8" y="9.9"' in small  # a mark is small: to a hundredth
    assert ".s0{fill: red}*{a: b}" in small and parts.compact(small) == small


def test_colours_can_be_told_apart_without_red_or_green():
    """Palette neighbours differ in lightness or in the blue-yellow direction, which colour blindness leaves intact."""
    seen = [(0.299 * r + 0.587 * g + 0.114 * b, b - (r + g) / 2) for r, g, b in map(mpl.colors.to_rgb, style.COLORS)]
    apart = [np.hypot(*np.subtract(a, b)) for i, a in enumerate(seen) for b in seen[:i]]
    assert min(apart) > 0.1
    assert len(set(style.MARKERS)) == len(set(map(str, style.DASHES))) == len(style.COLORS)


def test_letters_on_a_colour_are_the_ones_that_stand_out_more():
    assert parts.contrast("#000000", "#ffffff") == pytest.approx(21) and parts.contrast("#777777", "#777777") == 1
    assert parts.contrast("#ffffff", "#767676") == pytest.approx(4.54, abs=0.005)  # WCAG's example of what just passes
    assert [parts.ink(color) for color in ("#d05548", "#408fc1", "#053061")] == ["#000000", "#000000", "#ffffff"]
    for color in map(mpl.colormaps["RdBu_r"], range(256)):
        black, white = (parts.contrast(letters, color) for letters in ("#000000", "#ffffff"))
        assert parts.contrast(parts.ink(color), color) == max(black, white) >= 4.5


def test_tokens_html():
    page = tokens.tokens_html(["<eos>", " good", "a\nb"], [-1.0, 0.0, 2.0], "reward & more")
    assert "&lt;eos&gt;" in page and "reward &amp; more 2" in page and "<eos>" not in page and page.count("<span") == 3
    blue, red = (mpl.colors.to_rgb(c) for c in (re.findall(r"background:(#\w{6})", page)[i] for i in (0, 2)))
    assert blue[2] > blue[0] and red[0] > red[2]
    with pytest.raises(ValueError, match="2 tokens but 1 values"):
        tokens.tokens_html(["a", "b"], [1.0], "x")
    assert "<p" in tokens.tokens_html([], [], "nothing")


def test_long_episodes_wrap_inside_the_picture():
    words = [f"word{i}" for i in range(48)]
    item = {"prompt": "a b", "tokens": words, "score": 1.0, **{k: [0.0] * 48 for k in ("rewards", "kl", "advantages")}}
    figure = tokens.episode([("one", item)])
    figure.draw_without_rendering()
    shown = [t for t in figure.findobj(mpl.text.Text) if t.get_text() in words]
    assert len(shown) == 3 * 48 and max(t.get_window_extent().x1 for t in shown) <= figure.bbox.x1


def test_alt_text_reads_a_kept_mass_off_its_axis_in_its_own_unit():
    """The axis is logarithmic in what is cut: at 2 of it 0.99 is kept."""
    assert frontier._read_off("kept", np.array([1.0, 3.0])) == "0.990"
    assert frontier._read_off("kl_deployed", np.array([1.0, 3.0])) == "2.000"


def test_a_grids_colours_are_those_of_the_columns_that_were_trained_with_and_its_numbers_can_be_read():
    """Greedy decoding, which no row has, is far off the others' scale; contrast by WCAG 2's formula."""
    means = {("a", "a"): 0.0, ("a", "b"): 0.45, ("b", "a"): 0.55, ("b", "b"): 1.0, ("a", "greedy"): 50.0}
    results = SimpleNamespace(seeds=[1, 2, 3], missing={})
    figure = heat.heat(results, {"score": {key: np.full(3, mean) for key, mean in means.items()}})
    axis = figure.axes[0]
    assert axis.collections[0].get_clim() == (0.0, 1.0)

    def luminance(color):
        parts = np.array(mpl.colors.to_rgb(color))
        return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4) @ [0.2126, 0.7152, 0.0722]

    shown = {float(text.get_text().split()[0]): text.get_color() for text in axis.texts}
    assert sorted(shown) == sorted(means.values())
    for mean, color in shown.items():
        cell = axis.collections[0].cmap(min(mean, 1.0))
        dark, bright = sorted([luminance(color), luminance(cell)])
        assert (bright + 0.05) / (dark + 0.05) > 4.5
