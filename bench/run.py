"""``python -m bench.run``: rlnlp's PPO beside TRL's, the same work, one thread, in one run. See bench/README.md.

Each system is a long-lived process that does one iteration when asked. Rounds ask every system once, in an order that
turns round each time, so that a slow minute of the machine hits all of them; ratios are taken within a round.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import json
import math
import os
import platform
import statistics
import subprocess
import sys
from pathlib import Path

from bench import work

ROOT = Path(__file__).resolve().parent.parent
PRIVATE = ROOT / ".bench"  # ignored: the peer's packages and the workers' logs
LOCK = ROOT / "bench" / "requirements-bench.lock"
PEER = "TRL"
SYSTEMS = {
    PEER: {"module": "bench.peer_trl", "networks": 3, "value": "separate"},
    "rlnlp": {"module": "bench.ours", "networks": 3, "value": "separate"},
    "rlnlp, shared trunk": {"module": "bench.ours", "networks": 2, "value": "shared"},
}
CASES = {  # epochs: how many of the five are timed; rounds and memory (GB, all systems alive at once) by default
    "tiny": {"shape": "tiny", "prompt": "padded", "epochs": 5, "rounds": 20, "warmup": 3, "memory": 3},
    "tiny-full": {"shape": "tiny", "prompt": "full", "epochs": 5, "rounds": 10, "warmup": 3, "memory": 3},
    "117m": {"shape": "117m", "prompt": "padded", "epochs": 1, "rounds": 6, "warmup": 1, "memory": 19},
    "117m-full": {"shape": "117m", "prompt": "full", "epochs": 1, "rounds": 6, "warmup": 1, "memory": 19},
}
TITLES = {
    "tiny": "GPT-2 2x128, vocabulary 1,000",
    "tiny-full": "GPT-2 2x128, five real prompt tokens instead of 4 PAD + EOS",
    "117m": "GPT-2 117M shape, random weights",
    "117m-full": "GPT-2 117M shape, five real prompt tokens",
}
TARGETS = {  # x TRL, end to end
    ("tiny", "rlnlp"): 1.25,
    ("tiny", "rlnlp, shared trunk"): 1.5,
    ("117m", "rlnlp"): 0.95,
    ("117m", "rlnlp, shared trunk"): 1.5,
}


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


# ---- numbers -------------------------------------------------------------------------------------------------------


def seconds(row: dict, part: str, clock: str, scale: float) -> float:
    """Seconds of a part of one iteration of five epochs; ``scale`` = 5 / timed epochs multiplies the epochs only."""
    spans = {span: value[clock] for span, value in row["seconds"].items()}
    update = spans["update"] * scale + spans["rest"]
    return {"rollout": spans["rollout"], "update": update, "iteration": spans["rollout"] + update}[part]


def median_interval(values: list[float], level: float = 0.95) -> tuple[float, float, float, float]:
    """(median, low, high, coverage): the narrowest pair of order statistics that covers the median at ``level``.

    Distribution-free: k-th smallest and k-th largest of n cover it with probability 1 - 2 P(Binomial(n, 1/2) < k). With
    too few values for the level (n < 6 at 95 %) these are the smallest and the largest; coverage says what they give.
    """
    ordered, n = sorted(values), len(values)
    missed = [2 * sum(math.comb(n, i) for i in range(k)) / 2**n for k in range(1, n // 2 + 1)] or [1.0]
    k = max((k for k, miss in enumerate(missed, 1) if miss <= 1 - level), default=1)
    return statistics.median(ordered), ordered[k - 1], ordered[-k], 1 - missed[k - 1]


def summarise(name: str, case: dict, measured: dict, peer: dict | None) -> list[dict]:
    """One record per system: medians, tokens per second, peak memory, and the ratio to the peer within rounds."""
    scale, records = work.EPOCHS / case["epochs"], []
    for system, data in measured.items():
        rows = data["rows"]
        record = {"case": name, "system": system, "rounds": len(rows), **data["facts"], "peak_mb": rows[-1]["peak_mb"]}
        record["loaded_mb"] = data["facts"]["peak_mb"]  # before the first iteration
        for clock in ("cpu", "wall"):
            medians = {
                part: statistics.median(seconds(r, part, clock, scale) for r in rows)
                for part in ("rollout", "update", "iteration")
            }
            record[clock] = {
                "seconds": medians,
                "tokens_per_s": {part: work.TOKENS / value for part, value in medians.items()},
            }
            if peer and system != PEER:
                ratios = [
                    seconds(p, "iteration", clock, scale) / seconds(r, "iteration", clock, scale)
                    for p, r in zip(peer["rows"], rows)
                ]
                record[clock]["ratio"] = dict(zip(("median", "low", "high", "coverage"), median_interval(ratios)))
        if peer and system != PEER:
            record["peak_ratio"] = record["peak_mb"] / peer["rows"][-1]["peak_mb"]
            target = TARGETS.get((name, system))
            record["target"] = target
            record["met"] = target and record["cpu"]["ratio"]["median"] >= target
        record["rows"] = rows
        records.append(record)
    return records


def equal_work(case: dict, measured: dict) -> list[tuple[str, bool, str]]:
    """(what was checked, held, what was found per system) for every iteration of every system."""
    shared = {system: SYSTEMS[system]["value"] == "shared" for system in measured}

    def counted(name: str):
        return {s: sorted({row["checks"].get(name, 0) for row in data["rows"]}) for s, data in measured.items()}

    def check(what: str, found: dict, expected: dict | int | list):
        wanted = expected if isinstance(expected, dict) else {s: expected for s in measured}
        held = all(found[s] == (v if isinstance(v, list) else [v]) for s, v in wanted.items())
        values = ["/".join(f"{v:,}" if isinstance(v, int) else str(v) for v in found[s]) for s in measured]
        each = "; ".join(f"{s} {v}" for s, v in zip(measured, values))
        return what, held, values[0] if len(set(values)) == 1 else each

    facts = {s: data["facts"] for s, data in measured.items()}
    size = next(iter(facts.values()))["policy_parameters"]
    rows = work.EPISODES * case["epochs"]
    networks = {s: SYSTEMS[s]["networks"] for s in measured}
    value_rows = {s: 0 if shared[s] else rows for s in measured}
    return [
        check("episodes given to the reward function", counted("episodes"), work.EPISODES),
        check("response tokens (20 in every episode)", counted("tokens"), work.TOKENS),
        check("EOS among them", counted("eos_tokens"), 0),
        check("optimizer steps", counted("optimizer_steps"), work.MINIBATCHES * case["epochs"]),
        check("episodes trained on by the policy", counted("policy_rows_trained"), rows),
        check("episodes trained on by a value network", counted("value_rows_trained"), value_rows),
        check("networks", {s: [f["networks"]] for s, f in facts.items()}, networks),
        check("precision of all weights", {s: f["precision"] for s, f in facts.items()}, ["float32"]),
        check("policy parameters", {s: [f["policy_parameters"]] for s, f in facts.items()}, size),
    ]


def positions(case: dict, measured: dict) -> str:
    """Positions per episode in a training pass: not equal, and said so."""
    rows = work.EPISODES * case["epochs"]
    counts = {system: data["rows"][0]["checks"]["policy_positions_trained"] for system, data in measured.items()}
    return ", ".join(f"{system} {count / rows:g}" for system, count in counts.items())


# ---- report --------------------------------------------------------------------------------------------------------


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
