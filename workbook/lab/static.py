"""What every widget needs: a page instead of itself where nobody can use it, and pictures that carry their alt text.

A widget is worth something only while a browser and a kernel talk. Run by papermill or nbconvert there is no browser,
so a `View` shows its page; in JupyterLab it shows itself and keeps the page beside, for whoever exports or reads the
saved notebook later (nbconvert takes the page where a widget's state was not saved).
"""

from __future__ import annotations

import base64
import html
import io
import sys
import traceback
from collections.abc import Callable, Sequence
from types import SimpleNamespace

import ipywidgets as widgets
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

SHORT = 12  # characters: a cell of a table that is never broken, such as a number
KEPT, CUT, INK = (
    "#0072B2",
    "#CCCCCC",
    "#222222",
)  # a token that a sampler keeps, one that it cuts (as in the quick start)


def cell() -> str:
    """The id of the notebook cell that runs, as the browser told it; "" where no notebook in a browser asked.

    JupyterLab, Notebook 7 and VS Code send it with every cell; papermill, nbconvert and nbgrader do not.
    """
    from IPython import get_ipython

    kernel = getattr(get_ipython(), "kernel", None)
    asked = kernel.get_parent("shell") if hasattr(kernel, "get_parent") else {}
    return str((asked.get("metadata") or {}).get("cellId") or "")


def front_end() -> bool:
    """Whether somebody can use a widget: a notebook in a browser runs this cell."""
    return bool(cell()) or "google.colab" in sys.modules


class View(widgets.VBox):
    """Controls in a column, and the page that stands for them where they cannot work.

    page: () -> HTML, asked whenever the view is displayed; summary: one line of plain text; controls: the single
    widgets by name, so that code (and a test) can move what a person moves: ``view.controls.token.value = 3``.
    """

    def __init__(self, children: Sequence[widgets.Widget], page: Callable[[], str], summary: str, **controls):
        self.page, self.summary, self.attended = page, summary, front_end()
        self.controls = SimpleNamespace(**controls)
        super().__init__(list(children))

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict:
        page = {"text/html": self.page(), "text/plain": self.summary}
        return {**super()._repr_mimebundle_(), **page} if self.attended else page


class Trouble(widgets.HTML):
    """Where an error in a callback is shown. Nobody sees it otherwise: JupyterLab puts it into a log that is closed."""

    def __init__(self):
        super().__init__(layout={"display": "none"})

    def guard(self, callback: Callable) -> Callable:
        """The callback; what it raises is shown here until it works again."""

        def guarded(*args) -> None:
            try:
                callback(*args)
            except Exception as error:
                self.value = say(f"{type(error).__name__}: {error}", "".join(traceback.format_exception(error)))
                self.layout.display = ""
            else:
                self.value, self.layout.display = "", "none"

        return guarded


def row(*children: widgets.Widget) -> widgets.HBox:
    """Controls side by side, on more lines where the window is narrow."""
    return widgets.HBox(children, layout={"flex_flow": "row wrap"})


def picture(figure: Figure) -> str:
    """A figure as an HTML image whose alt text is the figure's label."""
    out = io.BytesIO()
    FigureCanvasAgg(figure)
    figure.savefig(out, format="png", metadata={"Software": None})
    data = base64.b64encode(out.getvalue()).decode()
    return (
        f'<img style="max-width:100%" alt="{html.escape(str(figure.get_label()))}" src="data:image/png;base64,{data}">'
    )


def panels(count: int, width: float = 8.0, height: float = 2.8) -> tuple[Figure, list[Axes]]:
    """A figure with panels side by side, in the style of `workbook.figures.style`.

    Set by hand, because matplotlib's settings belong to all threads: a run in the background would change other cells'
    figures.
    """
    figure = Figure(figsize=(width, height), layout="constrained", facecolor="white", dpi=100)
    axes = list(figure.subplots(1, count, squeeze=False)[0])
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(color="#DDDDDD", linewidth=0.6)
        axis.set_axisbelow(True)
    return figure, axes


def table(head: Sequence[str], rows: Sequence[Sequence[str]], mark: int | None = None) -> str:
    """An HTML table of text; `mark`: the row that is pointed at, in bold, on a colour and announced as the current
    one."""
    left = "text-align:left;vertical-align:top;line-height:1.5;padding:1px 8px;white-space:"
    lines = [
        "<tr>" + "".join(f'<th scope="col" style="{left}normal">{html.escape(name)}</th>' for name in head) + "</tr>"
    ]
    for i, row in enumerate(rows):
        look = ' aria-current="true" style="background:#FFF1CC;color:#000;font-weight:bold"' if i == mark else ""
        wrap = ["nowrap" if len(text) <= SHORT else "normal" for text in row]
        lines.append(
            f"<tr{look}>" + "".join(f'<td style="{left}{w}">{html.escape(t)}</td>' for w, t in zip(wrap, row)) + "</tr>"
        )
    body = f'<table style="font-size:90%;border-collapse:collapse">{"".join(lines)}</table>'
    return (
        f'<div style="overflow-x:auto;width:0;min-width:100%" tabindex="0" role="group" aria-label="table">{body}</div>'
    )


def say(text: str, trouble: str = "") -> str:
    """A line that a screen reader announces when it changes; `trouble`: more lines, shown as they are, on red."""
    line = f'<div role="status" aria-live="polite" style="line-height:1.5"><b>{html.escape(text)}</b></div>'
    if not trouble:
        return line
    look = "white-space:pre-wrap;border-left:4px solid #D55E00;padding-left:8px;line-height:1.3"
    return f'{line}<pre role="alert" style="{look}">{html.escape(trouble)}</pre>'


def word(tokenizer, token: int) -> str:
    """A token as a person reads it: no spaces around, "␣" for one that is nothing else."""
    return " ".join(tokenizer.decode([token]).split()) or "␣"
