"""The forest plot shows every tested contrast with a published effect, where it lies, in marks that need no colour."""

from __future__ import annotations

import matplotlib.colors
import pytest

from workbook.figures.parts import save
from workbook.ledger.forest import LOOKS, OTHERS, WIDEST, agreement, contrasts, forest


def test_of(
    name: str, effect, published, half: float | None = 0.2, role: str = "decides", unit: str = "yardsticks"
) -> dict:
    def around(value, side):
        return None if value is None or half is None else value + side * half

    return {
        "name": name,
        "role": role,
        "unit": unit,
        "n": 5,
        "effect": effect,
        "effect_low": around(effect, -1),
        "effect_high": around(effect, 1),
        "published": published,
        "published_low": around(published, -1),
        "published_high": around(published, 1),
    }


test_of.__test__ = False


def ledger(**claims: list[dict]) -> list[dict]:
    return [{"id": name, "components": components} for name, components in claims.items()]


ROWS = ledger(
    P02=[test_of("late", 0.1, 0.3)],
    P01=[
        test_of("no published effect", 0.5, None),
        test_of("another unit", 0.5, 0.5, unit="log ratio of spreads"),
        test_of("not run", None, 0.5),
        test_of("first", 0.5, 0.6),
        test_of("second", -0.4, 0.7, role="beside"),
    ],
    P03=[],
)


def marks(figure, gid: str) -> list:
    return [line for line in figure.axes[0].lines if line.get_gid() == gid]


def test_it_has_the_tested_contrasts_with_a_published_effect_claim_by_claim():
    found = contrasts({"mini": ROWS})
    assert [(c.claim, c.name) for c in found] == [("P01", "first"), ("P01", "second"), ("P02", "late")]
    assert [c.decides for c in found] == [True, False, True]
    names = [label.get_text() for label in forest({"mini": ROWS}).axes[0].get_yticklabels()]
    assert names == ["P01  first", "P01  second", "P02  late"]


def test_profiles_share_rows_in_the_order_of_the_tests():
    only_second = ledger(P01=[test_of("first", None, 0.6), test_of("second", 0.2, 0.7)])
    only_first = ledger(P01=[test_of("first", 0.1, 0.6), test_of("second", None, 0.7)])
    found = contrasts({"mini": only_second, "full": only_first})
    assert [(c.name, list(c.measured)) for c in found] == [("first", ["full"]), ("second", ["mini"])]


def test_marks_stand_where_the_numbers_are_and_differ_without_colour():
    figure = forest({"mini": ROWS, "imdb": ROWS[:1], "mine": ROWS[1:2]})
    published, measured = marks(figure, "published"), marks(figure, "measured")
    assert [m.get_xdata()[0] for m in published] == [0.6, 0.7, 0.3]
    assert sorted(m.get_xdata()[0] for m in measured) == sorted([0.5, -0.4, 0.1, 0.1, 0.5, -0.4])
    assert all(m.get_markerfacecolor() == "white" and m.get_marker() == "D" for m in published)
    assert {m.get_marker() for m in measured} == {LOOKS["mini"][1], LOOKS["imdb"][1], OTHERS[0][1]}
    assert len({marker for _, marker in (*LOOKS.values(), *OTHERS)} | {"D"}) == len(LOOKS) + len(OTHERS) + 1
    assert {line.get_linestyle() for line in marks(figure, "interval")} == {"-", "--"}
    assert len({matplotlib.colors.to_hex(color) for color, _ in (*LOOKS.values(), *OTHERS)}) == len(LOOKS) + len(OTHERS)
    spans = [tuple(line.get_xdata()) for line in marks(figure, "interval") if line.get_linestyle() == "-"]
    assert (pytest.approx(0.3), pytest.approx(0.7)) in spans
    heights = [line.get_ydata()[0] for line in (*published, *measured)]
    assert len({round(y, 6) for y in heights}) == len(heights), "two marks on one line"


def test_what_is_beyond_the_axis_stands_at_its_edge_with_its_number():
    inside = [test_of(f"t{i}", 0.2, 0.3) for i in range(30)]
    rows = ledger(P01=[*inside, test_of("far", 7.0, -5.0), test_of("wide", 0.0, 0.1, half=9.0)])
    figure = forest({"mini": rows})
    axis = figure.axes[0]
    low, high = axis.get_xlim()
    assert -WIDEST <= low == -high
    assert all(low <= x <= high for line in axis.lines if line.get_gid() for x in line.get_xdata())
    assert {text.get_text() for text in axis.texts} == {"+7.0 →", "← −5.0"}
    assert {tuple(m.get_xdata()) + (m.get_marker(),) for m in marks(figure, "goes on")} == {(low, "<"), (high, ">")}
    assert len(marks(figure, "goes on")) == 6  # far: one each, published and measured; wide: both sides of both


def test_it_says_in_words_what_it_shows(tmp_path):
    figure = forest({"mini": ROWS})
    said = "mini: the published direction in 2 of 3 contrasts, the published effect inside our interval in 2 of 3."
    assert said == agreement(contrasts({"mini": ROWS}), "mini") and said in figure.get_label()
    assert "P01 second (mini: published +0.70, measured −0.40)" in figure.get_label()
    caption = " ".join(figure.get_supxlabel().split())
    assert said in caption and "95 % intervals" in caption and "Open diamond" in caption
    assert "measured, mini (n = 5 seeds)" in [text.get_text() for text in figure.legends[0].get_texts()]
    save(figure, tmp_path, "forest")
    first = (tmp_path / "forest.svg").read_bytes()
    save(forest({"mini": ROWS}), tmp_path, "forest")
    assert (tmp_path / "forest.svg").read_bytes() == first


def test_it_says_of_how_much_the_intervals_of_a_registered_design_are():
    looks = [{**row, "look": 8 * (i + 1), "level": 0.0125 * (i + 1)} for i, row in enumerate(ROWS)]
    caption, both = (
        " ".join(forest(found).get_supxlabel().split())
        for found in ({"settle": looks}, {"mini": ROWS, "settle": looks})
    )
    said = "98.75, 97.5 or 96.25 %, by a claim's look; published:"
    assert f"Lines: intervals over seeds ({said} 95 %, where a spread was published). Marks" in caption
    assert f"Lines: 95 % intervals over seeds (settle: {said} where a spread was published). Marks" in both
    plain = " ".join(forest({"mini": ROWS}).get_supxlabel().split())
    assert "Lines: 95 % intervals over seeds (published: where a spread was published). Marks" in plain


@pytest.mark.parametrize("role", ["decides", "beside"])
def test_it_speaks_of_italics_where_there_are_any(role):
    figure = forest({"mini": ledger(P01=[test_of("a", 0.2, 0.3), test_of("b", 0.2, 0.3, role=role)])})
    styles = {label.get_style() for label in figure.axes[0].get_yticklabels()}
    assert ("italic" in styles) == ("italics" in figure.get_supxlabel()) == (role == "beside")


def test_one_seed_has_marks_and_no_intervals():
    rows = ledger(P01=[test_of("a", 0.2, 0.3, half=None)])
    figure = forest({"smoke": rows})
    assert not marks(figure, "interval") and len(marks(figure, "measured")) == 1
    assert agreement(contrasts({"smoke": rows}), "smoke") == "smoke: the published direction in 1 of 1 contrasts."
    assert agreement(contrasts({"smoke": rows}), "mini") == ""


def test_nothing_to_show_is_an_error():
    with pytest.raises(ValueError, match="none of the tested contrasts has a published effect"):
        forest({"mini": ledger(P01=[test_of("not run", None, 0.5)])})
