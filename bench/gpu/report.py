"""The report of all stages (markdown), the targets in it, and the rates that ``make plan`` reckons with (JSON)."""

from __future__ import annotations

import functools
import inspect
from pathlib import Path

from bench.gpu.scale import PRECISIONS, REAL
from bench.gpu.tables import best_of, rates, roofline, table, with_floor
from bench.gpu.work import STAGES, WORK

ROOT = Path(__file__).resolve().parents[2]
REPORT = ROOT / "reports" / "bench" / "gpu.md"
QUICK = ("recorded", "compiled, recorded", "compiled")  # not launch by launch; the last one: of older files


def summary(found: dict[str, dict]) -> dict | None:
    """What `make plan` reckons with, by name as in roofline.rates; None for what was not measured, and for all if
    nothing was."""
    measured = {name: one for name, one in found.items() if not one["tiny"]}
    if not measured:
        return None
    rate, _ = rates(measured)
    rows = {name: [with_floor(row, rate) for row in one["rows"]] for name, one in measured.items()}
    rows["iteration"] = [with_gradient(row) for row in rows.get("iteration", []) if row["name"].endswith("paper")]
    facts = {p: best_of(rows, "facts", "tflop_s", max, precision=p) for p in PRECISIONS}
    graph, first = {"name": "graph", "precision": "bf16", "rule": "plain", "least": {"B": 64}}, next(iter(REAL.shapes))
    return {
        "device": ", ".join(sorted({one["device"] for one in measured.values()})),
        "copy_tb_s": best_of(rows, "facts", "tb_s", max),
        **facts,
        "decode_share": best_of(rows, "decode", "share", min, **graph),
        "update_share": best_of(rows, "update", "share", max, precision="bf16", shape=first, least={"tokens": 3500}),
        "update_fp32_share": best_of(rows, "update", "share", max, name="eager", precision="fp32"),
        "readable_ms": best_of(rows, "decode", "median_ms", min, name="readable", B=64),
        "gradient_s": best_of(rows, "iteration", "gradient_s", min, name="PPO, paper", precision="bf16"),
    }


def with_gradient(row: dict) -> dict:
    """A row of the iteration at the paper's settings, with the seconds of one gradient step: recorded, where those of
    runs were, else as written."""
    _, epochs, minibatches = REAL.paper
    if "seconds" not in row:
        return row
    spent = row["seconds"]["update at fixed shapes" if row.get("recorded") else "update"]
    return {**row, "gradient_s": spent / (epochs * minibatches)}


def targets(found: dict[str, dict], rate: dict[str, float]) -> list[dict]:
    """The figures that were set, each with the best that was measured or "not measured"."""
    rows = {name: [with_floor(row, rate) for row in one["rows"]] for name, one in found.items()}
    pick = functools.partial(best_of, rows)
    first = next(iter(REAL.shapes))
    graph = {"name": "graph", "shape": first, "precision": "bf16", "rule": "plain"}
    large = {"precision": "bf16", "least": {"tokens": 3500}}
    paper = {what: pick("iteration", "fixed_s", min, name=what) for what in ("PPO, paper", "NLPO, paper")}
    slow = pick("decode", "median_ms", min, name="readable", B=64)
    fast = {
        p: pick("decode", "rollout_token_ms", min, name="graph", shape=first, B=64, rule="plain", precision=p)
        for p in ("bf16", "fp32")
    }
    checks = [
        ("decode, 124M bf16, 256 episodes or more: share of the bandwidth limit", 0.5, 1,
         pick("decode", "share", max, **graph, least={"B": 256})),
        ("the same at 64", 0.35, 1, pick("decode", "share", max, **graph, B=64)),
        ("a rollout at 64, times the readable path, which is in fp32", 10, 1, times(slow, fast["bf16"])),
        ("the same in fp32", 10, 1, times(slow, fast["fp32"])),
        ("update, bf16, compiled or recorded or both, from 3,500 tokens: share of the GEMM rate", 0.4, 1,
         max(filter(None, (pick("update", "share", max, name=name, **large) for name in QUICK)), default=None)),
        ("an iteration of PPO at the paper's settings, fixed shapes, s", 0.5, -1, paper["PPO, paper"]),
        ("the same of NLPO", 0.55, -1, paper["NLPO, paper"]),
        ("5,000 prompts evaluated, one decoding, s", 5, -1, pick("evaluate", "total_s", min)),
    ]  # fmt: skip
    lines = []
    for what, target, sign, value in checks:
        verdict = "not measured" if value is None else "met" if sign * (value - target) >= 0 else "**missed**"
        bound = f"{'at least' if sign > 0 else 'at most'} {target:g}"
        lines.append({"target": what, "bound": bound, "measured": "" if value is None else value, "": verdict})
    return [*lines, printed(found)]


def times(slow: float | None, fast: float | None) -> float | None:
    """How many times as long ``slow`` is, where both were measured."""
    return slow / fast if slow and fast else None


def printed(found: dict[str, dict]) -> dict:
    """A target that is no time of a stage: what `make plan` reckons for the runs whose rows the paper prints."""
    line = {"target": "runs whose rows the paper prints, of all seeds, GPU-hours", "bound": "at most 2", "measured": ""}
    try:  # they read profiles, and need more than a GPU's machine may have
        from workbook.runs import checks
        from workbook.stages import plan, roofline
    except ImportError as error:
        return {**line, "": f"not computed: no {error.name} here"}
    known = roofline.rates_of(summary(found) or {}, REPORT.with_suffix(".json").name)
    params = checks.load(ROOT / "profiles" / "paper" / "params.yaml")
    conditions, hours = plan.printed_hours(params, known)
    rates = "rates measured here" if known.why.startswith("measured") else "rates that were not measured"
    runs, verdict = f"{conditions} conditions x {len(params.seeds)} seeds", "met" if hours <= 2 else "**missed**"
    how = "in bf16, decode steps recorded, gradient steps as measured"
    said = f"{verdict} as computed, not measured: {hours:.2f} for {runs} {how}, at {rates}"
    return {**line, "": said}


def markdown(found: dict[str, dict]) -> str:
    """The report; a stage without a file, or with one of ``--tiny``, is not measured and says so."""
    measured = {name: one for name, one in found.items() if not one["tiny"]}
    rate, known = rates(measured)
    devices = sorted({one["device"] for one in measured.values()})
    source = "measured here" if known else "an H200's, **not measured**: what stands below is computed"
    numbers = f"copy {rate['copy_tb_s']:.3g} TB/s, " + ", ".join(f"{p} {rate[p]:.3g} TFLOP/s" for p in PRECISIONS)
    text = ["# What the package does on one GPU", "", f"GPU: {', '.join(devices) or 'not measured'}."]
    text += ["**Stages of different GPUs are mixed here.**"] if len(devices) > 1 else []
    text += ["", "## Targets", "", *table(targets(measured, rate)), ""]
    text += ["## Roofline", "", f"Rates ({source}): {numbers}.", "", *roofline(rate), ""]
    for name in STAGES:
        about = measured[name]["about"] if name in measured else inspect.cleandoc(WORK[name].__doc__)
        text += [f"## {name}", "", about, ""]
        if name not in measured:
            tried = ": what lies there is of `--tiny`, a trial of the code on the CPU" if name in found else ""
            text += [f"not measured{tried}", ""]
            continue
        one = measured[name]
        rows = [with_floor(row, rate) for row in one["rows"]]
        for kind in dict.fromkeys(row["name"] for row in rows):  # a table each: they have other columns
            text += [*table([row for row in rows if row["name"] == kind]), ""]
        text += [f"{one['seconds']:.0f} s; nothing was begun that would have ended after {one['limit_s']:g} s."]
        text += [f"Left out, no time: {'; '.join(one['left_out'])}."] if one["left_out"] else []
        text += [""]
    return "\n".join(text)
