"""Profiles hold differences; what is made from them is current."""

import subprocess
import sys
from pathlib import Path

import pytest

from rlnlp.settings import ConfigError
from workbook.runs import profiles

ROOT = Path(__file__).resolve().parents[1]
OVERLAYS = sorted(ROOT.glob("profiles/*/overlay.yaml"))


@pytest.mark.parametrize("path", OVERLAYS, ids=lambda p: p.parent.name)
def test_what_is_made_is_current_and_nothing_else_is_there(path):
    for name, text in profiles.made(path.parent).items():
        assert (path.parent / name).read_text(encoding="utf-8") == text, "type: make pipelines"
    tracked = subprocess.run(
        ["git", "ls-files", "."], cwd=path.parent, capture_output=True, text=True, check=True
    ).stdout
    made = {name for name in tracked.split() if name.partition("/")[0] in MADE}
    made |= {"settle": {"registered.yaml"}, "paper": {"printed.yaml"}}.get(path.parent.name, set())
    assert set(tracked.split()) - made <= {"overlay.yaml", "params.yaml", "dvc.yaml", "dvc.lock"}


MADE = ("base_model.yaml", "base", "finished")  # of `reviews`, `gpu`; of a profile under way: stages/carry.py


def test_every_profile_is_an_overlay():
    assert [p.parent.name for p in OVERLAYS] == [
        "follow_up",
        "full",
        "gpu",
        "imdb",
        "paper",
        "pilot",
        "reviews",
        "reviews_pilot",
        "settle",
        "smoke",
    ]
    assert {p.parent for p in OVERLAYS} == {p.parent for p in ROOT.glob("profiles/*/dvc.yaml")}


BASE = {
    "a": {"x": 1, "y": [1, 2], "deep": {"p": 1, "q": 2}},
    "b": 2,
    "runs": {"one": {"k": 1, "l": 2}, "two": {}, "three": {}},
}


@pytest.mark.parametrize(
    "overlay, changed",
    [
        ({}, {}),
        ({"b": 3}, {"b": 3}),
        ({"a": {"y": [3]}}, {"a": {"x": 1, "y": [3], "deep": {"p": 1, "q": 2}}}),  # a list whole
        ({"a": {"deep": {"p": 5}}}, {"a": {"x": 1, "y": [1, 2], "deep": {"p": 5, "q": 2}}}),
        ({"a": {"deep": None}}, {"a": {"x": 1, "y": [1, 2]}}),
        ({"runs": {"t*": None}}, {"runs": {"one": {"k": 1, "l": 2}}}),
        ({"runs": {"t*": None, "three": {}}}, {"runs": {"one": {"k": 1, "l": 2}, "three": {}}}),
        ({"runs": {"*": None, "one": {"k": None}}}, {"runs": {"one": {"l": 2}}}),
        ({"runs": {"*": None}}, {"runs": {}}),
        ({"c": {"new": {}}}, {"c": {"new": {}}}),
    ],
)
def test_merging(overlay, changed):
    assert profiles.merged(BASE, overlay) == {**BASE, **changed}


def test_order_is_the_overlays_where_it_lists_what_stays_else_as_it_was():
    assert list(profiles.merged(BASE, {"runs": {"*": None, "two": {}, "one": {}}})["runs"]) == ["two", "one"]
    assert list(profiles.merged(BASE, {"runs": {"zero": {}, "two": {"k": 1}}})["runs"]) == [
        "one",
        "two",
        "three",
        "zero",
    ]


def test_taking_out_what_is_not_there_names_the_nearest(tmp_path):
    (tmp_path / "profiles/mine").mkdir(parents=True)
    (tmp_path / "params.yaml").write_text("root: .\nprofile: mini\nruns: {one: {}, two: {}}\n")
    (tmp_path / "dvc.yaml").write_text("stages: {}\n")
    overlay = tmp_path / "profiles/mine/overlay.yaml"
    overlay.write_text("runs: {tow: ~}\n")
    with pytest.raises(ConfigError, match=r"overlay.yaml: runs: tow: nothing to take out; did you mean 'two'"):
        profiles.resolved(overlay.parent)
    command = [sys.executable, "-m", "workbook.runs.profiles", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "did you mean" in done.stderr and "Traceback" not in done.stderr
    overlay.write_text("runs: {two: ~}\n")
    assert subprocess.run(command, cwd=ROOT, check=False).returncode == 0
    assert profiles.resolved(overlay.parent) == {"root": "../..", "profile": "mine", "runs": {"one": {}}}
    assert (overlay.parent / "dvc.yaml").read_text() == "stages: {}\n"
    assert "Made by" in (overlay.parent / "params.yaml").read_text()
