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
DIGIT = [("delta + gamma * lam * running", "delta * (1 + 2**-20) + gamma * lam * running")]


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """Our code with one task of real rows; its commits by name."""
    folder = copied(tmp_path_factory.mktemp("rekey"))
    (folder / rekeyed.RECORD).unlink(missing_ok=True)
    home = folder / rekey_grue.PROFILE
    home.mkdir(parents=True)
    one = {"tasks": ["multi30k"], "meaningless": [], "overrides": {"multi30k": {}}, "continued": []}
    ours = small("real", **one, conditions=["zero_shot", "ppo"])
    with open(home / "params.yaml", "w") as file:
        YAML().dump(ours.model_dump(mode="json"), file)
    (folder / ".gitignore").write_text(".scratch/\n__pycache__/\n")
    (folder / rekey.LOCKED).write_text("torch==1\n")
    git(folder, "init", "-q", "-b", "main")
    found = {"old": commit(folder)}
    for name, edit in (("equal", EQUAL), ("digit", DIGIT)):
        git(folder, "checkout", "-q", "-b", name, "main")
        found[name] = commit(folder, edit, LOSSES)
    return folder, found


def test_rows_count_after_an_edit_that_changed_no_digit_and_after_no_other(repository, at_hand, capfd):  # noqa: F811
    folder, commits = repository
    record, root = folder / rekeyed.RECORD, ["--root", str(folder)]
    git(folder, "checkout", "-q", "digit")
    assert rekey_grue.main([commits["old"], *root]) == 1 and not record.exists()
    assert "multi30k ppo differs first, of 1 that do; nothing is recorded" in capfd.readouterr().err
    git(folder, "checkout", "-q", "equal")
    assert rekey_grue.main([commits["old"], *root]) == 0
    assert "all bytes of 2 parts are equal" in capfd.readouterr().out
    [said] = json.loads(record.read_text())
    [[before, after]] = said["code"]["grue"]
    assert rekeyed.names(folder) == {after: before} and [*said["compared"]] == [
        "grue: multi30k ppo",
        "grue: multi30k zero_shot",
    ]
    # the tree that has the record knows its code by the name that the rows have
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "the record")
    last = rekey.Commit(folder, "HEAD")
    last.lay()
    assert rekey_grue.at(last)["code"] == {"multi30k": before}
    assert rekey_grue.main([commits["old"], *root]) == 0
    assert capfd.readouterr().out == "all rows of the benchmark that are committed count\n"
    assert len(json.loads(record.read_text())) == 1
