"""Show that an edit of code changes no digit, and let what was committed before it count: old commit against new.

    python -m workbook.stages.rekey OLD [NEW]    # NEW: HEAD; then commit workbook/rekeyed.json
    python -m workbook.stages.rekey OLD --plan   # which units it would rerun, why, and how long it would take

Results are kept under the identity of the code that made them. This checks both commits out (.scratch/rekey) and
reruns in both, side by side on this machine, a smallest set of units that shows each learner, sampler and decoding, of
the profiles with committed rows, whose code differs: one seed each, with the models of its draw, language models
trained for at most a thousand steps. It compares every byte: tables, curves, samples, weights, models. If all are equal
it writes one record, old identities and new (workbook/store/rekeyed), and from then on rows, draws of registered
designs, carried seeds and DVC's lock files count as before. If any byte differs nothing is written, and it says where,
and what will run again. Stopped, the same command goes on: finished units are kept. When all is recorded,
.scratch/rekey can go (then: git worktree prune).
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil
from tqdm.auto import tqdm

from rlnlp.settings import ConfigError
from workbook.stages import rekey_choice
from workbook.stages.command import status
from workbook.stages.pipeline import RUNS, kind
from workbook.stages.processes import environment, machine, signal_at_parents_end, stop
from workbook.stages.progress import Durations, in_words, last_words, log_tail
from workbook.stages.rekey_choice import Chosen
from workbook.store import rekeyed
from workbook.store.files import atomic_json, read_json
from workbook.store.fingerprint import digest, libraries
from workbook.store.locks import writer_lock

CUT = "rekey-"  # as in `rerun`
SCRATCH = Path(".scratch") / "rekey"
LOCKED = "requirements.lock"
BAR = "{desc} {percentage:3.0f}%|{bar:20}| {elapsed} so far, {remaining} left"
WORKER = Path(__file__).with_name("rerun.py")


class Commit:
    """A commit of the repository in `root`, and what is kept of it below the scratch. Raises ConfigError for none."""

    def __init__(self, root: Path, name: str):
        found = git(root, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
        if not found:
            raise ConfigError(f"{name}: expected a commit of {root}, found none of this name")
        self.root, self.id, home = root, found, root / SCRATCH / found[:12]
        self.tree, self.log, self.known, self.plan = (home / n for n in ("tree", "log", "facts.json", "plan.json"))
        self.done = home / f"done-{digest({**libraries(), 'machine': machine()})[:12]}"  # other ones make other bytes
        self.worker: psutil.Popen | None = None

    def lay(self) -> None:
        """Check it out, or see that what is checked out is still the commit."""
        if not (self.tree / ".git").exists():
            self.tree.parent.mkdir(parents=True, exist_ok=True)
            git(self.root, "worktree", "add", "--force", "--detach", str(self.tree), self.id)
        changed = git(self.tree, "status", "--porcelain", "--untracked-files=no")
        if git(self.tree, "rev-parse", "HEAD") != self.id or changed:
            raise ConfigError(f"{self.tree}: expected commit {self.id[:12]} unchanged; remove {self.tree.parent}")

    def start(self) -> None:
        """The worker, with this commit's code, its words in the log; it ends when we do."""
        with open(self.log, "ab") as out:
            self.worker = psutil.Popen(
                [sys.executable, "-P", str(WORKER), *map(str, (self.known, self.plan, self.done, self.root))],
                cwd=self.tree,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**environment(), "PYTHONPATH": str(self.tree), "MPLBACKEND": "Agg"},
                start_new_session=True,
                preexec_fn=signal_at_parents_end,  # noqa: PLW1509 (one system call)
            )

    def wait(self, path: Path, what: str) -> Any:
        """What the worker writes there. Raises ConfigError with its last words where it ends without."""
        while not path.is_file():
            if self.worker.poll() is not None and not path.is_file():
                said = last_words(log_tail(self.log))
                raise ConfigError(f"commit {self.id[:12]}: {what} failed: {said} (log {self.log})")
            time.sleep(0.1)
        return json.loads(path.read_text(encoding="utf-8"))

    def mark(self, unit: Chosen) -> Path:
        """The hashes of what a finished unit made."""
        return self.done / unit.profile / f"{unit.stage}.json"


def git(folder: Path, *arguments: str) -> str:
    """What git says, without the last newline; "" where it fails to find something that may be missing."""
    done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True)
    if done.returncode and arguments[0] != "rev-parse":
        raise ConfigError(f"git {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout.rstrip("\n") if not done.returncode else ""


def commits(root: Path, old: str, new: str) -> tuple[Commit, Commit]:
    """Both, checked out. Raises ConfigError where they cannot be compared."""
    if changed := git(root, "status", "--porcelain"):
        first = changed.splitlines()[0].strip()
        raise ConfigError(f"{root}: expected a clean tree, found {first}; commit your changes, or stash them")
    pair = Commit(root, old), Commit(root, new)
    if pair[0].id == pair[1].id:
        raise ConfigError(f"{old}, {new}: expected two commits, found {pair[0].id[:12]} twice")
    locks = [git(root, "rev-parse", "--verify", "--quiet", f"{commit.id}:{LOCKED}") for commit in pair]
    if locks[0] != locks[1]:
        raise ConfigError(f"{LOCKED} differs between {old} and {new}: one environment cannot run both; nothing was run")
    for commit in pair:
        commit.lay()
    return pair


def facts(pair: tuple[Commit, Commit]) -> list[dict[str, Any]]:
    """What `rerun.facts` says of each; kept, but where something was not here, which may have come meanwhile."""
    for commit in pair:
        commit.plan.unlink(missing_ok=True)
        known = read_json(commit.known)
        if known is None or any(about["lacks"] for about in known.values()):
            commit.known.unlink(missing_ok=True)
            commit.start()
    return [commit.wait(commit.known, "reading its profiles") for commit in pair]


def timed(root: Path, units: Sequence[Chosen], after: dict[str, Any]) -> list[Chosen]:
    """The units with what each is likely to take: as measured here, else by kind; of a run one seed."""
    known = {name: Durations(root / ".scratch" / name / "durations.json") for name in after}
    found = []
    for unit in units:
        seconds = known[unit.profile].guess(unit.stage)
        found.append(unit._replace(seconds=seconds / (after[unit.profile]["seeds"] if kind(unit.stage) in RUNS else 1)))
    return found


def table(units: Sequence[Chosen]) -> str:
    """A line for each unit, and the time of all."""
    lines = [f"{u.profile:<10} {u.stage:<28} {u.seconds / 60:6.1f} min  {u.why}" for u in units]
    whole = in_words(sum(unit.seconds for unit in units))
    return "\n".join([*lines, f"{len(units)} units at two commits side by side: {whole}"])


def differing(pair: tuple[Commit, Commit], units: Sequence[Chosen]) -> str:
    """Rerun the units at both commits, and compare each as soon as both have it; the first difference, or ""."""
    plan: dict[str, list[str]] = {}
    for unit in units:
        plan.setdefault(unit.profile, []).append(unit.stage)
    for commit in pair:
        atomic_json(commit.plan, list(plan.items()))
        if commit.worker is None and not all(commit.mark(unit).is_file() for unit in units):
            commit.start()
    with tqdm(total=sum(unit.seconds for unit in units), bar_format=BAR) as bar:
        for unit in units:
            name = f"{unit.profile}: {unit.stage}"
            bar.set_description(name)
            old, new = (commit.wait(commit.mark(unit), name) for commit in pair)
            if unequal := sorted(file for file in old.keys() | new.keys() if old.get(file) != new.get(file)):
                folders = " and ".join(str(commit.tree / "profiles" / f"{CUT}{unit.profile}") for commit in pair)
                return f"{name}: {unequal[0]} differs first, of {len(unequal)} files that do; they are in {folders}"
            bar.update(unit.seconds)
    return ""


def record(
    pair: tuple[Commit, Commit], units: Sequence[Chosen], threads: set[int], code: rekeyed.Pairs
) -> dict[str, Any]:
    """What is written once all bytes were equal."""
    return {
        "old": pair[0].id,
        "new": pair[1].id,
        "date": datetime.date.today().isoformat(),
        "machine": f"{machine()}, torch threads {', '.join(map(str, sorted(threads)))}",  # as rows name it
        "libraries": libraries(),
        "compared": {f"{unit.profile}: {unit.stage}": digest(read_json(pair[1].mark(unit))) for unit in units},
        "code": code,
    }


def rekey(root: Path, pair: tuple[Commit, Commit], plan_only: bool) -> bool:
    """Whether all that was rerun was equal, and is recorded. Raises ConfigError with what is wrong."""
    before, after = facts(pair)
    units = timed(root, rekey_choice.choose(before, after), after)
    code = rekeyed.unknown(root, rekey_choice.paired(before, after, units))
    if code:
        print(table(units), flush=True)
    if plan_only and code:
        return True
    why = differing(pair, units) if code else ""
    if why:
        print(f"{why}\nnothing is recorded", file=sys.stderr)
    elif code:
        for commit in pair:
            commit.lay()  # is still what it was
        path = rekeyed.add(root, record(pair, units, {after[unit.profile]["threads"] for unit in units}, code))
        print(f"all bytes of {len(units)} units are equal; wrote {os.path.relpath(path)}: commit it")
    left = [*rekey_choice.again(before, after, rekeyed.names(root))]
    print("\n".join(left or ["all that is committed counts"]))
    return not why


def asked(name: str, about: str | None) -> argparse.ArgumentParser:
    """What a command reads that compares two commits."""
    parser = argparse.ArgumentParser(
        prog=f"python -m workbook.stages.{name}",
        description=about,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("old", metavar="OLD", help="the commit whose code made what is committed")
    parser.add_argument("new", metavar="NEW", nargs="?", default="HEAD", help="the commit with the edit (HEAD)")
    parser.add_argument("--root", type=Path, default=Path("."), help="folder of the repository")
    return parser


def compared(args: argparse.Namespace, compare: Callable[[Path, tuple[Commit, Commit]], bool]) -> int:
    """The command's exit status: of what ``compare`` says of the repository and both commits, checked out. Only one
    command at a time compares."""
    root = args.root.resolve()

    def work() -> bool:
        with writer_lock(root / SCRATCH, wait_s=0):
            rekeyed.names(root)  # is the record as it was written
            pair = commits(root, args.old, args.new)
            try:
                return compare(root, pair)
            finally:
                stop([commit.worker for commit in pair if commit.worker])

    try:
        return status(work, False, "the same command goes on with what was stopped")
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def main(argv: list[str] | None = None) -> int:
    parser = asked("rekey", __doc__)
    parser.add_argument("--plan", action="store_true", help="say what would be rerun, why and how long; run nothing")
    args = parser.parse_args(argv)
    return compared(args, lambda root, pair: rekey(root, pair, args.plan))


if __name__ == "__main__":
    sys.exit(main())
