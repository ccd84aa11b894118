"""A dvc.yaml as DVC sees it: its stages, what each needs, which of them changed; a dvc.lock that survives a kill."""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml
from ruamel.yaml import YAML

from workbook.stages.processes import ask
from workbook.store.files import atomic_write, read_json

LIGHT = ("check", "nb", "code")  # shorter than the start of a process, and at the beginning: they share one
RUNS = ("runs", "continued")  # each writes runs/<condition>
COLLECT = ("digests", "tidy", "report", "claims")  # they also serve when runs are missing, and say so
DVC = ["dvc", "--wait-for-lock"]  # without it, several at once on a slow machine give up after three seconds
REPRO = [*DVC, "repro"]
STATUS = {"status": [*DVC, "-q", "status", "--json", "dvc.yaml"]}
DAG = {"dag": [*DVC, "dag", "--dot", "dvc.yaml"]}


def kind(stage: str) -> str:
    """What stands before the @: runs of runs@ppo_kl_0."""
    return stage.partition("@")[0]


def key(stage: str) -> str:
    """What stands behind the @; empty for a stage that is alone of its kind."""
    return stage.partition("@")[2]


class Pipeline:
    """needs: stage -> the stages it needs; changed: those that DVC found changed; values: params.yaml, of a profile.

    Made, it has mended the lock, checked the settings and asked DVC. Raises SystemExit with what is wrong.
    """

    def __init__(self, folder: Path, scratch: Path, ours: bool):
        """folder: of dvc.yaml; scratch: for logs and the like; ours: it is a profile of this package, with settings to
        check."""
        self.folder, self.scratch, self.logs = folder, scratch, scratch / "logs"
        mend_lock(folder, scratch)
        check = {"check": ["workbook.runs.conditions", "params.yaml", str(scratch / "check")]} if ours else {}
        said = ask({**check, **STATUS, **DAG}, folder, self.logs)
        self.needs, self.changed = read_graph(said["dag"]), changes(said["status"])
        self.values = YAML(typ="safe", pure=True).load(folder / "params.yaml") if ours else None
        if ours and self._edited():
            # a file of the user's, which DVC cannot know: its name is a value, not a dependency
            self.repro("brought", "--force", "-s", "check")
            self.changed = self.status()

    def _edited(self) -> bool:
        """Whether a file that the settings name is another one than the stage `check` saw."""
        seen, now = self.folder / "build" / "brought.json", self.scratch / "check" / "brought.json"
        return seen.exists() and seen.read_text(encoding="utf-8") != now.read_text(encoding="utf-8")

    def repro(self, log: str, *arguments: str) -> None:
        ask({log: [*REPRO, *arguments]}, self.folder, self.logs)

    def status(self) -> set[str]:
        """The stages that DVC now finds changed."""
        return changes(ask(STATUS, self.folder, self.logs)["status"])

    def run_light(self) -> None:
        """Run what is LIGHT and changed, in one process."""
        light = {stage for stage in self.needs if kind(stage) in LIGHT}
        if self.changed & light:
            self.repro("light", "-s", *(stage for stage in self.needs if stage in light))
            heavy = self.needs.keys() - light
            self.changed = heavy if heavy <= self.changed else self.status()

    def order(self) -> list[str]:
        """The stages of the runs in the order in which params.yaml names them."""
        return [f"{section}@{name}" for section in RUNS for name in (self.values or {}).get(section) or {}]

    @functools.cached_property
    def updates(self) -> dict[str, int]:
        """Condition -> updates of its training, as the check of the settings resolved them."""
        checked = (self.scratch / "check" / "conditions").glob("*.json") if self.values else ()
        return {path.stem: read_json(path)["learner"]["updates"] for path in checked}


def read_graph(dot: str) -> dict[str, set[str]]:
    """Stage -> the stages it needs, from the text of `dvc dag --dot` (edges point from what is needed)."""
    needs: dict[str, set[str]] = {}
    for line in dot.splitlines():
        names = [name.rpartition("dvc.yaml:")[2] for name in re.findall(r'"([^"]+)"', line)]
        for name in names:
            needs.setdefault(name, set())
        if "->" in line and len(names) == 2:
            needs[names[1]].add(names[0])
    return needs


def changes(said: str) -> set[str]:
    """Stages that `dvc status --json` names."""
    return set(json.loads(said[said.index("{") :]))


def with_followers(needs: Mapping[str, set[str]], stages: Iterable[str]) -> set[str]:
    """Stages and all that come after them."""
    found = set(stages)
    while more := {s for s, n in needs.items() if n & found} - found:
        found |= more
    return found


# dvc.lock: DVC writes it in place, so a kill can cut it short --------------------------------------------------------


def whole(text: str) -> bool:
    """Whether a dvc.lock says a path and a hash for all it names."""
    try:
        stages: dict[str, Any] = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))["stages"]
        entries = [e for stage in stages.values() for e in [*stage.get("deps", []), *stage.get("outs", [])]]
        return all("cmd" in stage for stage in stages.values()) and all(e["path"] and e[e["hash"]] for e in entries)
    except (yaml.YAMLError, LookupError, TypeError, AttributeError):
        return False


def keep_lock(folder: Path, scratch: Path) -> None:
    """Copy dvc.lock to the scratch folder, if it is whole (another stage may be writing it right now)."""
    if (lock := folder / "dvc.lock").exists() and whole(text := lock.read_text(encoding="utf-8")):
        atomic_write(scratch / "dvc.lock", text)


def mend_lock(folder: Path, scratch: Path) -> None:
    """Put the kept copy back where dvc.lock was cut short; without one DVC finds finished work in its run cache."""
    lock, kept = folder / "dvc.lock", scratch / "dvc.lock"
    if lock.exists() and not whole(lock.read_text(encoding="utf-8")):
        print(f"{os.path.relpath(lock)} was cut short when DVC was killed; using the copy from before", flush=True)
        if kept.exists():
            atomic_write(lock, kept.read_text(encoding="utf-8"))
        else:
            lock.unlink()
