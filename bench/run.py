"""``python -m bench.run``: rlnlp's PPO beside TRL's, the same work, one thread, in one run. See bench/README.md.

Each system is a long-lived process that does one iteration when asked. Rounds ask every system once, in an order that
turns round each time, so that a slow minute of the machine hits all of them; ratios are taken within a round.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import subprocess
import sys
from pathlib import Path

from bench.cases import CASES, PEER, PRIVATE, ROOT, SYSTEMS, TITLES
from bench.numbers import equal_work, positions, summarise
from bench.tables import machine, markdown, memory_gb

LOCK = ROOT / "bench" / "requirements-bench.lock"


# ---- the peer's packages -------------------------------------------------------------------------------------------


def install_peer() -> None:
    """Install the locked packages into .bench/site unless that has been done; raises ``RuntimeError`` if it fails."""
    stamp, wanted = PRIVATE / "site" / "installed.txt", hashlib.sha256(LOCK.read_bytes()).hexdigest()
    if stamp.exists() and stamp.read_text() == wanted:
        return
    options = ["install", "--quiet", "--no-deps", "--require-hashes", "--target", str(stamp.parent), "-r", str(LOCK)]
    tools = [[sys.executable, "-m", "pip"], [sys.executable, "-m", "uv", "pip"], ["uv", "pip"]]
    failures = []
    for tool in tools:
        try:
            done = subprocess.run([*tool, *options], capture_output=True, text=True, check=False)
        except FileNotFoundError:
            continue
        if done.returncode == 0:
            stamp.write_text(wanted)
            return
        failures.append(done.stderr.strip()[-500:])
    raise RuntimeError("the peer could not be installed (--no-peer measures rlnlp alone):\n" + "\n".join(failures))


# ---- workers -------------------------------------------------------------------------------------------------------


class Worker:
    """One system, loaded and waiting; ``iterate`` returns seconds, peak memory and counts of one iteration."""

    def __init__(self, system: str, case: dict, core: int):
        job = {k: case[k] for k in ("shape", "prompt", "epochs")} | {"value": SYSTEMS[system]["value"], "core": core}
        self.system, self.log = system, PRIVATE / "logs" / f"{system.replace(', ', '-').replace(' ', '-')}.log"
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self.process = subprocess.Popen(
            [sys.executable, "-m", SYSTEMS[system]["module"], json.dumps(job)],
            cwd=ROOT,
            env=environment(system == PEER),
            text=True,
            bufsize=1,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log.open("w"),
        )
        self.facts = self._read()

    def iterate(self) -> dict:
        self.process.stdin.write("go\n")
        return self._read()

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()

    def _read(self) -> dict:
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.system} stopped; the end of its log:\n" + self.log.read_text()[-3000:])
        return json.loads(line)


def environment(peer: bool) -> dict[str, str]:
    """The workers' environment: one thread, no hub, and the peer's packages for the peer only."""
    threads = {name: "1" for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    quiet = {"TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    inherited = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    return inherited | threads | quiet | ({"PYTHONPATH": str(PRIVATE / "site")} if peer else {})


def measure(case: dict, systems: list[str], rounds: int, core: int) -> dict:
    """{system: {"facts": ..., "rows": [one per round]}}; warm-up iterations are done and not kept."""
    workers = []
    try:
        for system in systems:
            say(f"  loading {system}")
            workers.append(Worker(system, case, core))
        out = {w.system: {"facts": w.facts, "rows": []} for w in workers}
        for number in range(-case["warmup"], rounds):
            for worker in workers if number % 2 == 0 else reversed(workers):
                row = worker.iterate()
                if number >= 0:
                    out[worker.system]["rows"].append(row)
            say(f"  round {number + 1} of {rounds}" if number >= 0 else "  warm-up")
        return out
    finally:
        for worker in workers:
            worker.close()


# ---- the command -----------------------------------------------------------------------------------------------------


def say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.run", description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--shapes", default="tiny,tiny-full,117m", help=f"any of {','.join(CASES)}")
    add("--pairs", type=int, help="measured rounds per shape (default 20, 10, 6, 6)")
    add("--quick", action="store_true", help="tiny only, 5 rounds, nothing written unless --out is given")
    add("--no-peer", action="store_true", help="rlnlp alone")
    add("--apart", action="store_true", help="never more than two systems in memory (default: if it is short)")
    add("--core", type=int, help="core to run on (default: the last one allowed)")
    add("--out", type=Path, help="folder for bench.md and bench.json (default reports/bench)")
    add("--profile", action="store_true", help="print where the time of rlnlp's iteration goes; measure nothing else")
    add("--value", default="separate", choices=("separate", "shared"), help="for --profile")
    options = parser.parse_args()
    options.shapes = ["tiny"] if options.quick else options.shapes.split(",")
    for name in options.shapes:
        if name not in CASES:
            parser.error(f"--shapes: expected any of {', '.join(CASES)}, got {name!r}")
    if options.core is None:
        options.core = max(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
    options.out = options.out or (None if options.quick else ROOT / "reports" / "bench")
    return options


def run_case(name: str, options: argparse.Namespace) -> dict:
    """Measure one shape; the record that the report shows."""
    case, ours = CASES[name], [system for system in SYSTEMS if system != PEER]
    rounds = options.pairs or (5 if options.quick else case["rounds"])
    short = (memory_gb("MemAvailable") or math.inf) < case["memory"]
    if options.no_peer:
        groups = [[system] for system in ours]
    else:
        groups = [[PEER, system] for system in ours] if options.apart or short else [[PEER, *ours]]
    say(f"{TITLES[name]}: {rounds} rounds" + (", two systems at a time" if len(groups[0]) == 2 else ""))
    systems, checks = [], []
    for group in groups:
        measured = measure(case, group, rounds, options.core)
        shown = {record["system"] for record in systems}
        systems += [r for r in summarise(name, case, measured, measured.get(PEER)) if r["system"] not in shown]
        lines = [dict(zip(("what", "held", "found"), line)) for line in equal_work(case, measured)]
        checks.append({"lines": lines, "positions": positions(case, measured)})
    return {"name": name, **case, "rounds": rounds, "systems": systems, "checks": checks}


def profile(name: str, options: argparse.Namespace) -> int:
    """Print where the time of rlnlp's iteration goes."""
    job = {k: CASES[name][k] for k in ("shape", "prompt", "epochs")} | {"value": options.value, "core": options.core}
    command = [sys.executable, "-m", "bench.ours", json.dumps(job | {"profile": 1 if name.startswith("117m") else 5})]
    return subprocess.run(command, cwd=ROOT, env=environment(peer=False), check=False).returncode


def main() -> int:
    options = arguments()
    if options.profile:
        return profile(options.shapes[0], options)
    PRIVATE.mkdir(exist_ok=True)
    (PRIVATE / ".gitignore").write_text("*\n")
    if not options.no_peer:
        install_peer()
    load = f"{os.getloadavg()[0]:.1f}"
    cases = []
    for name in options.shapes:  # written after each shape: the large ones take long, and a finished one is not lost
        cases.append(run_case(name, options))
        report = {"machine": machine(cases[0]["systems"]), "load_at_start": load, "cases": cases}
        text = markdown(report)
        if options.out:
            options.out.mkdir(parents=True, exist_ok=True)
            (options.out / "bench.md").write_text(text)
            (options.out / "bench.json").write_text(json.dumps(report, indent=1) + "\n")
    print(text)
    unequal = [line for case in cases for check in case["checks"] for line in check["lines"] if not line["held"]]
    if unequal:
        say("the systems did not do equal work: see NOT EQUAL above")
    return int(bool(unequal))


if __name__ == "__main__":
    sys.exit(main())
