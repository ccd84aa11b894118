"""``python -m bench.workers``: a profile's models and seeds on one Dask worker, then on two: time, and every byte.

The sweep is that of ``make reproduce WORKERS=local:n``, in a folder of its own and without DVC; what its stages write
is compared file by file. ``--conditions`` and ``--draws`` make it smaller. Run it on an idle machine.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from ruamel.yaml import YAML

from workbook.runs import checks, conditions
from workbook.stages import away, cluster
from workbook.stages.processes import environment, machine
from workbook.stages.sweep import Sweep
from workbook.store.files import file_hash

ROOT = Path(__file__).resolve().parent.parent
REPORT = ROOT / "reports" / "bench" / "workers.md"
COMPARED = ("data", "models", "variants", "worlds", "tune", "runs")


def prepare(profile: str, root: Path, names: Sequence[str], draws: int) -> Path:
    """The profile's folder below ``root``, with these conditions and so many draws alone (none, 0: all)."""
    yaml, folder = YAML(typ="safe", pure=True), root / "profiles" / profile
    values = yaml.load(ROOT / ("" if profile == "mini" else f"profiles/{profile}") / "params.yaml")
    values["root"] = "../.."
    if names:
        kept = {name: entry for name, entry in values["runs"].items() if name in names}
        values |= {"runs": kept, "continued": {}, "reports": {"kl": {"conditions": list(kept)}}, "claims": []}
    if draws:
        values["seeds"] = values["seeds"][:draws]
        used = {*values["seeds"], values["tune"]["draw"]}
        values["draws"] = [draw for draw in values["draws"] if draw in used]
    folder.mkdir(parents=True)
    yaml.dump(values, folder / "params.yaml")
    shutil.copy(ROOT / "claims.yaml", root)
    return folder


def sweep(folder: Path, count: int, say=print) -> dict[str, float]:
    """All stages of the profile on ``count`` workers; seconds until a worker was there, of units, of what the head
    does. Raises RuntimeError naming a stage that failed."""
    if conditions.main([str(folder / "params.yaml"), str(folder / "build")]):
        raise RuntimeError(f"{folder}: the settings are not sound")
    params, began = checks.load(folder / "params.yaml"), time.monotonic()
    seconds = dict.fromkeys(("start", "units", "head"), 0.0)
    with cluster.connected(f"local:{count}", count, params.scratch, device=params.device) as client:
        work = Sweep(client, folder, params.scratch, say)
        while len(work.workers) < count:
            work.step()
            time.sleep(0.05)
        seconds["start"] = time.monotonic() - began
        for part in away.stages(params):
            began = time.monotonic()
            while not all([work.ready(stage) for stage in part]):  # a list: each is asked, and queued
                work.step()
                time.sleep(0.02)
            seconds["units"] += time.monotonic() - began
            began = time.monotonic()
            for stage in part:
                if error := away.collect(str(folder), stage):
                    raise RuntimeError(f"{stage}: {error}")
            seconds["head"] += time.monotonic() - began
    return seconds


def written(folder: Path) -> dict[str, str]:
    """Path below the profile's folder -> hash, of all that its stages wrote."""
    files = (path for name in COMPARED for path in sorted((folder / name).rglob("*")) if path.is_file())
    return {path.relative_to(folder).as_posix(): file_hash(path) for path in files}


def differing(one: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    """Files that only one has, or that are not the same."""
    return sorted(name for name in {*one, *other} if one.get(name) != other.get(name))


def markdown(found: Mapping) -> str:
    """The report."""
    lines = ["# One worker and two", ""]
    lines += [f"Profile {found['profile']}, {found['machine']}, load {found['load']:.1f} at the beginning.", ""]
    lines += ["| workers | start, s | units, s | head, s |", "| --- | --- | --- | --- |"]
    lines += [f"| {n} | {s['start']:.1f} | {s['units']:.1f} | {s['head']:.1f} |" for n, s in found["seconds"].items()]
    different = found["different"]
    said = f"**{len(different)} differ**: {', '.join(different[:5])}" if different else "all the same, byte for byte"
    return "\n".join([*lines, "", f"{found['files']} files, tables and weights: {said}.", ""])


def main(given: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.workers", description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--profile", default="smoke", help="mini, or the name of a folder in profiles/")
    add("--workers", type=int, nargs="+", default=[1, 2], help="how many, one sweep each")
    add("--conditions", nargs="*", default=(), help="these alone")
    add("--draws", type=int, default=0, help="the first so many alone")
    add("--report", type=Path, nargs="?", const=REPORT, help="write the report (reports/bench/workers.md)")
    options = parser.parse_args(given)
    os.environ.update(environment())
    known: list[dict[str, str]] = []
    found = {"profile": options.profile, "machine": machine(), "load": os.getloadavg()[0], "seconds": {}}
    for count in options.workers:
        with tempfile.TemporaryDirectory() as place:
            folder = prepare(options.profile, Path(place), options.conditions, options.draws)
            found["seconds"][str(count)] = sweep(folder, count)
            known.append(written(folder))
    different = sorted({name for other in known[1:] for name in differing(known[0], other)})
    found |= {"files": len(known[0]), "different": different}
    print(json.dumps(found, indent=1))
    if options.report:
        options.report.parent.mkdir(parents=True, exist_ok=True)
        options.report.write_text(markdown(found))
    return int(bool(different))


if __name__ == "__main__":
    sys.exit(main())
