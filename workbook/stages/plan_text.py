"""A plan laid out for a reader (`workbook.stages.plan` makes it)."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

HEAD = ("episodes", "tokens sampled", "trained on", "in evaluation", "PFLOP", "peak GiB")


def _numbers(row: dict) -> list[str]:
    tokens = [f"{row[name]:,.0f}" for name in ("episodes", "sampled", "trained", "evaluated")]
    return [*tokens, f"{row['flops'] / 1e15:,.2f}", f"{row['memory'] / 2**30:.1f}", f"{row['hours']:,.2f}"]


def _columns(rows: Sequence[Sequence[str]], sides: str) -> list[str]:
    """Aligned lines; sides: < or > for each column."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(sides))] if rows else []
    return ["  " + "  ".join(f"{c:{side}{w}}" for c, side, w in zip(row, sides, widths)).rstrip() for row in rows]


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a table: the first column to the left, the others to the right."""
    first, *others = _columns([head, *rows], "<" + ">" * (len(head) - 1))
    return [first, "  " + "-" * (max(map(len, [first, *others])) - 2), *others]


def text(plan: dict) -> str:
    """The plan for a reader."""
    seeds, missing, device = plan["seeds"], plan["missing"], plan["device"].partition(":")[0]
    hours = "GPU-hours" if device == "cuda" else "CPU-hours"
    ids = "; 1 id is missing" if missing == 1 else f"; {missing} ids are missing" if missing else ""
    lengths = f"prompts of up to {plan['prompt_tokens']} tokens, responses of up to {plan['response_tokens']}"
    lines = [
        f"plan of profile {plan['profile']}: the settings are sound{ids}",
        f"{plan['conditions']} conditions x {seeds} seeds = {plan['runs']} runs on {plan['device']}; {lengths}",
        "",
        "models and data sets",
        *_sources(plan),
        "",
        "all ablations; a run that several show is counted in the first",
    ]
    rows = [(r["name"], "", "", *_numbers(r)) for r in plan["before"]]
    rows += [(r["name"], str(len(r["conditions"])), str(r["runs"]), *_numbers(r)) for r in plan["reports"]]
    rows.append(("all", str(plan["conditions"]), str(plan["runs"]), *_numbers(plan["total"])))
    lines += table(("", "conditions", "runs", *HEAD, hours), rows)
    for report in plan["reports"]:
        lines += ["", *_report(report, seeds, hours)]
    lines += ["", *_reach(plan, device)]
    lines += ["", "how this is estimated", *[f"  {line}" for line in plan["formula"].splitlines()]]
    rate = f"{hours}: FLOPs at {plan['sustained'] / 1e12:.3g} TFLOP/s ({plan['sustained_why']}), and "
    rate += f"{1000 * plan['pass_seconds']:.3g} ms a forward pass ({plan['pass_why']}), a backward one as two: "
    rate += "small batches wait for Python."
    lines += textwrap.wrap(rate, 118, initial_indent="  ", subsequent_indent="  ")
    if m := plan["measured"]:
        lines.append(
            f"  By earlier stages on this machine: about {m['minutes']:.0f} minutes with {m['jobs']} side by side "
            f"({m['timed']} of {m['stages']} stages were timed, the others are guessed)."
        )
    return "\n".join(lines)


def _reach(plan: dict, device: str) -> list[str]:
    """Hours side by side, disk, and what to fetch."""
    many, whole = ("GPU", "GPUs") if device == "cuda" else ("process", "processes"), plan["total"]
    counts = [(n, f"{n} {many[n != '1']}") for n in plan["ways"][0]["hours"]]
    rows = [(way["name"], *(f"{way['hours'][n]:,.1f}" for n, _ in counts)) for way in plan["ways"]]
    lines = ["hours of all of it, models, searches, runs, continued runs one after the other"]
    lines += table(("", *(words for _, words in counts)), rows)
    if device == "cuda":
        said = f"Recorded steps: {plan['rates']} (TB/s, TFLOP/s). In fp32 decoding is recorded too: between the two. "
        said += "Counted for all: learners that take no bf16, and encoder-decoders, go step by step and take longer."
        lines += textwrap.wrap(said, 118, initial_indent="  ", subsequent_indent="  ")
        lines += [
            "  Text and back is not in it: on one thread some 7 s a decoding of 5,000 prompts; give it all cores."
        ]
    for rows in plan["printed"]:
        runs = f"{len(rows['conditions'])} conditions x {plan['seeds']} seeds"
        fast = f", recorded in bf16 {rows['fixed_hours']:,.2f}" if device == "cuda" else ""
        lines += [f"  of it the runs whose rows the paper prints, {runs}: step by step {rows['hours']:,.1f}{fast}"]
    left, state = (f"{whole[name] / 1e9:,.1f} GB" for name in ("left", "checkpoint"))
    lines += [
        "",
        f"disk: {left} stay when all is done: policies and models three times (scratch, outputs, DVC's cache;",
    ]
    lines += [
        f"  once on a file system that shares blocks); beside them a checkpoint of at most {state} for each run",
        "  that goes on, two for a moment",
    ]
    if plan["fetch"]:
        lines += ["", "to fetch, where there is a network, into the mirror that $RLNLP_MIRROR names; to make"]
    for one in plan["fetch"]:
        lines += [f"  {one['command']}" + (f"  # {one['bytes'] / 1e9:.2f} GB of weights" if one["bytes"] else "")]
    return lines


def _sources(plan: dict) -> list[str]:
    kinds = {"models": "model", "datasets": "data set"}
    rows = [(kinds[f["kind"]], f["name"], f["use"], f["place"] or "MISSING; looked in") for f in plan["found"]]
    lines = [] if rows else ["  nothing from outside: everything is made here"]
    for found, aligned in zip(plan["found"], _columns(rows, "<<<<")):
        lines += [aligned, *[f"      {line.strip()}" for line in found["looked"].splitlines()]]
    for name in ("policy", "reward"):
        if shape := plan[name]:
            size = f"{shape['layers']} layers of {shape['width']}, {shape['vocabulary']:,} tokens"
            lines.append(f"  {name}: {shape['parameters']:,} parameters, {size} ({shape['source']})")
    return lines


def _report(report: dict, seeds: int, hours: str) -> list[str]:
    name, conditions = report["name"], report["conditions"]
    own = [row for row in conditions if row["counted_in"] == name]
    lines = [
        f"{name}: {len(conditions)} conditions x {seeds} seeds; "
        f"counted here: {len(own)} x {seeds} = {report['runs']} runs"
    ]
    if own:
        lines += table(("condition", "seeds", *HEAD, hours), [(row["name"], str(seeds), *_numbers(row)) for row in own])
    for other in dict.fromkeys(row["counted_in"] for row in conditions if row["counted_in"] != name):
        shared = ", ".join(row["name"] for row in conditions if row["counted_in"] == other)
        lines.append(textwrap.fill(f"counted in {other}: {shared}", 120, initial_indent="  ", subsequent_indent="    "))
    return lines
