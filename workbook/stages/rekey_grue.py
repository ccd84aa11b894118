"""Show that an edit of code changes no digit of the benchmark, and let its rows on real data in git count as before.

    RLNLP_MIRROR=... python -m workbook.stages.rekey_grue OLD [NEW]    # NEW: HEAD; then commit workbook/rekeyed.json
    RLNLP_MIRROR=... python -m workbook.stages.rekey_grue OLD --tasks multi30k imdb    # of an edit of others' scores

What `workbook.stages.rekey` does for the ablations: both commits are checked out (.scratch/rekey), and each task of
grue/real is run at both by every arm, on few rows and for few steps, of the rows that the profile reads. All bytes are
compared: numbers of every example, samples, curves, weights, and the rows of answers that no model wrote. If they are
equal one record is written, identities of the tasks' code before and after; if any byte differs nothing is written, and
it says where. A task's code has the scores that any arm is paid, of which it may have none: of an edit of a score
compare the tasks that are not scored by it.
"""

from __future__ import annotations

import datetime
import functools
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rlnlp.settings import ConfigError
from workbook.grue import tasks
from workbook.results.tables import join
from workbook.stages import rekey
from workbook.stages.processes import environment, machine, signal_at_parents_end
from workbook.stages.progress import last_words, log_tail
from workbook.store import rekeyed
from workbook.store.files import atomic_json, folder_hash, read_json
from workbook.store.fingerprint import digest, libraries

PROFILE = Path("grue") / "real"
WITHOUT = "answers without a model"
CUT = {
    "rows": {"train": 64, "supervised": 32, "validation": 16, "test": 16},
    "raw": {"steps": 20, "texts": 2000},
    "causal": {"steps": 20},
    "supervised": {"epochs": 2},
    "learner": {"updates": 2, "episodes_per_update": 16},
    "evaluation": {"spread_prompts": 8},
}  # at most; numbers of these mean nothing


def made(out: Path, only: Sequence[str] = ()) -> None:
    """In the folder of the profile, with the code of its tree: what every arm of every task (of ``only`` these) makes
    (hashes), and the identities of the tasks' code, into ``out``."""
    from workbook.grue import arms, baselines, run, settings
    from workbook.stages import grue_pipeline

    full = settings.load("params.yaml")
    whole = full.model_dump()
    cut = {key: {**whole[key], **{k: min(n, whole[key][k]) for k, n in most.items()}} for key, most in CUT.items()}
    small = settings.Grue.model_validate({**whole, **cut, "seeds": [1]})
    found: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        here = grue_pipeline.bench(work=Path(folder), settings=small)
        names = [*only] or small.tasks
        for name in names:
            for arm in settings.arms_of(small, name):
                made = run.part(here, tasks.task(name), arms.arm(arm), small.seeds[0])
                found[f"{name} {arm}"] = folder_hash(made)
                print(f"{name} {arm}", flush=True)
            found[f"{name} {WITHOUT}"] = digest({"rows": baselines.rows(small, tasks.task(name))})
        grue_pipeline.code(Path(folder) / "code")
        code = {name: read_json(Path(folder) / "code" / f"{name}.json")["code"] for name in names}
    atomic_json(out, {"code": code, "made": found})


def at(commit: rekey.Commit, only: Sequence[str] = ()) -> dict[str, dict[str, str]]:
    """What ``made`` says at a commit; kept for this machine. Raises ConfigError with its last words where it fails."""
    out, log = commit.done / f"{'-'.join(['grue', *only])}.json", commit.done / "grue.log"
    if (known := read_json(out)) is None:
        log.parent.mkdir(parents=True, exist_ok=True)
        with open(log, "wb") as said:
            worker = [sys.executable, "-P", str(Path(__file__).resolve()), "--made", str(out), *only]
            env = {**environment(), "PYTHONPATH": str(commit.tree)}
            folder = commit.tree / PROFILE
            words = {"stdout": said, "stderr": said, "preexec_fn": signal_at_parents_end}
            done = subprocess.run(worker, cwd=folder, env=env, **words)
        if done.returncode:
            raise ConfigError(f"commit {commit.id[:12]}: {last_words(log_tail(log))} (log {log})")
        known = json.loads(out.read_text(encoding="utf-8"))
    return known


def compare(root: Path, pair: tuple[rekey.Commit, rekey.Commit], only: Sequence[str] = ()) -> bool:
    """Whether all that both made is equal, and is recorded. Raises ConfigError with what is wrong."""
    old, new = (at(commit, only) for commit in pair)
    parts = sorted(old["made"].keys() | new["made"].keys())
    if unequal := [part for part in parts if old["made"].get(part) != new["made"].get(part)]:
        print(f"{unequal[0]} differs first, of {len(unequal)} that do; nothing is recorded", file=sys.stderr)
        return False
    pairs = [[old["code"][name], new["code"][name]] for name in sorted(new["code"].keys() & old["code"].keys())]
    if code := rekeyed.unknown(root, {"grue": [each for each in pairs if each[0] != each[1]]}):
        record = {
            "old": pair[0].id,
            "new": pair[1].id,
            "date": datetime.date.today().isoformat(),
            "machine": f"{machine()}, torch threads 1",
            "libraries": libraries(),
            "compared": {f"grue: {name}": value for name, value in new["made"].items()},
            "code": code,
        }
        print(f"all bytes of {len(new['made'])} parts are equal; wrote {rekeyed.add(root, record)}: commit it")
    print(f"all rows of {join([*only]) or 'the benchmark'} that are committed count")
    return True


def main(argv: Sequence[str] | None = None) -> int:
    parser = rekey.asked("rekey_grue", __doc__)
    parser.add_argument("--tasks", nargs="+", metavar="TASK", default=[], choices=tasks.names(), help="only these")
    args = parser.parse_args(argv)
    return rekey.compared(args, functools.partial(compare, only=sorted({*args.tasks})))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--made"]:
        made(Path(sys.argv[2]), sys.argv[3:])
    else:
        sys.exit(main())
