"""Profiles hold differences; what is made from them is current."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from dvc.utils.serialize import load_yaml

from rlnlp.settings import ConfigError
from workbook.runs import profiles
from workbook.runs.reading import read

from .spoiled import SOUND

ROOT = Path(__file__).resolve().parents[1]
BROKEN = {  # text of sound settings, what stands instead, what is said
    "a slip": ("  gamma: ", "  gama: ", "learner.gama (line"),
    "no YAML": ("seeds: [", "seeds: [[", "not valid YAML"),
    "a list": ("", "- a\n", "expected lines of `name: value`"),
    "empty": ("", "", "expected lines of `name: value`"),
}
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


def command(root: Path) -> subprocess.CompletedProcess:
    """`make pipelines` in a repository."""
    words = [sys.executable, "-m", "workbook.runs.profiles", str(root)]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.fixture
def overlay(tmp_path) -> Path:
    """The overlay of a profile `mine` beside sound settings and a pipeline."""
    (tmp_path / "profiles/mine").mkdir(parents=True)
    (tmp_path / "params.yaml").write_text(SOUND)
    (tmp_path / "dvc.yaml").write_text("stages: {}\n")
    return tmp_path / "profiles/mine/overlay.yaml"


def test_taking_out_what_is_not_there_names_the_nearest_and_the_line(overlay):
    overlay.write_text("# mine\nruns:\n  supervisd: ~\n")
    said = r"overlay.yaml: runs.supervisd \(line 3\): nothing to take out; did you mean 'supervised'"
    with pytest.raises(ConfigError, match=said):
        profiles.resolved(overlay.parent)
    done = command(overlay.parents[2])
    assert done.returncode == 1 and re.search(said, done.stderr) and "Traceback" not in done.stderr
    overlay.write_text("runs: {supervised: ~}\n")
    assert command(overlay.parents[2]).returncode == 0
    values, base = profiles.resolved(overlay.parent), read(overlay.parents[2] / "params.yaml")[0]
    assert (values["root"], values["profile"]) == ("../..", "mine")
    assert values["runs"] == {name: run for name, run in base["runs"].items() if name != "supervised"}
    assert (overlay.parent / "dvc.yaml").read_text() == "stages: {}\n"
    assert "Made by" in (overlay.parent / "params.yaml").read_text()


def test_a_reward_in_a_file_can_be_read_by_dvc(overlay):
    """It reads YAML 1.1, where in braces a colon without a blank ends a key: for every profile that inherits it."""
    top = overlay.parents[2] / "params.yaml"
    top.write_text(SOUND.replace('reward: ""', "reward: my_reward.py:score"))
    overlay.write_text("claims: []\n")
    texts = profiles.made(overlay.parent)
    overlay.with_name("params.yaml").write_text(texts["params.yaml"])
    assert load_yaml(overlay.with_name("params.yaml"))["bring"]["reward"] == "my_reward.py:score"


@pytest.mark.parametrize(
    "content, said",
    [
        (b"seeds: [\xff]\n", "cannot be read as UTF-8"),
        (b"a: 1\nseeds: [\n", "line 3, column 1: not valid YAML"),
        (b"a: 1\na: 2\n", "'a' stands twice"),
        (b"- a\n", "expected lines of `name: value`"),
    ],
)
def test_an_overlay_that_cannot_be_read_is_named(content, said, overlay):
    overlay.write_bytes(content)
    done = command(overlay.parents[2])
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and "Traceback" not in done.stderr
    assert done.stderr.startswith(f"{overlay}: ") and said in done.stderr
    assert [*overlay.parent.iterdir()] == [overlay]


@pytest.mark.parametrize("old, new, said", BROKEN.values(), ids=BROKEN)
def test_nothing_is_made_of_broken_settings(old, new, said, overlay):
    assert SOUND.count(old) == 1 or not old
    (overlay.parents[2] / "params.yaml").write_text(SOUND.replace(old, new) if old else new)
    overlay.write_text("# nothing differs\n")
    done = command(overlay.parents[2])
    assert done.returncode == 1 and said in done.stderr and "Traceback" not in done.stderr
    assert done.stderr.startswith(f"{overlay.parents[2] / 'params.yaml'}: ")
    assert [*overlay.parent.iterdir()] == [overlay]


def test_a_folder_that_is_no_repository_is_named(tmp_path):
    done = command(tmp_path / "nowhere")
    assert done.returncode == 1 and "nowhere/params.yaml: no such file" in done.stderr


def test_problems_of_a_profile_are_told_by_the_lines_that_a_person_wrote(overlay):
    top = overlay.parents[2] / "params.yaml"
    top.write_text(SOUND.replace("  gamma: ", "  gama: "))
    (line,) = [n for n, text in enumerate(top.read_text().splitlines(), 1) if "gama" in text]
    overlay.write_text("seeds: [1]\nruns:\n  # by hand\n  supervised: {algoritm: supervised}\n")
    for name, text in profiles.made(overlay.parent).items():
        (overlay.parent / name).write_text(text)
    with pytest.raises(ConfigError) as caught:
        profiles.load(overlay.parent / "params.yaml")
    told = str(caught.value)
    assert told.startswith(f"{overlay}: ") and "runs.supervised.algoritm (line 4): " in told
    assert f"learner.gama (line {line} of {top}): unknown name; did you mean learner.gamma?" in told


def test_a_run_that_keeps_more_test_prompts_than_the_profile_has_is_told_how_to_drop_them(overlay):
    """`zero_shot` of the top level has a number of its own, and a task of one's own seldom has as many."""
    top = overlay.parents[2] / "params.yaml"
    run, more = "  ppo_kl_0: {algorithm: ppo, kl_coef: 0.0}\n", "  zero_shot: {algorithm: ppo, test_prompts: 6}\n"
    top.write_text(SOUND.replace(run, run + more))
    (line,) = [n for n, text in enumerate(top.read_text().splitlines(), 1) if "zero_shot:" in text]
    overlay.write_text("task: {test_prompts: 5}\nruns:\n  zero_shot: {updates: 0}\n")

    def load():
        (overlay.parent / "params.yaml").write_text(profiles.made(overlay.parent)["params.yaml"])
        return profiles.load(overlay.parent / "params.yaml")

    where = f"line {line} of {top}; `test_prompts: ~` in the overlay takes it out"
    said = f"runs.zero_shot.test_prompts ({where}): expected at most task.test_prompts (5), found 6"
    with pytest.raises(ConfigError, match=re.escape(said)):
        load()
    overlay.write_text(overlay.read_text().replace("updates: 0}", "updates: 0, test_prompts: ~}"))
    assert load().run("zero_shot").test_prompts == 0
