"""The run browser: pick finished runs, compare their learning curves, their samples and what score cost them in KL."""

from __future__ import annotations

import html
from pathlib import Path

import ipywidgets as widgets

from workbook.lab import compared, static
from workbook.lab.compared import COSTS, GAINS, MOST, ROWS
from workbook.lab.finished import Found, find, rows_of

FIRST = ("zero_shot", "ppo_kl_0", "ppo_kl_default", "nlpo_kl_default")  # chosen at first, where they are there
VIEWS = {"curves": "scores in training", "frontier": "score against its cost", "samples": "texts"}


def runs(folder: str | Path = "runs", reports: str | Path = "reports/mini") -> Browser:
    """Choose among the finished runs under `folder`, up to eight at a time, and compare them.

    Runs that only the table of `reports` knows (a fresh clone: the pipeline's folders are not in git) have numbers for
    the frontier, but no curves and no samples. Where nothing has been run, the view says what to type.
    """
    return Browser(folder, reports)


class Browser(static.View):
    """found: the finished runs, as they were when the folders were last read. Made by `runs`."""

    def __init__(self, folder: str | Path, reports: str | Path):
        self.places, self.found = (folder, reports), find(folder, reports)
        self._filling = False  # whether the controls are being filled, not used
        # boxes, not a list of which several are selected: JupyterLab takes the up and down keys, with shift too, for
        # itself
        self._boxes: dict[str, widgets.Checkbox] = {}
        self._trouble = static.Trouble()
        name = widgets.Text(
            description="runs",
            placeholder="part of a name",
            continuous_update=False,
            tooltip="list the runs of this name",
        )
        column = widgets.VBox(layout={"max_height": "13em", "overflow": "auto", "width": "24em"})
        only_numbers = self.found.conditions and not self.found.folders  # they draw no curve
        view = widgets.ToggleButtons(
            options=list(VIEWS),
            value="frontier" if only_numbers else "curves",
            description="show",
            tooltips=list(VIEWS.values()),
        )
        metric = widgets.Dropdown(description="metric", tooltip="drawn on the right")
        gain = widgets.Dropdown(description="up", tooltip="what is gained")
        cost = widgets.Dropdown(description="across", tooltip="what it costs")
        decoding = widgets.Dropdown(description="decoding", tooltip="how the texts were drawn from the policies")
        seed = widgets.Dropdown(description="seed", tooltip="whose texts")
        first = widgets.IntSlider(1, 1, 1, description="prompt", continuous_update=False)
        again = widgets.Button(description="look again", icon="refresh", tooltip="read the folders again")
        shown = widgets.HTML()
        self._of_view = {"curves": [metric], "frontier": [gain, cost, decoding], "samples": [seed, first]}
        menus = [control for controls in self._of_view.values() for control in controls]
        choices = static.row(widgets.VBox([name, column]), widgets.VBox([view, *menus, again]))
        controls = {"name": name, "column": column, "view": view, "metric": metric, "gain": gain, "cost": cost}
        controls |= {"decoding": decoding, "seed": seed, "first": first, "again": again, "shown": shown}
        super().__init__(
            [choices, self._trouble, shown],
            self._page,
            f"run browser: {len(self.found.conditions)} finished runs",
            boxes=self._boxes,
            trouble=self._trouble,
            **controls,
        )
        again.on_click(self._trouble.guard(self._look_again))
        name.observe(self._trouble.guard(self._list_boxes), "value")
        for control in (view, *menus):
            control.observe(self._trouble.guard(self._show), "value")
        self._fill()

    def _chosen(self) -> list[str]:
        return [condition for condition, box in self._boxes.items() if box.value]

    def _list_boxes(self, *_) -> None:
        wanted = self.controls.name.value.strip().lower()
        there = [box for condition, box in self._boxes.items() if box.value or wanted in condition.lower()]
        self.controls.column.children = there

    def _show(self, *_) -> None:
        if not self._filling:
            which = self.controls.view.value
            for view, controls in self._of_view.items():
                for control in controls:
                    control.layout.display = "" if view == which and self.found.conditions else "none"
            self.controls.shown.value = self._body(which)

    def _body(self, which: str) -> str:
        found, names, at = self.found, self._chosen(), self.controls
        if not found.conditions:
            return nothing(*self.places) + _problems(found)
        if not names:
            return static.say("choose a run")
        many = len(names) > MOST
        more = static.say(f"only the first {MOST} of the {len(names)} chosen are shown") if many else ""
        names = names[:MOST]
        if which == "frontier":
            body = compared.frontier(found.per_seed, names, at.gain.value, at.cost.value, at.decoding.value)
        elif which == "curves":
            body = compared.curves(found, names, at.metric.value)
        else:
            body = compared.samples(found, names, at.seed.value, at.first.value)
        return more + body + _problems(found)

    def _page(self) -> str:
        return "".join(self._body(which) for which in (VIEWS if self.found.folders else ["frontier"]))

    def _look_again(self, _) -> None:
        self.found = find(*self.places)
        self._fill()

    def _fill(self) -> None:
        """Set what can be chosen, and keep what was."""
        found, at, self._filling = self.found, self.controls, True
        self._fill_boxes()
        self._list_boxes()
        table = found.per_seed
        if len(table):
            _offer(at.gain, [c for c in GAINS if c in table], "score")
            _offer(at.cost, [c for c in COSTS if c in table], "kl_deployed")
            _offer(at.decoding, list(dict.fromkeys(table[table.split == "test"].decoding)), "plain")
            _offer(at.seed, sorted(set(table.seed)), None)
        curves = [rows_of(found, c, "curves.csv") for c in found.folders]
        names = dict.fromkeys(n for rows in curves if len(rows) for n in rows[0])
        _offer(at.metric, [n for n in names if n not in ("condition", "seed", "update")], "objective/kl")
        prompts = [len({s["example_id"] for s in rows_of(found, c, "samples.jsonl")}) for c in found.folders]
        at.first.max = max([1, *(n - ROWS + 1 for n in prompts)])
        self._filling = False
        self._show()

    def _fill_boxes(self) -> None:
        """A box for each run that is there: those of before as they were, at first the runs of FIRST chosen."""
        conditions, old = self.found.conditions, dict(self._boxes)
        kept = [c for c in self._chosen() if c in conditions]
        known = [c for c in FIRST if c in conditions]
        start = kept or (known if len(known) > 1 else conditions[:3])
        self._boxes.clear()
        for c in conditions:
            box = old.get(c) or widgets.Checkbox(indent=False, layout={"width": "auto"}, tooltip=f"show {c}")
            box.description, box.value = c if c in self.found.folders else f"{c} (numbers only)", c in start
            if c not in old:
                box.observe(self._trouble.guard(self._show), "value")
            self._boxes[c] = box


def nothing(folder: str | Path, reports: str | Path) -> str:
    """What to say where nothing has been run, as HTML."""
    return static.say(
        "No run is finished yet.",
        f"Looked for {Path(folder).resolve()}/*/per_seed.csv\n     and for {Path(reports).resolve()}/per_seed.csv\n\n"
        "make reproduce                   makes runs and reports/mini: about an hour\n"
        "make reproduce PROFILE=smoke     the same at the smallest size: minutes;\n"
        "                                 then browse.runs('profiles/smoke/runs', 'reports/smoke')",
    )


def _problems(found: Found) -> str:
    return "".join(
        f"<p>{html.escape(name)} cannot be read: {html.escape(why)}</p>" for name, why in found.problems.items()
    )


def _offer(control: widgets.Dropdown, options: list, default) -> None:
    """Fill a menu and keep its choice where it is still there."""
    value = next((v for v in (control.value, default, *options) if v in options), None)
    control.options = options
    control.value = value
