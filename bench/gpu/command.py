"""The command line of the room: which stages run, where their files go, and the report."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from bench import gpu
from bench.gpu.report import REPORT, markdown, summary
from bench.gpu.running import read, run
from bench.gpu.scale import PRECISIONS
from bench.gpu.stage import LIMIT
from bench.gpu.work import STAGES


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.gpu", description=gpu.__doc__.split("\n")[0])
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
