"""The benchmark as one command: raw models, every task x condition x seed.

    python -m workbook.stages.grue_pipeline [--jobs 2]      from nothing to grue/runs; again, only what changed
    python -m workbook.stages.grue_pipeline --profile real  the same on real rows (grue/real), draw by draw
    python -m workbook.stages.grue_pipeline smoke           two tasks, six conditions, one seed, small: do they run?
    python -m workbook.stages.grue_pipeline prompts common_gen 6     what a method of your own has to answer
    python -m workbook.stages.grue_pipeline row "my method" FILE     its answers as rows: grue/submitted/README.md

DVC owns the stages (grue/dvc.yaml, grue/params.yaml); what shows progress and time left, stops and goes on is
``workbook.stages.reproduce``. The stages call this file with the name of one part (``code``, ``raw 1``, ``run`` with
a task and a condition, ``draw`` with a task and a seed, ``report``). Stopped inside a part, it goes on from the last
state of that part.

Of real rows a draw is a task x seed with all its arms; its rows (draws/<seed>/<task>.csv) belong in git as soon as they
are there, so that another machine goes on with the next one.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from rlnlp.learners.common import TrainingError
from workbook.stages.command import status
from workbook.store import rekeyed
from workbook.store.files import atomic_json, atomic_write, file_hash, read_json, whole
from workbook.store.fingerprint import libraries
from workbook.store.identity import Code
from workbook.store.locks import LockError, die_with_parent
from workbook.store.tables import read_table, write_table

ROOT = Path(__file__).resolve().parents[2]
REVIEWS = ROOT / "reports" / "mini" / "per_seed.csv"  # another pipeline's table, shown beside
SCRATCH = ROOT / ".scratch" / "grue"
STANDING = Path("build/given/standing.json")  # of real rows, in the profile's folder: `grue_given.standing`
RAW = [
    "workbook.grue.run:raw",
    "workbook.grue.world.raw:texts",
    "workbook.grue.world.raw:mix",
    "workbook.grue.words:words",
]
PROFILES = {"mini": "grue", "real": "grue/real", "paper": "grue/paper"}  # the first: generated rows
OF_MINI = ("prompts", "row", "smoke")  # parts that no other profile has
EXPECTED = {
    "raw@": 120,
    "runs@": 120,
    "continued@": 150,
    "controls@": 120,
    "rewards@": 150,
    "report": 120,
    "draws@": 2600,  # of real rows; where they mean nothing, "small"
    "small": 120,
}  # s on a busy core; measured ones replace them
SMALL = {  # numbers of these mean nothing
    "seeds": [0],
    "rows": {"train": 64, "supervised": 32, "validation": 16, "test": 16},
    "conditions": ["zero_shot", "ppo", "nlpo", "supervised"],
    "continued": ["sup_ppo", "sup_nlpo"],
    "control_tasks": [],
    "reward_tasks": [],
}


def code(out: str | Path) -> None:
    """raw.json and one file a task: the identity of the code that its stages run (of code that was edited without
    changing a digit, or whose rows stand for want of data, the one that committed rows know), and the versions of the
    libraries."""
    from workbook.grue import run, settings, tasks
    from workbook.grue.scoring import families

    ours, here, known = settings.load("params.yaml"), Code(ROOT), rekeyed.names(ROOT)
    stand = read_json(STANDING) or {}
    atomic_json(Path(out) / "raw.json", {"code": here.identity(RAW), **libraries()})
    for name in ours.tasks:
        roots = run.roots(ours, tasks.task(name))
        code = here.identity([*RAW, *roots])
        atomic_json(Path(out) / f"{name}.json", {"code": stand.get(name, known.get(code, code)), **libraries()})
    roots = [
        "workbook.grue.gather:all_seeds",
        "workbook.grue.gather:draws",
        "workbook.grue.report:write",
        "workbook.grue.reviews:section",
        *map(tasks.root, ours.tasks),
    ]
    roots += families({name for each in map(tasks.task, ours.tasks) for name in (*each.metrics, *ours.reward(each))})
    atomic_json(Path(out) / "report.json", {"code": here.identity(roots), **libraries()})


def bench(path: Path = Path("params.yaml"), work: Path = SCRATCH, settings=None):
    """Where parts are made."""
    from transformers.utils import logging

    from workbook.grue import run, words
    from workbook.grue import settings as grue

    logging.disable_progress_bar()
    logging.set_verbosity_error()
    ours = settings or grue.load(path)
    return run.Bench(ours, work, () if ours.real else words.words(ours.tasks), progress=True)


def raw(seed: int) -> None:
    """A draw's raw models; the loss curves into raw/<seed>.json."""
    from workbook.grue import run, tasks

    here = bench()
    kinds = sorted({tasks.task(name).causal for name in here.settings.tasks})
    curves = {"causal" if causal else "T5": read_json(run.raw(here, causal, seed) / "loss.json") for causal in kinds}
    atomic_json(Path("raw") / f"{seed}.json", curves)


def one(task: str, condition: str) -> None:
    """All seeds of a task x condition into runs/<task>/<condition>."""
    from workbook.grue import arms, run, tasks

    run.collect(bench(), tasks.task(task), arms.arm(condition), Path("runs") / task / condition)


def draw(task: str, seed: int) -> None:
    """All arms of a task and a seed, and the answers that no policy wrote: draws/<seed>/<task>.csv and .jsonl, small
    enough for git."""
    from workbook.grue import arms, baselines, run, tasks
    from workbook.grue import settings as grue

    ours = grue.load("params.yaml")
    given, one = bench(settings=ours.replace(seeds=(seed,))), tasks.task(task)
    with tempfile.TemporaryDirectory() as folder:
        rows, samples = baselines.rows(given.settings, one), []
        for condition in grue.arms_of(ours, task):
            out = Path(folder) / condition
            run.collect(given, one, arms.arm(condition), out)
            rows += read_table(out / "per_seed.csv")
            samples.append((out / "samples.jsonl").read_text(encoding="utf-8"))
    columns = list(dict.fromkeys(name for row in rows for name in row))
    home = Path("draws") / str(seed)
    write_table(home / f"{task}.csv", [dict.fromkeys(columns) | row for row in rows], columns)
    atomic_write(home / f"{task}.jsonl", "".join(samples))


def report_of_draws(profile: str) -> None:
    """The leaderboard and its figures of the draws that are finished, in reports/grue_<profile>. No claim is judged."""
    from workbook.grue import gather, tasks
    from workbook.grue import report as pages
    from workbook.grue import settings as grue

    folder = ROOT / PROFILES[profile]
    ours = grue.load(folder / "params.yaml")
    rows, samples = gather.draws(ours, folder / "draws")
    with whole(ROOT / "reports" / f"grue_{profile}") as fresh:
        pages.write(rows, [tasks.task(name) for name in ours.tasks], {}, {}, samples, fresh, ours)


def report(ours=None, folder: Path = ROOT / "grue", out: Path = ROOT / "reports" / "grue") -> None:
    """The leaderboard, its figures and the claims, of the tables in ``folder`` (where none is there, of the rows that
    the committed report keeps), with a line for each claim."""
    from workbook.grue import contrasts, gather, reviews, tasks
    from workbook.grue import report as pages
    from workbook.grue import settings as grue
    from workbook.ledger import checks

    full = grue.load(ROOT / "grue" / "params.yaml")
    rows, samples = gather.all_seeds(ours or full, folder / "runs", folder / "submitted", ROOT / "reports" / "grue")
    rules, known = contrasts.load(ROOT / "grue" / "contrasts.yaml", full), checks.load(ROOT / "claims.yaml")
    with whole(out) as fresh:
        beside = reviews.section(REVIEWS)
        chosen = [tasks.task(name) for name in full.tasks]
        verdicts = pages.write(rows, chosen, rules, known, samples, fresh, ours or full, further=beside)
    for verdict in verdicts:
        print(f"{verdict.id}: {verdict.sentence}", flush=True)


def prompts(task: str, seed: str) -> None:
    """What a method of one's own has to answer, as lines of JSON."""
    from workbook.grue import settings, submitted, tasks

    for line in submitted.prompts(settings.load(ROOT / "grue" / "params.yaml"), tasks.task(task), seed):
        print(json.dumps(line, ensure_ascii=False))
    sys.stdout.flush()  # who reads may have gone


def row(name: str, path: str) -> None:
    """Its answers, scored and judged, into grue/submitted."""
    from workbook.grue import settings, submitted

    logging.getLogger("sacrebleu").setLevel(logging.ERROR)  # it advises to part words otherwise: theirs are as they are
    rows = submitted.rows(settings.load(ROOT / "grue" / "params.yaml"), name, submitted.read(path))
    columns = list(dict.fromkeys(column for one in rows for column in one))
    out = ROOT / "grue" / "submitted" / f"{name}.csv"
    write_table(out, [dict.fromkeys(columns) | one for one in rows], columns)
    print(f"{len(rows)} rows: {out.relative_to(ROOT)}")


def smoke() -> None:
    """Two tasks, one of them causal, from nothing to the report, in a folder that is thrown away."""
    from workbook.grue import arms, run, tasks
    from workbook.grue import settings as grue

    full = grue.load(ROOT / "grue" / "params.yaml")
    chosen = {causal: name for name in reversed(full.tasks) if (causal := tasks.task(name).causal) in (True, False)}
    small = {
        "raw": full.raw.replace(steps=20).model_dump(),
        "causal": full.causal.replace(steps=20).model_dump(),
        "supervised": full.supervised.replace(epochs=2).model_dump(),
        "learner": {**full.learner, "updates": 2, "episodes_per_update": 16},
        "tasks": list(chosen.values()),
        "overrides": {name: full.overrides[name].model_dump() for name in chosen.values()},
    }
    ours = grue.Grue.model_validate({**full.model_dump(), **SMALL, **small})
    with tempfile.TemporaryDirectory() as folder:
        here = bench(work=Path(folder), settings=ours)
        for name in ours.tasks:
            for condition in grue.arms_of(ours, name):
                out = Path(folder) / "runs" / name / condition
                run.collect(here, tasks.task(name), arms.arm(condition), out)
                print(f"{name} {condition}: {len(read_table(out / 'per_seed.csv'))} row", flush=True)
        report(ours, Path(folder), Path(folder) / "report")
        print((Path(folder) / "report" / "leaderboard.md").read_text())


def of_draws(profile: str, jobs: int) -> bool:
    """Run a profile of real rows; whether all went well. Raises: DataError where rows or models are not found,
    ConfigError where its GPU is not."""
    from workbook.grue import settings
    from workbook.runs import means
    from workbook.stages import grue_given
    from workbook.stages.reproduce import reproduce

    folder, scratch = ROOT / PROFILES[profile], ROOT / ".scratch" / f"grue_{profile}"
    ours = settings.load(folder / "params.yaml")
    if ours.device != "cpu":
        means.on_gpu(ours.device, "fp32")
    given = grue_given.identities(ours, folder)
    for name, content in given.items():
        atomic_json(folder / "build" / "given" / f"{name}.json", content)
    stand = grue_given.standing(ours, folder)
    atomic_json(folder / STANDING, stand)
    if stand:
        anew = f"to make them anew, set RLNLP_MIRROR, or remove them from {PROFILES[profile]}/draws and ask the hub"
        print(f"no mirror with {', '.join(stand)}: their rows stand, of the code that made them; {anew}", flush=True)
    draws = [f"draws@{seed}-{name}" for seed in ours.seeds for name in ours.tasks]  # one draw after the other
    if ours.bring == settings.Bring():  # of models that are brought nothing was measured
        kinds = ["small" if name in ours.meaningless else "draws@" for _ in ours.seeds for name in ours.tasks]
        expect(scratch, {"report": "report", **dict(zip(draws, kinds))})
    if well := reproduce(folder, scratch, jobs, ours=False, order=draws):
        codes = {name: read_json(folder / "build" / "code" / f"{name}.json") for name in ours.tasks}
        grue_given.keep(folder, given, {name: found["code"] for name, found in codes.items() if found})
    return well


def expect(scratch: Path, kinds: Mapping[str, str]) -> None:
    """How long stages (stage -> kind) may take, for the time left, where none was measured yet."""
    if not (scratch / "durations.json").exists():
        atomic_json(scratch / "durations.json", {stage: EXPECTED[kind] for stage, kind in kinds.items()})


def everything(jobs: int) -> bool:
    """Run the pipeline; whether all went well."""
    from workbook.grue import settings
    from workbook.stages.reproduce import reproduce

    ours = settings.load(ROOT / "grue" / "params.yaml")
    pairs = {
        "raw@": map(str, ours.seeds),
        "runs@": (f"{task}-{name}" for task in ours.tasks for name in ours.conditions),
        "continued@": (f"{task}-{name}" for task in ours.tasks for name in ours.continued),
        "controls@": (f"{task}-{name}" for task in ours.control_tasks for name in ours.controls),
        "rewards@": (f"{task}-{name}" for task in ours.reward_tasks for name in ours.rewards),
        "report": [""],
    }
    expect(SCRATCH, {kind + key: kind for kind in pairs for key in pairs[kind]})
    # as a dependency, the table itself would bring the whole pipeline that makes it into this one
    given = {"content": file_hash(REVIEWS)} if REVIEWS.is_file() else {}
    atomic_json(ROOT / "grue" / "build" / "given" / "reviews.json", given)
    return reproduce(ROOT / "grue", SCRATCH, jobs, ours=False)


def _seed(given: str) -> int:
    if not given.isdecimal():
        raise ValueError(f"seed: expected a whole number, got {given!r}")
    return int(given)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m workbook.stages.grue_pipeline", description=__doc__.partition("\n")[0]
    )
    parser.add_argument(
        "part",
        nargs="?",
        choices=("code", "raw", "run", "draw", "report", "smoke", "prompts", "row"),
        help="a stage; default: all of them",
    )
    says = (
        "of raw: a seed; of run: a task and a condition; of draw and prompts: a task and a seed; "
        "of row: a name and a file"
    )
    parser.add_argument("names", nargs="*", help=says)
    parser.add_argument("--profile", choices=PROFILES, default="mini", help="mini, the default: generated rows")
    parser.add_argument("--jobs", type=int, default=2, help="stages side by side, one thread each")
    parser.add_argument("--tied", action="store_true", help="end when the process that started this one ends (make)")
    args = parser.parse_args(argv)
    parts = {
        "code": (0, lambda: code("build/code")),
        "raw": (1, lambda seed: raw(_seed(seed))),
        "run": (2, one),
        "draw": (2, lambda task, seed: draw(task, _seed(seed))),
        "report": (0, report if args.profile == "mini" else lambda: report_of_draws(args.profile)),
        "prompts": (2, prompts),
        "row": (2, row),
        "smoke": (0, smoke),
    }
    if len(args.names) != (parts[args.part][0] if args.part else 0):
        parser.error(f"{args.part or 'the whole'}: {says}; the others take nothing")
    if args.part in OF_MINI and args.profile != "mini":
        parser.error(f"{args.part}: of generated rows alone; expected no --profile {args.profile}")
    if "DVC_STAGE" in os.environ:  # a killed dvc does not take along what it started
        die_with_parent()
    try:
        if args.part is None:
            jobs = max(1, args.jobs)
            work = (lambda: everything(jobs)) if args.profile == "mini" else lambda: of_draws(args.profile, jobs)
            return status(work, args.tied, "the same command goes on from here")
        parts[args.part][1](*args.names)
    except BrokenPipeError:  # as of `| head`; nothing is left to say, at the end of the process too
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except (LockError, TrainingError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
