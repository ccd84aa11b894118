"""``python -m bench.gpu --out FOLDER``: what the package does on one GPU, in eight stages of two minutes at most.

Each stage is a process of its own that writes FOLDER/<stage>.json when it is done, and is skipped where that is there:
the same command goes on after a stop. ``--report`` writes the tables, measured numbers beside what the shapes need at
the rates that were measured (or at an H200's, named as such). ``--tiny`` runs the same code on the CPU at tiny shapes.
Needs the tree, torch, transformers, pydantic, gymnasium and numpy.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from bench.gpu.report import REPORT, markdown, summary
from bench.gpu.running import read, run
from bench.gpu.scale import PRECISIONS, REAL, RULES, TINY, model_of, prompts_of
from bench.gpu.stage import LIMIT
from bench.gpu.update import fixed_batch
from bench.gpu.work import STAGES, WORK
from workbook.stages.roofline import Shape, optimizer_bytes, prefill_flops, step_bytes, update_flops

# what callers outside find by the room's own name: a process that runs it without -m, and the tests
__all__ = [
    "REAL", "RULES", "STAGES", "TINY", "WORK", "Shape", "arguments", "fixed_batch", "main", "markdown", "model_of",
    "optimizer_bytes", "prefill_flops", "prompts_of", "read", "run", "step_bytes", "update_flops",
]  # fmt: skip


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.gpu", description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--out", type=Path, default=REPORT.with_suffix(""), help="folder of the stages' files (reports/bench/gpu)")
    add("--stages", default=",".join(STAGES), help=f"any of {','.join(STAGES)}")
    add("--seconds", type=float, default=float("inf"), help=f"begin no stage ({LIMIT} s) that would end after these")
    add("--limit", type=float, default=LIMIT, help=f"seconds after which a stage begins no row ({LIMIT})")
    add("--precision", default=",".join(PRECISIONS), help="any of fp32,tf32,bf16, from the most exact to the fastest")
    add("--tiny", action="store_true", help="the same code on the CPU at tiny shapes")
    add(
        "--report",
        type=Path,
        nargs="?",
        const=REPORT,
        help="write the report (reports/bench/gpu.md, gpu.json); measure nothing",
    )
    options = parser.parse_args(given)
    for name, known in (("stages", STAGES), ("precision", PRECISIONS)):
        wanted = tuple(getattr(options, name).split(","))
        if unknown := [one for one in wanted if one not in known]:
            parser.error(f"--{name}: expected any of {', '.join(known)}, got {unknown[0]!r}")
        setattr(options, name, wanted)
    options.device = "cpu" if options.tiny else "cuda"
    return options


def main(given: list[str] | None = None) -> int:
    options = arguments(given)
    if options.report is None:
        return run(options)
    options.report.parent.mkdir(parents=True, exist_ok=True)
    found = read(options.out)
    options.report.write_text(markdown(found))
    if known := summary(found):
        options.report.with_suffix(".json").write_text(json.dumps(known, indent=1) + "\n")
    return 0
