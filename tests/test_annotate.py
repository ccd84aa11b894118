"""The annotation widgets: keys and buttons, blind, randomised, resumable; in Python, under papermill, and in a
browser."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import ipywidgets
import nbformat
import pytest

from workbook.lab import annotate
from workbook.stages.nb import KERNEL
from workbook.study import raters, ratings
from workbook.study.ratings import Choice, Likert, Pair, PreferenceError, Text

from .lab import MARKS, SHOTS, SLOWER, browser_page, open_notebook, run_all, serve
from .waiting import until

PAIRS = [Pair(f"id-{i}", f"prompt <{i}>", f"first {i}", f"second {i}", "SECRET_OLD", "SECRET_NEW") for i in range(6)]
TEXTS = [Text(f"id-{i}", f"prompt {i}", f"text {i}", "SECRET") for i in range(3)]


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """A test answers faster than a person reads."""
    monkeypatch.setattr(annotate, "TOO_SOON_S", 0.0)


def typed(widget, *keys):
    """What a browser does when keys are pressed in the field: the value changes, and the widget empties it."""
    for key in keys:
        widget.controls.key.value = key
        assert widget.controls.key.value == ""


def words(widget) -> str:
    """Every text that the browser is sent."""
    parts = [getattr(widget, name, "") for name in ("value", "description", "tooltip", "placeholder")]
    return " ".join(map(str, parts)) + "".join(words(child) for child in getattr(widget, "children", ()))


def test_keys_choose_and_every_answer_is_in_the_file_at_once(tmp_path):
    path = tmp_path / "ann.jsonl"
    widget, shown = annotate.pairs(PAIRS, path, "ann", seed=3), raters.order(PAIRS, "ann", 3)
    assert not path.exists() and isinstance(widget, ipywidgets.Widget)
    for number, (key, (pair, left)) in enumerate(zip("120", shown)):
        place = [widget.shown.value.find(text) for text in (pair.first, pair.second)]
        assert (
            min(place) > 0
            and (place[0] < place[1]) == (left == "first")
            and f"prompt &lt;{pair.id[-1]}&gt;" in widget.shown.value
        )
        typed(widget, key)
        other = {"first": "second", "second": "first"}[left]
        assert ratings.load(path, Choice)[number:] == widget.ratings[number:]
        row = widget.ratings[-1]
        assert (row.item, row.rater, row.chosen) == (pair.id, "ann", {"1": left, "2": other, "0": "tie"}[key])
        assert (row.left, row.place, row.revision) == (left, number, 0) and row.seconds >= 0
        assert f"{number + 1} of 6 answered" in widget.status.value and widget.progress.value == number + 1
    typed(widget, "7", "x", " ")
    assert len(widget.ratings) == 3


def test_buttons_do_what_keys_do_and_stop_when_all_is_answered(tmp_path):
    widget = annotate.pairs(PAIRS[:2], tmp_path / "r.csv", "ann")
    assert widget.controls.buttons["b"].disabled and not widget.controls.buttons["1"].disabled
    widget.controls.buttons["1"].click()
    assert not widget.controls.buttons["b"].disabled
    widget.controls.buttons["0"].click()
    assert widget.done and "All answered" in widget.shown.value and widget.controls.buttons["1"].disabled
    typed(widget, "1")
    assert [row.chosen for row in ratings.load(tmp_path / "r.csv", Choice)] == [
        raters.order(PAIRS[:2], "ann")[0][1],
        "tie",
    ]


def test_a_rater_goes_on_where_she_stopped_even_after_a_torn_line(tmp_path):
    path = tmp_path / "r.jsonl"
    typed(annotate.pairs(PAIRS, path, "ann"), "1", "2")
    with open(path, "ab") as file:
        file.write(b'{"item": "id-')
    again = annotate.pairs(PAIRS, path, "ann")
    assert again.place == 2 and len(again.ratings) == 2
    typed(again, *"1111")
    rows = ratings.checked(ratings.load(path, Choice), PAIRS)
    assert len(rows) == 6 and [row.place for row in rows] == list(range(6)) and annotate.pairs(PAIRS, path, "ann").done


def test_raters_share_a_file_and_see_other_orders(tmp_path):
    path = tmp_path / "r.jsonl"
    ann, bob = annotate.pairs(PAIRS, path, "ann"), annotate.pairs(PAIRS, path, "bob")
    typed(ann, *"111111"), typed(bob, *"11")
    rows = ratings.load(path, Choice)
    assert [row.rater for row in rows] == ["ann"] * 6 + ["bob"] * 2
    assert [row.item for row in rows[:2]] != [row.item for row in rows[6:]] or rows[0].left != rows[6].left
    assert annotate.pairs(PAIRS, path, "bob").place == 2


def test_back_asks_again_and_the_last_answer_counts(tmp_path):
    path = tmp_path / "r.jsonl"
    widget = annotate.pairs(PAIRS, path, "ann")
    typed(widget, "b")
    assert widget.place == 0 and not path.exists()
    typed(widget, "1", "1", "b", "b")
    assert widget.place == 0 and "2 of 6 answered" in widget.status.value
    typed(widget, "0", "2")
    assert widget.place == 2
    typed(widget, "b", "0")
    rows = ratings.load(path, Choice)
    assert [row.revision for row in rows] == [0, 0, 1, 1, 2] and len(ratings.checked(rows, PAIRS)) == 2
    assert {row.chosen for row in ratings.checked(rows, PAIRS)} == {"tie"}
    assert annotate.pairs(PAIRS, path, "ann").place == 2


def test_who_goes_back_is_told_what_the_answer_was(tmp_path):
    widget = annotate.pairs(PAIRS, tmp_path / "r.jsonl", "ann")
    for key, said in zip("120", ("1: left is better", "2: right is better", "0: no difference")):
        typed(widget, key, "b")
        assert f"your answer was {said}" in widget.status.value
        typed(widget, key)
        assert "your answer was" not in widget.status.value
    rate = annotate.likert(TEXTS, tmp_path / "l.jsonl", "ann")
    typed(rate, "4", "3", "b", "b")
    assert "your answer was 4: mostly" in rate.status.value
    typed(rate, "2", "1", "b", "b")
    assert "your answer was 2: hardly" in rate.status.value


def test_a_double_click_and_a_held_key_count_once(tmp_path, monkeypatch):
    monkeypatch.setattr(annotate, "TOO_SOON_S", 30.0)
    widget = annotate.pairs(PAIRS, tmp_path / "r.jsonl", "ann")
    widget.controls.buttons["1"].click()
    for _ in range(3):
        widget.controls.buttons["1"].click()
        typed(widget, "1")
        assert "1 of 6 answered; not counted" in widget.status.value and widget.place == 1
    typed(widget, "b", "0")  # nor does going back make way for it
    assert len(ratings.load(tmp_path / "r.jsonl", Choice)) == 1
    monkeypatch.setattr(annotate, "TOO_SOON_S", 0.0)
    typed(widget, "0")
    assert [row.chosen for row in ratings.checked(ratings.load(tmp_path / "r.jsonl", Choice))] == ["tie"]


def test_a_click_leaves_the_keys_working(tmp_path, monkeypatch):
    """The focus goes to the field: on a button, JupyterLab's own keys b and 0 0 make a cell and restart the kernel."""
    sent = []
    widget = annotate.pairs(PAIRS, tmp_path / "r.jsonl", "ann")
    monkeypatch.setattr(widget.controls.key, "send", sent.append)
    widget.controls.buttons["1"].click()
    assert sent == [{"do": "focus"}]


def test_one_rater_in_two_windows_leaves_a_file_that_can_be_used(tmp_path):
    path = tmp_path / "r.jsonl"
    one, two = annotate.pairs(PAIRS, path, "ann"), annotate.pairs(PAIRS, path, "ann")
    typed(one, "1", "1")
    typed(two, "2")
    assert "not counted: you have answered that question in another window" in two.status.value and two.place == 2
    typed(two, "0", "b"), typed(one, "0", "b", "2")
    typed(two, "1")  # both went back to the third question
    typed(two, "b", "1")
    rows = ratings.checked(ratings.load(path, Choice), PAIRS)
    assert len(rows) == 3 and annotate.pairs(PAIRS, path, "ann").place == 3


def test_an_answer_that_cannot_be_kept_is_said_and_asked_again(tmp_path):
    path = tmp_path / "r.jsonl"
    widget = annotate.pairs(PAIRS, path, "ann")
    typed(widget, "1")
    kept = path.read_bytes()
    path.unlink()
    typed(widget, "2")
    trouble = widget.controls.trouble
    assert "1 of your answers are not in it any more" in trouble.value and trouble.layout.display == ""
    assert widget.place == 1 and not path.exists()
    path.write_bytes(kept)
    typed(widget, "2")
    assert (
        len(ratings.load(path, Choice)) == 2
        and widget.place == 2
        and trouble.layout.display == "none"
        and not trouble.value
    )
    blocked = annotate.pairs(PAIRS, path / "no folder" / "r.jsonl", "ann")
    typed(blocked, "1")
    assert "NotADirectoryError" in blocked.controls.trouble.value and blocked.place == 0 and not blocked.ratings


def test_the_rater_is_told_nothing_about_systems(tmp_path):
    choose, rate = (
        annotate.pairs(PAIRS, tmp_path / "p.jsonl", "ann"),
        annotate.likert(TEXTS, tmp_path / "l.jsonl", "ann"),
    )
    for _ in range(7):
        for widget in (choose, rate):
            assert "SECRET" not in words(widget) + widget.page() and "id-" not in words(widget)
            typed(widget, "1")
    assert "SECRET" not in (tmp_path / "p.jsonl").read_text() + (tmp_path / "l.jsonl").read_text()


def test_likert_asks_every_question_about_every_text(tmp_path):
    path, questions = tmp_path / "l.csv", ["Is it coherent?", "Is it <kind>?"]
    widget = annotate.likert(TEXTS, path, "ann", questions, seed=1)
    assert "Is it coherent?" in widget.shown.value and set(widget.controls.buttons) == {*"12345", "b"}
    typed(widget, "5")
    assert "Is it &lt;kind&gt;?" in widget.shown.value
    typed(widget, "0", "4", "1")
    order = [text.id for text, _ in raters.order(TEXTS, "ann", 1)]
    rows = [(row.item, row.question, row.value, row.place) for row in ratings.load(path, Likert)]
    assert rows == [(order[0], questions[0], 5, 0), (order[0], questions[1], 4, 0), (order[1], questions[0], 1, 1)]
    assert annotate.likert(TEXTS, path, "ann", questions, seed=1).place == 3


def test_where_nobody_can_answer_a_page_stands_for_the_widget(tmp_path):
    widget = annotate.pairs(PAIRS, tmp_path / "r.jsonl", "ann")
    shown = widget._repr_mimebundle_()
    assert set(shown) == {"text/html", "text/plain"} and "first " in shown["text/html"]
    assert "0 of 6 answered" in shown["text/html"] and "<button" not in shown["text/html"]
    typed(widget, *"111111")
    assert "6 of 6 answered" in widget._repr_mimebundle_()["text/html"]
    widget.attended = True
    assert "application/vnd.jupyter.widget-view+json" in widget._repr_mimebundle_()


@pytest.mark.parametrize(
    ("items", "rater", "message"),
    [
        ([], "ann", "nothing to rate: no items"),
        (TEXTS, "ann", "items: expected Pairs .*, found Text"),
        (PAIRS, " ", "rater: expected an id"),
        (PAIRS, "simulated-1", "an id that does not begin with 'simulated-'"),
        ([PAIRS[0], PAIRS[0]], "ann", "the id 'id-0' is given to 2"),
    ],
)
def test_what_cannot_be_rated_is_said_before_anything_is_shown(tmp_path, items, rater, message):
    with pytest.raises(PreferenceError, match=message):
        annotate.pairs(items, tmp_path / "r.jsonl", rater)


def test_a_file_of_something_else_is_refused(tmp_path):
    path = tmp_path / "r.jsonl"
    ratings.save(path, [Choice("id-9", "bob", "first")])
    with pytest.raises(PreferenceError, match="rater 'bob' rated 'id-9', which is no item"):
        annotate.pairs(PAIRS, path, "ann")
    ratings.save(path, [Choice("id-1", "bob", "first"), Choice("id-1", "bob", "tie")])
    with pytest.raises(PreferenceError, match="rater 'bob' answered item 'id-1' twice"):
        annotate.pairs(PAIRS, path, "ann")
    with pytest.raises(PreferenceError, match=r"r.jsonl, line 1: no column 'question'"):
        annotate.likert(TEXTS, path, "ann")
    with pytest.raises(PreferenceError, match="expected one or more different ones"):
        annotate.likert(TEXTS, tmp_path / "l.jsonl", "ann", [])
    with pytest.raises(PreferenceError, match="ends in .jsonl or .csv"):
        annotate.pairs(PAIRS, tmp_path / "r.txt", "ann")


# in a kernel -----------------------------------------------------------------------------------------------------
CELLS = [
    "from workbook.study.ratings import Pair, Text\nfrom workbook.lab import annotate\n"
    "pairs = [Pair(f'id-{i}', 'the film', f'first {i}', f'second {i}', 'SECRET', 'HIDDEN') for i in range(3)]\n"
    "texts = [Text(f'id-{i}', 'the film', f'text {i}', 'SECRET') for i in range(2)]",
    "annotate.pairs(pairs, 'choices.jsonl', 'ann')",
    "annotate.likert(texts, 'ratings.csv', 'ann', ['Is it good?'])",
]


def notebook(folder: Path) -> Path:
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code) for code in CELLS])
    made.metadata["kernelspec"] = KERNEL
    nbformat.write(made, folder / "rate.ipynb")
    return folder / "rate.ipynb"


@pytest.mark.slow
def test_papermill_and_html_show_the_page_and_write_no_rating(tmp_path):
    command = [
        sys.executable,
        "-m",
        "workbook.stages.nb",
        "run",
        str(notebook(tmp_path)),
        "out.ipynb",
        "--html",
        "out.html",
    ]
    done = subprocess.run(command, check=False, cwd=tmp_path, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr[-3000:]
    page = (tmp_path / "out.html").read_text(encoding="utf-8")
    assert "0 of 3 answered" in page and "0 of 2 answered" in page and "Is it good?" in page
    outputs = nbformat.read(tmp_path / "out.ipynb", 4).cells[1].outputs
    assert len(outputs) == 1 and "SECRET" not in str(outputs) and not list(tmp_path.glob("*.jsonl"))


@pytest.fixture
def lab(tmp_path):
    with serve(tmp_path, notebook(tmp_path).name) as address:
        yield address


def waited(path: Path, kind: type, n: int) -> list:
    until(
        lambda: path.exists() and len(ratings.load(path, kind, may_be_empty=True)) >= n,
        f"{path.name}: {n} ratings",
        60 * SLOWER,
    )
    return ratings.load(path, kind)


class TestInABrowser:
    pytestmark = MARKS

    def test_a_person_rates_with_keys_and_buttons(self, lab, tmp_path):
        shots = Path(SHOTS or tmp_path / "shots")
        shots.mkdir(parents=True, exist_ok=True)
        with browser_page() as page:
            open_notebook(page, lab, cells=len(CELLS))
            run_all(page)
            outputs = [page.locator(".jp-CodeCell").nth(i).locator(".jp-OutputArea").first for i in range(len(CELLS))]
            here = outputs[1]
            here.scroll_into_view_if_needed()
            here.get_by_label("key").focus()
            for number, key in enumerate(("1", "2"), 1):
                page.keyboard.press(key)
                waited(tmp_path / "choices.jsonl", Choice, number)
                page.wait_for_function(
                    f"() => document.body.innerText.includes('{number} of 3 answered')", timeout=60_000 * SLOWER
                )
                page.wait_for_timeout(1000 * SLOWER)  # a person reads
            here.screenshot(path=shots / "annotate_pairs.png")
            page.keyboard.press("b")
            page.wait_for_timeout(1000 * SLOWER)
            page.keyboard.press("0")
            rows = waited(tmp_path / "choices.jsonl", Choice, 3)
            assert (
                [row.revision for row in rows] == [0, 0, 1] and rows[2].chosen == "tie" and rows[2].item == rows[1].item
            )
            number = page.evaluate("() => window.jupyterapp.shell.currentWidget.content.widgets.length")
            page.wait_for_timeout(1000 * SLOWER)
            here.get_by_role("button", name="1: left is better").click()
            rows = waited(tmp_path / "choices.jsonl", Choice, 4)
            page.wait_for_function(
                "() => document.activeElement.placeholder?.startsWith('click here')", timeout=60_000 * SLOWER
            )
            for key in "00b":  # on a button, JupyterLab would ask whether to restart the kernel, and make a cell
                page.keyboard.press(key)
            here.get_by_text("your answer was 1: left is better").wait_for(timeout=60_000 * SLOWER)
            page.wait_for_timeout(1000 * SLOWER)
            assert not page.locator(".jp-Dialog").count()
            assert page.evaluate("() => window.jupyterapp.shell.currentWidget.content.widgets.length") == number
            here.get_by_role("button", name="1: left is better").click()
            rows = waited(tmp_path / "choices.jsonl", Choice, 5)
            shown = raters.order([Pair(f"id-{i}", "", "", "") for i in range(3)], "ann")
            assert rows[0].chosen == shown[0][1] and rows[1].chosen != shown[1][1] and rows[3].chosen == shown[2][1]
            here.get_by_text("All answered").wait_for(timeout=60_000 * SLOWER)

            there = outputs[2]
            there.scroll_into_view_if_needed()
            there.get_by_role("button", name="5: fully").dblclick()  # counts once
            waited(tmp_path / "ratings.csv", Likert, 1)
            there.get_by_text("1 of 2 answered; not counted").wait_for(timeout=60_000 * SLOWER)
            there.screenshot(path=shots / "annotate_likert.png")
            page.wait_for_timeout(1000 * SLOWER)
            there.get_by_role("button", name="2: hardly").focus()
            page.keyboard.press("Enter")
            assert [row.value for row in waited(tmp_path / "ratings.csv", Likert, 2)] == [5, 2]
            assert not any(name in output.inner_html() for name in ("SECRET", "HIDDEN") for output in (here, there))
