"""The run browser: pick finished runs, compare their learning curves, their samples and what score cost them in KL."""

from __future__ import annotations

import html
import json
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import ipywidgets as widgets
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from workbook.figures import parts as figure_parts
from workbook.figures.style import COLORS, JOINS, MARKERS
from workbook.lab import static
from workbook.results import measures, tables
from workbook.store.tables import read_table

MOST = 8  # runs in one figure: as many as there are colours
FIRST = ("zero_shot", "ppo_kl_0", "ppo_kl_default", "nlpo_kl_default")  # chosen at first, where they are there
ROWS = 4  # prompts in the table of samples
COSTS = ("kl_deployed", "generation_log_perplexity", "kl", "length")
GAINS = ("score", "judge", "judge_2", "score_response")
VIEWS = ("curves", "frontier", "samples")


@dataclass
class Found:
    """What is there. per_seed: a row per condition, seed, split and decoding; folders: condition -> its folder, for
    those whose curves and samples are here too; problems: condition -> why it cannot be read."""

    per_seed: pd.DataFrame
    folders: dict[str, Path]
    problems: dict[str, str] = field(default_factory=dict)

    @property
    def conditions(self) -> list[str]:
        return list(dict.fromkeys(self.per_seed.condition)) if len(self.per_seed) else []


def find(folder: str | Path, reports: str | Path) -> Found:
    """Finished runs: the folders that hold a per_seed.csv, and the rows of the report's table for those that are not
    here.

    A run's folder appears whole when it ends, so one that is being written (`.part`) or trained is not among them.
    """
    parts, folders, problems = [], {}, {}
    for path in sorted(Path(folder).glob("*/per_seed.csv")):
        if path.parent.name.endswith(".part"):
            continue
        try:
            parts.append(_numbers(path))
            folders[path.parent.name] = path.parent
        except ValueError as error:
            problems[path.parent.name] = str(error)
    if (summary := Path(reports) / "per_seed.csv").is_file():
        rows = _numbers(summary)
        parts.append(rows[~rows.condition.isin([*folders, *problems])])
    table = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
    return Found(table, folders, problems)


def runs(folder: str | Path = "runs", reports: str | Path = "reports/mini") -> static.View:
    """Choose among the finished runs under `folder`, up to eight at a time, and compare them.

    Runs that only the table of `reports` knows (a fresh clone: the pipeline's folders are not in git) have numbers for
    the frontier, but no curves and no samples. Where nothing has been run, the view says what to type.
    """
    state = {"found": find(folder, reports), "busy": False}
    # boxes, not a list of which several are selected: JupyterLab takes the up and down keys, with shift too, for itself
    boxes: dict[str, widgets.Checkbox] = {}
    name = widgets.Text(
        description="runs", placeholder="part of a name", continuous_update=False, tooltip="list the runs of this name"
    )
    column = widgets.VBox(layout={"max_height": "13em", "overflow": "auto", "width": "24em"})
    opened = (
        "frontier" if state["found"].conditions and not state["found"].folders else "curves"
    )  # numbers alone draw no curve
    view = widgets.ToggleButtons(
        options=VIEWS,
        value=opened,
        description="show",
        tooltips=["scores in training", "score against its cost", "texts"],
    )
    metric = widgets.Dropdown(description="metric", tooltip="drawn on the right")
    gain = widgets.Dropdown(description="up", tooltip="what is gained")
    cost = widgets.Dropdown(description="across", tooltip="what it costs")
    decoding = widgets.Dropdown(description="decoding", tooltip="how the texts were drawn from the policies")
    seed = widgets.Dropdown(description="seed", tooltip="whose texts")
    first = widgets.IntSlider(1, 1, 1, description="prompt", continuous_update=False)
    again = widgets.Button(description="look again", icon="refresh", tooltip="read the folders again")
    shown, trouble = widgets.HTML(), static.Trouble()
    belongs = {"curves": [metric], "frontier": [gain, cost, decoding], "samples": [seed, first]}

    def chosen() -> list[str]:
        return [condition for condition, box in boxes.items() if box.value]

    def list_boxes(*_) -> None:
        wanted = name.value.strip().lower()
        column.children = [box for condition, box in boxes.items() if box.value or wanted in condition.lower()]

    def body(which: str) -> str:
        found, names = state["found"], chosen()
        if not found.conditions:
            return nothing(folder, reports) + _problems(found)
        if not names:
            return static.say("choose a run")
        more = f"only the first {MOST} of the {len(names)} chosen are shown" if len(names) > MOST else ""
        parts, names = [static.say(more) if more else ""], names[:MOST]
        if which == "frontier":
            parts.append(_frontier(found.per_seed, names, gain.value, cost.value, decoding.value))
        elif which == "curves":
            parts.append(_curves(found, names, metric.value))
        else:
            parts.append(_samples(found, names, seed.value, first.value))
        return "".join(parts) + _problems(found)

    def show(*_) -> None:
        if not state["busy"]:
            for which, controls in belongs.items():
                for control in controls:
                    control.layout.display = "" if which == view.value and state["found"].conditions else "none"
            shown.value = body(view.value)

    def fill() -> None:
        """Set what can be chosen, and keep what was."""
        found, state["busy"] = state["found"], True
        kept = [c for c in chosen() if c in found.conditions]
        known = [c for c in FIRST if c in found.conditions]
        start = kept or (known if len(known) > 1 else found.conditions[:3])
        old = dict(boxes)
        boxes.clear()
        for c in found.conditions:
            label = c if c in found.folders else f"{c} (numbers only)"
            boxes[c] = old.get(c) or widgets.Checkbox(indent=False, layout={"width": "auto"}, tooltip=f"show {c}")
            boxes[c].description, boxes[c].value = label, c in start
            if c not in old:
                boxes[c].observe(trouble.guard(show), "value")
        list_boxes()
        table = found.per_seed
        if len(table):
            _offer(gain, [c for c in GAINS if c in table], "score")
            _offer(cost, [c for c in COSTS if c in table], "kl_deployed")
            _offer(decoding, list(dict.fromkeys(table[table.split == "test"].decoding)), "plain")
            _offer(seed, sorted(set(table.seed)), None)
        curves = [_read(found, c, "curves.csv") for c in found.folders]
        names = dict.fromkeys(n for rows in curves if len(rows) for n in rows[0])
        _offer(metric, [n for n in names if n not in ("condition", "seed", "update")], "objective/kl")
        first.max = max(
            [1, *(len({s["example_id"] for s in _read(found, c, "samples.jsonl")}) - ROWS + 1 for c in found.folders)]
        )
        state["busy"] = False
        show()

    def look_again(_) -> None:
        state["found"] = find(folder, reports)
        fill()

    def page() -> str:
        return body("frontier") if not state["found"].folders else "".join(body(which) for which in VIEWS)

    again.on_click(trouble.guard(look_again))
    name.observe(trouble.guard(list_boxes), "value")
    for control in (view, metric, gain, cost, decoding, seed, first):
        control.observe(trouble.guard(show), "value")
    fill()
    choices = static.row(widgets.VBox([name, column]), widgets.VBox([view, *sum(belongs.values(), []), again]))
    children = [choices, trouble, shown]
    return static.View(
        children,
        page,
        f"run browser: {len(state['found'].conditions)} finished runs",
        boxes=boxes,
        name=name,
        column=column,
        view=view,
        metric=metric,
        gain=gain,
        cost=cost,
        decoding=decoding,
        seed=seed,
        first=first,
        again=again,
        shown=shown,
        trouble=trouble,
    )


def nothing(folder: str | Path, reports: str | Path) -> str:
    """What to say where nothing has been run, as HTML."""
    return static.say(
        "No run is finished yet.",
        f"Looked for {Path(folder).resolve()}/*/per_seed.csv\n     and for {Path(reports).resolve()}/per_seed.csv\n\n"
        "make reproduce                   makes runs and reports/mini: about an hour\n"
        "make reproduce PROFILE=smoke     the same at the smallest size: minutes;\n"
        "                                 then browse.runs('profiles/smoke/runs', 'reports/smoke')",
    )


def curve_figure(grids: dict[str, dict[str, pd.DataFrame]], metrics: list[str]) -> Figure:
    """Metrics against updates, a panel each; grids: metric -> condition -> table [update x seed], empty where a seed
    had ended."""
    figure, axes = static.panels(len(metrics), 4.6 * len(metrics), 3.4)
    n = _number({name: grid.shape[1] for arms in grids.values() for name, grid in arms.items()})
    said, names = [], list(dict.fromkeys(name for arms in grids.values() for name in arms))
    for axis, metric in zip(axes, metrics):
        for name, grid in grids[metric].items():
            look, mean = names.index(name) % MOST, grid.mean(axis=1)
            axis.plot(grid.index, mean, color=COLORS[look], linestyle=JOINS[look], linewidth=1.6, label=name)
            if grid.shape[1] >= 3:
                figure_parts.band(axis, grid, COLORS[look])
            said.append(f"{name} {metric} {mean.iloc[0]:.3g} at first, {mean.iloc[-1]:.3g} at last")
        axis.set(xlabel="update", ylabel=measures.label(metric, panel=True))
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    lines = {label: line for axis in axes for line, label in zip(*axis.get_legend_handles_labels())}
    figure.legend(
        lines.values(), lines.keys(), loc="outside upper center", ncols=min(4, len(lines)), frameon=False, fontsize=9
    )
    banded = any(grid.shape[1] >= 3 for arms in grids.values() for grid in arms.values())
    figure_parts.caption(figure, f"Line: mean of {n}.{' Band: 95 % interval.' if banded else ''}")
    return figure_parts.alt_text(figure, f"Learning curves, {n}: {'; '.join(said)}.")


def frontier_figure(table: pd.DataFrame, names: list[str], gain: str, cost: str, decoding: str) -> Figure:
    """Gain against cost on the test prompts: small points are seeds, large ones their mean. table: per_seed rows."""
    figure, (axis,) = static.panels(1, 8.4, 4.2)
    said, n = [], _number({name: table[table.condition == name].seed.nunique() for name in names})
    for look, name in enumerate(names):
        rows = table[table.condition == name]
        marks = {"color": COLORS[look], "marker": MARKERS[look], "linewidths": 0}
        axis.scatter(rows[cost], rows[gain], s=16, alpha=0.45, **marks)
        axis.scatter([rows[cost].mean()], [rows[gain].mean()], s=70, label=name, zorder=3, **marks)
        said.append(f"{name} {gain} {rows[gain].mean():.3f} at {cost} {rows[cost].mean():.3f}")
    axis.set(
        xlabel=measures.label(cost, panel=True).replace("\n", " "),
        ylabel=measures.label(gain, panel=True).replace("\n", " "),
    )
    axis.legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1.01, 0.5))
    figure_parts.caption(
        figure, f"Decoding: {decoding}. Small points: {n}; large: their mean. Up: more gain; right: more cost."
    )
    return figure_parts.alt_text(figure, f"{gain} against {cost}, {n}, decoding {decoding}: {'; '.join(said)}.")


def _number(seeds: dict[str, int]) -> str:
    """How many seeds, of each condition where they differ."""
    counts = set(seeds.values())
    if len(counts) == 1:
        return f"n = {counts.pop()} seeds"
    return f"n = {', '.join(str(n) for n in seeds.values())} seeds ({', '.join(seeds)})"


def _curves(found: Found, names: list[str], metric: str | None) -> str:
    here = {name: pd.DataFrame(rows) for name in names if (rows := _read(found, name, "curves.csv"))}
    lacking = [name for name in names if name not in here]
    metrics = list(
        dict.fromkeys(m for m in ("objective/score", metric) if m and any(m in rows for rows in here.values()))
    )
    note = _lacking(lacking, found, "curves")
    if not metrics:
        return note
    grids = {
        m: {name: rows.pivot(index="update", columns="seed", values=m) for name, rows in here.items() if m in rows}
        for m in metrics
    }
    for name, grid in grids[
        metrics[0]
    ].items():  # a mean over the seeds that are left is another thing than the mean before
        if early := [f"{s} after update {grid[s].last_valid_index()}" for s in grid if pd.isna(grid[s].iloc[-1])]:
            note += static.say(
                f"{name} ended early in seed {', '.join(early)}: from there its line is the mean of the other seeds"
            )
    return static.picture(curve_figure(grids, metrics)) + note


def _frontier(table: pd.DataFrame, names: list[str], gain: str | None, cost: str | None, decoding: str) -> str:
    if not gain or not cost:
        return static.say(f"the tables hold none of {', '.join(COSTS)}")
    rows = table[(table.split == "test") & (table.decoding == decoding) & table.condition.isin(names)].dropna(
        subset=[gain, cost]
    )
    there = [name for name in names if name in set(rows.condition)]
    lost = [name for name in names if name not in there]
    note = static.say(f"not measured with the decoding {decoding}: {', '.join(lost)}") if lost else ""
    return (static.picture(frontier_figure(rows, there, gain, cost, decoding)) if there else "") + note


def _samples(found: Found, names: list[str], seed: int, first: int) -> str:
    rows: dict[str, dict[str, str]] = {}
    lacking = []
    for name in names:
        lines = [s for s in _read(found, name, "samples.jsonl") if s["seed"] == seed]
        lacking += [] if lines else [name]
        for line in lines:
            row = rows.setdefault(str(line["example_id"]), {"prompt": tables.short(line["prompt"])})
            row[name] = f"{' '.join(line['response'].split())} ({line['score']:.2f})"
    first = min(first, max(1, len(rows) - ROWS + 1))  # other runs may have more prompts than these
    shown = list(rows.values())[first - 1 : first - 1 + ROWS]
    if not shown:
        return _lacking(lacking, found, "samples")
    about = (
        f"seed {seed}, prompts {first} to {first + len(shown) - 1} of {len(rows)}, plain decoding; in brackets: "
        f"the score"
    )
    there = [name for name in names if name not in lacking]
    rows_of = [[row.get(title, "not run") for title in ("prompt", *there)] for row in shown]
    return static.say(about) + static.table(["prompt", *there], rows_of) + _lacking(lacking, found, "samples")


def _lacking(names: list[str], found: Found, what: str) -> str:
    untrained = [n for n in names if n in found.folders]
    away = [n for n in names if n not in found.folders]
    said = (
        static.say(f"no {what} in {', '.join(untrained)}" + (" (not trained)" if what == "curves" else ""))
        if untrained
        else ""
    )
    if away:
        said += static.say(f"only the numbers of {', '.join(away)} are here, no {what}: make reproduce brings the rest")
    return said


def _problems(found: Found) -> str:
    return "".join(
        f"<p>{html.escape(name)} cannot be read: {html.escape(why)}</p>" for name, why in found.problems.items()
    )


def _numbers(path: Path) -> pd.DataFrame:
    """The rows of a table of numbers per seed. Raises ValueError where it is none."""
    rows = pd.DataFrame(read_table(path))
    if lacking := [c for c in ("condition", "seed", "split", "decoding", "score") if c not in rows]:
        raise ValueError(f"{path}: no column {', '.join(lacking)}")
    return rows


def _read(found: Found, condition: str, name: str) -> list[dict]:
    """The rows of one of a run's files; none where it is not here, or the run was not trained."""
    path = found.folders.get(condition, Path("nowhere")) / name
    if not path.is_file():
        return []
    try:
        return _parsed(path, path.stat().st_mtime_ns)
    except ValueError as error:  # of one run: the others can still be looked at
        found.problems[condition] = f"{path}: {error}"
        return []


@lru_cache(maxsize=512)
def _parsed(path: Path, written: int) -> list[dict]:
    """The rows of a file as it was written at that time (ns)."""
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]
    return read_table(path)


def _offer(control: widgets.Dropdown, options: list, default) -> None:
    """Fill a menu and keep its choice where it is still there."""
    value = (
        control.value
        if control.value in options
        else default
        if default in options
        else options[0]
        if options
        else None
    )
    control.options = options
    control.value = value
