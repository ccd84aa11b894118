"""A tiny repository rekeyed: an edit that changes no digit, one that changes the last, a kill, refusals."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from tests.built import write_params
from tests.executed import ROOT, copied
from tests.waiting import until
from workbook.runs import checks
from workbook.stages import depends, one_draw, rekey
from workbook.store import rekeyed
from workbook.store.files import file_hash

pytestmark = [pytest.mark.xdist_group("rekey"), pytest.mark.timeout(900)]

RUN = "ppo_kl_0"
CHANGES = {
    "profile": "mini",
    "draws": [1],
    "runs": {RUN: {"algorithm": "ppo", "kl_coef": 0.0, "updates": 2, "learning_rate": 3e-3}},
    "continued": {},
    "claims": [],
    "worlds": {},
    "reports": {"kl": {"conditions": [RUN]}},
}
FACTS = Path("workbook/runs/facts.py")  # its numbers stand in the table
EQUAL = [("    steps = sum(", "    taken = sum("), ("/ steps if steps else None", "/ taken if taken else None")]
DIGIT = [("/ steps if steps else None", "/ steps * (1 + 2**-52) if steps else None")]


def git(folder: Path, *arguments: str) -> str:
    who = ["-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", *who, *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def commit(folder: Path, edit=(), place: Path = FACTS) -> str:
    text = (folder / place).read_text()
    for old, new in edit:
        assert text.count(old) == 1
        text = text.replace(old, new)
    (folder / place).write_text(text)
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "--allow-empty", "-m", "a commit")
    return git(folder, "rev-parse", "HEAD")


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """Our code with one small profile that has committed rows; its commits by name: old, equal, digit, locked."""
    folder = copied(tmp_path_factory.mktemp("rekey"))
    (folder / rekeyed.RECORD).unlink(missing_ok=True)  # that of this repository
    shutil.copytree(ROOT / "notebooks", folder / "notebooks")
    write_params(folder, **CHANGES)
    values = YAML(typ="safe").load((folder / "params.yaml").read_text())
    values["variants"] |= {"label_fractions": [], "dropout": 0.0}
    values["tune"]["own"] = {}
    with open(folder / "params.yaml", "w") as file:
        YAML().dump(values, file)
    for name, text in {"reports/mini/per_seed.csv": "condition\n", ".gitignore": ".scratch/\n__pycache__/\n"}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / rekey.LOCKED).write_text("torch==1\n")
    git(folder, "init", "-q", "-b", "main")
    found = {"old": commit(folder)}
    for name, edit, place in (
        ("equal", EQUAL, FACTS),
        ("digit", DIGIT, FACTS),
        ("locked", [("1", "2")], Path(rekey.LOCKED)),
    ):
        git(folder, "checkout", "-q", "-b", name, "main")
        found[name] = commit(folder, edit, place)
    git(folder, "checkout", "-q", "equal")
    return folder, found


def run(folder: Path, *arguments: str) -> int:
    return rekey.main([*arguments, "--root", str(folder)])


REFUSED = {
    "an edited file": (["old"], "expected a clean tree, found M rlnlp/__init__.py"),
    "no commit": (["nothing"], "nothing: expected a commit of"),
    "one commit": (["equal"], "expected two commits"),
    "another environment": (["old", "locked"], "requirements.lock differs between"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_compared_is_refused_before_anything_runs(repository, capsys, what):
    folder, commits = repository
    names, said = REFUSED[what]
    if what == "an edited file":
        (folder / "rlnlp/__init__.py").write_text((folder / "rlnlp/__init__.py").read_text() + "\n")
    try:
        assert run(folder, *(commits.get(name, name) for name in names)) == 1
    finally:
        git(folder, "checkout", "-q", "rlnlp")
    assert said in capsys.readouterr().err
    assert not list((folder / rekey.SCRATCH).glob("*/done*")) and not (folder / rekeyed.RECORD).exists()


def test_an_edit_is_shown_to_change_no_digit_and_what_was_made_before_it_counts(repository, capfd, monkeypatch):
    """The command is killed once, when a first unit is finished, and goes on."""
    folder, commits = repository
    command = [sys.executable, "-m", "workbook.stages.rekey", commits["old"], "--root", str(folder)]
    first = subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})
    done = "*/done*/mini/data@1.json"
    until(lambda: list((folder / rekey.SCRATCH).glob(done)) or first.poll() is not None, "a unit is done")
    assert first.poll() is None
    first.send_signal(signal.SIGKILL)
    first.wait()
    kept = {path: path.stat().st_mtime_ns for path in (folder / rekey.SCRATCH).glob("*/done*/mini/*.json")}
    assert not (folder / rekeyed.RECORD).exists()

    assert run(folder, commits["old"]) == 0
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    said = capfd.readouterr().out
    assert f"runs@{RUN} " in said and " others\n" in said
    assert "variants@1 " in said and "needs it" in said and "all that is committed counts" in said
    assert git(folder, "status", "--porcelain", "-uall") == f"?? {rekeyed.RECORD}"
    (record,) = json.loads((folder / rekeyed.RECORD).read_text())
    assert (record["old"], record["new"]) == (commits["old"], commits["equal"])
    assert record["libraries"]["torch"] and record["machine"].endswith("torch threads 1") and record["date"]
    assert set(record["compared"]) == {f"mini: {s}" for s in ("data@1", "models@1", "variants@1", f"runs@{RUN}")}
    old, new = (json.loads(path.read_text()) for path in sorted(marks(folder, commits, "old", "equal")))
    assert old == new and {Path(name).name for name in new} >= {"per_seed.csv", "curves.csv", "model.safetensors"}

    tree = folder / rekey.SCRATCH / commits["old"][:12] / "tree"
    params = checks.load(folder / "params.yaml")
    assert keys(monkeypatch, folder, params) == keys(monkeypatch, tree, params)  # as `settle` compares them
    other = checks.load(folder / "params.yaml", **{f"runs.{RUN}.kl_coef": 0.1})
    assert keys(monkeypatch, folder, other) != keys(monkeypatch, tree, params)  # settings are not translated
    assert stage(folder) == stage(tree)  # as DVC compares them

    (folder / rekeyed.RECORD).rename(folder / "aside")  # without the record
    assert keys(monkeypatch, folder, params) != keys(monkeypatch, tree, params) and stage(folder) != stage(tree)
    (folder / "aside").unlink()


def marks(folder: Path, commits: dict[str, str], *names: str) -> list[Path]:
    homes = [folder / rekey.SCRATCH / commits[name][:12] for name in names]
    return [next(home.glob(f"done*/mini/runs@{RUN}.json")) for home in homes]


def keys(monkeypatch, root: Path, params) -> dict[str, str]:
    monkeypatch.setattr(depends, "ROOT", root)
    return one_draw.keys(params, [RUN])


def stage(root: Path) -> str:
    """What DVC sees of the code of a run: the hash of its file."""
    values = {"task": {"name": "generated_reviews"}, "runs": CHANGES["runs"], "tune": {}, "reports": {}}
    depends.write(values, root / ".scratch/code", root / ".scratch/definitions", root)
    return file_hash(root / ".scratch/code/runs" / f"{RUN}.json")


def test_an_edit_that_changes_the_last_digit_is_refused_and_the_file_named(repository, capfd):
    folder, commits = repository
    git(folder, "checkout", "-q", "digit")
    try:
        assert run(folder, commits["old"]) == 1
    finally:
        git(folder, "checkout", "-q", "equal")
    said = capfd.readouterr()
    assert f"mini: runs@{RUN}: runs/{RUN}/per_seed.csv differs first, of 2 files that do" in said.err
    assert "nothing is recorded" in said.err and not (folder / rekeyed.RECORD).exists()
    assert f"mini: runs@{RUN} will run again: its code changed" in said.out
