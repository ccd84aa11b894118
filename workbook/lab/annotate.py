"""Rate texts in JupyterLab: ``annotate.pairs`` (which of two?) and ``annotate.likert`` (1 to 5).

The rater sees no name of any system; the order of the items and the side of each response are drawn from the seed and
the rater's id, and recorded. Every answer is appended to the file at once; called again with the same file, rater and
seed, the widget goes on where the rater stopped. Keys work while the field under the texts has the focus (click on it,
or
Tab to it): 1 the left one, 2 the right one, 0 a tie, b back; for Likert 1 to 5 and b. The buttons do the same, and give
the
focus to the field: on a button, JupyterLab would take a b for "new cell" and two 0 for "restart the kernel".

A second answer that follows within `TOO_SOON_S` (a double click, a key held down, clicks while the kernel was busy) is
to a
question that nobody has read: it is not counted, and the rater is told so.

Under papermill and in exported HTML, where nobody can answer, stands a page with one item and how far the rater is.
"""

from __future__ import annotations

import html
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import ipywidgets as widgets

from workbook.lab import static
from workbook.study.raters import order
from workbook.study.ratings import SIMULATED, Choice, Likert, Pair, PreferenceError, Text, append, checked, load

TOO_SOON_S = 0.7  # keyboards begin to repeat after 0.2 to 0.66 s
BOX = (
    "border:1px solid "
    "#767676;border-radius:4px;padding:8px;margin:4px;line-height:1.5;overflow-wrap:anywhere;color:#222"
)
FRAME = f"{BOX};flex:1 1 9em;background:#fff"
PROMPT = f"{BOX};background:#eee"


class Annotation(static.View):
    """The widget. ratings: what this rater has answered; place: the question that is shown; done: nothing more to ask.

    tasks: one (question key, what is shown, answer -> rating) each; kept: () -> this rater's ratings in the file; ask:
    what is shown -> HTML; answers: key -> answer; names: key -> what its button says.
    """

    def __init__(self, tasks: list, path: Path, kept, ask, answers: dict[str, object], names: dict[str, str]):
        self.tasks, self.path, self.kept, self.ask, self.answers, self.names = tasks, path, kept, ask, answers, names
        self.ratings = kept()
        self.again: set[tuple] = set()  # questions that the rater went back to
        self.place, self.begun = self._next(), time.monotonic()
        self.counted = self.begun - TOO_SOON_S  # when the last answer came, counted or not
        self.shown, self.status, self.progress = widgets.HTML(), widgets.HTML(), widgets.IntProgress(0, 0, len(tasks))
        trouble = static.Trouble()
        self.press = trouble.guard(self._press)  # what a key or a button does; one without a meaning does nothing
        key = widgets.Text(
            description="key",
            placeholder=f"click here, then {' '.join(answers)} or b",
            layout={"width": "20em"},
            style={"description_width": "initial"},
        )
        key.observe(self._typed, "value")
        buttons = {
            k: widgets.Button(description=f"{k}: {names[k]}", tooltip=names[k], layout={"width": "auto"})
            for k in answers
        }
        buttons["b"] = widgets.Button(description="b: back", tooltip="to the question before", layout={"width": "auto"})
        for k, button in buttons.items():
            button.on_click(lambda _, k=k: (self.press(k), key.focus()))
        row, under = static.row(key, *buttons.values()), static.row(self.progress, self.status)
        children = [self.shown, row, trouble, under]
        super().__init__(children, self._page, "an annotation widget", key=key, buttons=buttons, trouble=trouble)
        self._show()

    @property
    def done(self) -> bool:
        return self.place == len(self.tasks)

    def _press(self, key: str) -> None:
        note = ""
        if key == "b" and self.place > 0:
            self.place -= 1
            self.again.add(self.tasks[self.place][0])
            note = self._given()
        elif key in self.answers and not self.done:
            now, before = time.monotonic(), self.counted
            self.counted = now
            if now - before < TOO_SOON_S:
                self._show(f"not counted: it came within {TOO_SOON_S:g} s of the answer before")
                return
            note = self._answer(key, round(now - self.begun, 1))
        else:
            return
        self.begun = time.monotonic()
        self._show(note)

    def _answer(self, key: str, seconds: float) -> str:
        """Put an answer into the file and go on; what there is to say about it.

        The file is read first: this rater may have answered in another tab, and two answers of one revision could not
        both stand.
        """
        kept, (question, _, record) = self.kept(), self.tasks[self.place]
        if lost := [rating for rating in self.ratings if rating not in kept]:
            raise PreferenceError(
                f"{self.path}: {len(lost)} of your answers are not in it any more. This one is not kept; run the "
                f"cell again to "
                "go on from what the file holds"
            )
        elsewhere = any(_question(rating) == question for rating in kept if rating not in self.ratings)
        self.ratings = kept
        if elsewhere:
            self.again.discard(question)
            self.place = self._next()
            return "not counted: you have answered that question in another window"
        revisions = [rating.revision for rating in kept if _question(rating) == question]
        rating = record(self.answers[key], seconds, max(revisions, default=-1) + 1)
        append(self.path, rating)
        self.ratings.append(rating)
        self.again.discard(question)
        self.place = self._next()
        return ""

    def _given(self) -> str:
        """What the rater has said about the question that is shown."""
        question, _, record = self.tasks[self.place]
        given = [rating for rating in self.ratings if _question(rating) == question]
        if not given:
            return ""
        last = max(given, key=lambda rating: rating.revision).answer
        return next(
            f"your answer was {k}: {self.names[k]}"
            for k, answer in self.answers.items()
            if record(answer, 0.0, 0).answer == last
        )

    def _next(self) -> int:
        """The first question that has no answer, or that the rater went back to."""
        answered = {_question(rating) for rating in self.ratings} - self.again
        return next((i for i, task in enumerate(self.tasks) if task[0] not in answered), len(self.tasks))

    def _typed(self, change) -> None:
        if change["new"]:
            self.controls.key.value = ""
            self.press(change["new"].strip()[-1:].lower())

    def _show(self, note: str = "") -> None:
        answered = len({_question(rating) for rating in self.ratings})
        self.progress.value = answered
        self.status.value = static.say(f"{answered} of {len(self.tasks)} answered{'; ' + note if note else ''}")
        self.shown.value = "<b>All answered. Thank you.</b>" if self.done else self.ask(self.tasks[self.place][1])
        self.summary = f"{answered} of {len(self.tasks)} answered, kept in {self.path.name}"
        for key, button in self.controls.buttons.items():
            button.disabled = self.place == 0 if key == "b" else self.done

    def _page(self) -> str:
        shown = self.ask(self.tasks[min(self.place, len(self.tasks) - 1)][1])
        return f"{shown}<p>{html.escape(self.summary)}. To answer, run this cell in JupyterLab.</p>"


def pairs(
    items: Sequence[Pair], path: str | Path, rater: str, seed: int = 0, question: str = "Which response is better?"
) -> Annotation:
    """Choose between two responses, item after item; answers go to ``path`` (.jsonl or .csv) as ``ratings.Choice``.

    rater: an id, not a name that tells who it is. Returns the widget. Raises: PreferenceError for no items, items that
    are no pairs or share an id, an empty rater id or one that begins with "simulated-", and a file that holds other
    items, broken rows or contradictions.
    """
    items, rater, path = _checked(items, Pair, rater, path)

    def ask(shown) -> str:
        pair, left = shown
        sides = [pair.first, pair.second] if left == "first" else [pair.second, pair.first]
        boxes = "".join(
            f'<div style="{FRAME}"><b>{number} ({where})</b><br>{_text(text)}</div>'
            for number, where, text in zip("12", ("left", "right"), sides)
        )
        return _asked(question, pair.prompt) + f'<div style="display:flex;flex-wrap:wrap">{boxes}</div>'

    def task(place: int, pair: Pair, left: str):
        sides = {"left": left, "right": "second" if left == "first" else "first", "tie": "tie"}

        def record(answer: str, seconds: float, revision: int) -> Choice:
            return Choice(pair.id, rater, sides[answer], left, place, seconds, revision)

        return (pair.id, ""), (pair, left), record

    tasks = [task(place, pair, left) for place, (pair, left) in enumerate(order(items, rater, seed))]
    answers, names = ("left", "right", "tie"), ("left is better", "right is better", "no difference")
    kept = partial(_kept, path, Choice, rater, items)
    return Annotation(tasks, path, kept, ask, dict(zip("120", answers)), dict(zip("120", names)))


def likert(
    items: Sequence[Text],
    path: str | Path,
    rater: str,
    questions: Sequence[str] = ("This text is coherent.", "This text is positive."),
    seed: int = 0,
) -> Annotation:
    """Say how far statements hold for each text, 1 (not at all) to 5 (fully).

    Answers go to ``path`` as ``ratings.Likert``; the rest is as in ``pairs``. Raises: PreferenceError, as there, and
    for no questions or one that is asked twice.
    """
    items, rater, path = _checked(items, Text, rater, path)
    questions = list(questions)
    if not questions or len(set(questions)) < len(questions):
        raise PreferenceError(f"questions: expected one or more different ones, got {questions}")

    def ask(shown) -> str:
        text, question = shown
        return _asked(question, text.prompt) + f'<div style="{FRAME}">{_text(text.response)}</div>'

    def task(place: int, text: Text, question: str):
        def record(answer: int, seconds: float, revision: int) -> Likert:
            return Likert(text.id, rater, question, answer, place, seconds, revision)

        return (text.id, question), (text, question), record

    tasks = [task(place, text, q) for place, (text, _) in enumerate(order(items, rater, seed)) for q in questions]
    names = {"1": "not at all", "2": "hardly", "3": "partly", "4": "mostly", "5": "fully"}
    kept = partial(_kept, path, Likert, rater, items)
    return Annotation(tasks, path, kept, ask, {key: int(key) for key in names}, names)


def _checked(items: Sequence, kind: type, rater: str, path: str | Path) -> tuple[list, str, Path]:
    items, rater = list(items), str(rater).strip()
    if not items:
        raise PreferenceError("nothing to rate: no items")
    wrong = next((item for item in items if not isinstance(item, kind)), None)
    if wrong is not None:
        raise PreferenceError(f"items: expected {kind.__name__}s (ratings.load), found {type(wrong).__name__}")
    if not rater or rater.startswith(SIMULATED):
        raise PreferenceError(f"rater: expected an id that does not begin with {SIMULATED!r}, got {rater!r}")
    if Path(path).suffix not in (".jsonl", ".csv"):  # now, not with the first answer
        raise PreferenceError(f"{path}: expected a name that ends in .jsonl or .csv")
    checked([], items)
    return items, rater, Path(path)


def _kept(path: Path, kind: type, rater: str, items: list) -> list:
    """This rater's answers that the file holds already; other raters' are checked and left alone."""
    if not path.exists():
        return []
    rows = load(path, kind, may_be_empty=True)
    try:
        checked(rows, items)
    except PreferenceError as error:
        raise PreferenceError(
            f"{path}: {error}; a file belongs to one set of items, other items need another file"
        ) from None
    return [row for row in rows if row.rater == rater]


def _question(rating: Choice | Likert) -> tuple[str, str]:
    return rating.item, getattr(rating, "question", "")


def _asked(question: str, prompt: str) -> str:
    return f'<p><b>{html.escape(question)}</b></p><div style="{PROMPT}"><b>prompt</b><br>{_text(prompt)}</div>'


def _text(text: str) -> str:
    return html.escape(text).replace("\n", "<br>") or "<i>(empty)</i>"
