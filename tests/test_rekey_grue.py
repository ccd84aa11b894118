"""The benchmark rekeyed: an edit that changes no digit lets its rows count, one that changes the last does not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from tests.executed import copied
from tests.test_grue_real import at_hand, mirror, small  # noqa: F401 (fixtures)
from tests.test_rekey import commit, git
from workbook.stages import rekey, rekey_grue
from workbook.store import rekeyed

pytestmark = [pytest.mark.xdist_group("rekey"), pytest.mark.timeout(900)]

LOSSES = Path("rlnlp/losses.py")
EQUAL = [
    ("        delta = rewards", "        error = rewards"),
    ("torch.where(real, delta +", "torch.where(real, error +"),
]
SCORE = [("return with_synonyms(predictions, references, NoSynonyms())", "return [0.5 for _ in predictions]")]
METEOR = Path("workbook/scores/meteor_stem/meteor_stem.py")
PARTS = ("ppo", "zero_shot", rekey_grue.WITHOUT)
TRIVIAL, DIALOGUE = [('return "."', 'return ". ."')], Path("workbook/grue/tasks/daily_dialog.py")
DIGIT = [("delta + gamma * lam * running", "delta * (1 + 2**-20) + gamma * lam * running")]


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """Our code with two tasks of real rows; its commits by name."""
    folder = copied(tmp_path_factory.mktemp("rekey"))
    (folder / rekeyed.RECORD).unlink(missing_ok=True)
    home = folder / rekey_grue.PROFILE
    home.mkdir(parents=True)
    two = {"tasks": ["multi30k", "daily_dialog"], "overrides": {"multi30k": {}, "daily_dialog": {"prompt_tokens": 70}}}
    ours = small("real", **two, meaningless=[], continued=[], conditions=["zero_shot", "ppo"])
    with open(home / "params.yaml", "w") as file:
        YAML().dump(ours.model_dump(mode="json"), file)
    (folder / ".gitignore").write_text(".scratch/\n__pycache__/\n")
    (folder / rekey.LOCKED).write_text("torch==1\n")
    git(folder, "init", "-q", "-b", "main")
    found = {"old": commit(folder)}
    for name, edit, file in (
        ("equal", EQUAL, LOSSES),
        ("digit", DIGIT, LOSSES),
        ("score", SCORE, METEOR),
        ("trivial", TRIVIAL, DIALOGUE),
    ):
        git(folder, "checkout", "-q", "-b", name, "main")
        found[name] = commit(folder, edit, file)
    return folder, found


def test_rows_count_after_an_edit_that_changed_no_digit_and_after_no_other(repository, at_hand, capfd):  # noqa: F811
    folder, commits = repository
    record, root = folder / rekeyed.RECORD, ["--root", str(folder)]
    git(folder, "checkout", "-q", "digit")
    assert rekey_grue.main([commits["old"], *root]) == 1 and not record.exists()
    assert "daily_dialog ppo differs first, of 2 that do; nothing is recorded" in capfd.readouterr().err
    git(folder, "checkout", "-q", "equal")
    assert rekey_grue.main([commits["old"], *root]) == 0
    assert "all bytes of 6 parts are equal" in capfd.readouterr().out
    [said] = json.loads(record.read_text())
    before, after = (rekey_grue.at(rekey.Commit(folder, name))["code"] for name in (commits["old"], commits["equal"]))
    assert rekeyed.names(folder) == {after[name]: before[name] for name in before}
    assert {*said["compared"]} == {f"grue: {task} {part}" for task in before for part in PARTS}
    # the tree that has the record knows its code by the name that the rows have
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "the record")
    last = rekey.Commit(folder, "HEAD")
    last.lay()
    assert rekey_grue.at(last)["code"] == before
    assert rekey_grue.main([commits["old"], *root]) == 0
    assert capfd.readouterr().out == "all rows of the benchmark that are committed count\n"
    assert len(json.loads(record.read_text())) == 1


def test_rows_of_edited_trivial_answers_do_not_count(repository, at_hand, capfd):  # noqa: F811
    folder, commits = repository
    git(folder, "checkout", "-q", "trivial")
    assert rekey_grue.main([commits["old"], "--root", str(folder)]) == 1
    assert "daily_dialog answers without a model differs first, of 1 that do" in capfd.readouterr().err


def test_of_an_edited_score_the_tasks_count_that_it_does_not_score(repository, at_hand, capfd):  # noqa: F811
    folder, commits = repository
    root = ["--root", str(folder)]
    git(folder, "checkout", "-q", "score")
    assert rekey_grue.main([commits["old"], *root]) == 1
    assert "daily_dialog answers without a model differs first, of 3 that do" in capfd.readouterr().err
    assert rekey_grue.main([commits["old"], "--tasks", "multi30k", *root]) == 0
    assert capfd.readouterr().out.endswith("all rows of multi30k that are committed count\n")
    [said] = json.loads((folder / rekeyed.RECORD).read_text())
    assert {*said["compared"]} == {f"grue: multi30k {part}" for part in PARTS}
    old, new = (rekey_grue.at(rekey.Commit(folder, name))["code"] for name in (commits["old"], commits["score"]))
    assert said["code"]["grue"] == [[old["multi30k"], new["multi30k"]]]
