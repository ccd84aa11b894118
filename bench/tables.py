"""The report of ``bench.run``: the machine, a table a shape, what was equal, as Markdown."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from pathlib import Path

from bench import work
from bench.cases import PEER, PRIVATE, TITLES

COLUMNS = (
    "system",
    "networks",
    "rollout tok/s",
    "update tok/s",
    "iteration tok/s",
    "CPU s",
    "wall s",
    "x TRL (CPU)",
    "x TRL (wall)",
    "target",
    "peak MB",
)
METHOD = f"""\
Work per iteration: {work.EPISODES} episodes x {work.NEW_TOKENS} new tokens from a 5-token prompt
({work.PADDING} PAD + EOS), EOS blocked, a Python reward on strings, {work.EPOCHS} epochs x
{work.MINIBATCHES} minibatches. fp32. Every system is a process pinned to the same one core, one thread; they take
turns.

Seconds are medians over rounds after warm-up, tok/s are per CPU second. `x TRL` is TRL's seconds over ours within a
round: median [interval]. Targets are judged on CPU seconds, which other load disturbs less; on an idle core wall is
the same.
"""


def table_row(record: dict) -> tuple[str, ...]:
    """One system's line of the table, in the order of COLUMNS."""
    rate, spent, ratios = record["cpu"]["tokens_per_s"], record["cpu"]["seconds"], []
    for clock in ("cpu", "wall"):
        ratio = record[clock].get("ratio")
        ratios.append(f"{ratio['median']:.2f} [{ratio['low']:.2f}, {ratio['high']:.2f}]" if ratio else "")
    return (
        record["system"],
        str(record["networks"]),
        *(f"{rate[part]:.4g}" for part in ("rollout", "update", "iteration")),
        f"{spent['iteration']:.3g} ({spent['rollout']:.3g} + {spent['update']:.3g})",
        f"{record['wall']['seconds']['iteration']:.3g}",
        *ratios,
        f"{record['target']} {'met' if record['met'] else 'MISSED'}" if record.get("target") else "",
        f"{record['peak_mb']:.0f}" + (f" ({record['peak_ratio']:.2f} x TRL)" if "peak_ratio" in record else ""),
    )


def case_text(case: dict) -> list[str]:
    """One shape's part of the report: table, interval, checks."""
    timed = f"{case['rounds']} rounds."
    if case["epochs"] != work.EPOCHS:
        timed += f" **Timed: rollout and {case['epochs']} of {work.EPOCHS} epochs; that epoch's time x {work.EPOCHS}.**"
    rows = [COLUMNS, ("---",) * len(COLUMNS), *(table_row(record) for record in case["systems"])]
    text = [f"## {TITLES[case['name']]}", "", timed, "", *("| " + " | ".join(row) + " |" for row in rows), ""]
    coverage = [r["cpu"]["ratio"]["coverage"] for r in case["systems"] if "ratio" in r["cpu"]]
    if coverage:
        text += [f"Intervals of the median: order statistics, coverage {coverage[0]:.1%}.", ""]
    text += ["Equal work, checked in every measured iteration:", ""]
    for check in case["checks"]:
        for line in check["lines"]:
            text.append(f"- {line['what']}: {line['found']}{'' if line['held'] else ' **NOT EQUAL**'}")
        text.append(
            f"- not equal, part of the difference: positions per episode in a training pass: {check['positions']} "
            "(rlnlp drops columns that are padding in every row, and the last token, which predicts nothing)"
        )
    return [*text, ""]


def markdown(report: dict) -> str:
    """The report as text."""
    m = report["machine"]
    known = [f"{k} {m[k]}" for k in ("torch", "transformers", "trl", "accelerate", "numpy", "python") if k in m]
    on = f"{m['cpu']} ({m['vector_unit']}), {m['cores']} cores, {m['memory_gb']} GB, {m['system']}. {', '.join(known)}."
    load = f"Load average when it began: {report['load_at_start']}."
    cases = [line for case in report["cases"] for line in case_text(case)]
    return "\n".join(["# Speed and memory of PPO: rlnlp beside TRL", "", f"{on} {load}", "", METHOD, *cases])


def machine(records: list[dict]) -> dict:
    """What the numbers depend on; no host name and no path."""
    names = [line.split(":", 1)[1].strip() for line in lines_of("/proc/cpuinfo") if line.startswith("model name")]
    versions = {name: importlib.metadata.version(name) for name in ("torch", "transformers", "numpy")}
    for found in importlib.metadata.distributions(path=[str(PRIVATE / "site")]):
        if found.name in ("trl", "accelerate") and any(r["system"] == PEER for r in records):
            versions[found.name] = found.version
    return {
        "cpu": names[0] if names else platform.processor() or platform.machine(),
        "vector_unit": records[0]["cpu_capability"],
        "cores": os.cpu_count(),
        "memory_gb": memory_gb("MemTotal"),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        **versions,
    }


def memory_gb(field: str) -> float | None:
    """A field of /proc/meminfo in GB; None where the system has no such file."""
    sizes = [int(line.split()[1]) for line in lines_of("/proc/meminfo") if line.startswith(field)]
    return round(sizes[0] * 1024 / 1e9, 1) if sizes else None


def lines_of(path: str) -> list[str]:
    """A file's lines; none where there is no such file (/proc outside Linux)."""
    return Path(path).read_text().splitlines() if Path(path).exists() else []
