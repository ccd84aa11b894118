"""A task is a file: what it brings reaches the results of its own profiles and no other's."""

from __future__ import annotations

import dataclasses
import shutil

import pytest

from tests.executed import ROOT, change, copied
from workbook.draws import named
from workbook.runs import algorithms, roots
from workbook.stages import depends
from workbook.store.identity import Code
from workbook.texts import tasks
from workbook.texts.hub import DataError

pytestmark = pytest.mark.xdist_group("depends")

VALUES = depends.read(ROOT / "params.yaml")
TASK_FILE = "workbook/texts/tasks/{}.py"
PART_FILE = "workbook/draws/named/{}.py"
NEW_TASK = '''"""Another task."""

from workbook.texts.tasks import Task


def load(params, draw):
    return {}


TASK = Task(load, source="here", licence="none", judge="oracle")
'''
NEW_PART = '''"""Another judge."""

READS = ()
SETTINGS = ()


def fit(make, fresh, states):
    return {"kind": "oracle"}, None


def load(folder):
    return lambda responses, prompts=None: [1.0 for _ in responses]
'''


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    folder = copied(tmp_path_factory.mktemp("tasks"))
    shutil.copytree(ROOT / "notebooks", folder / "notebooks")
    return folder


@pytest.fixture
def copy(shared):
    """The code in another folder, as it was again after each test."""
    files = {path: path.read_bytes() for path in shared.rglob("*.py")}
    yield shared
    for path in set(shared.rglob("*.py")) - files.keys():
        path.unlink()
    for path, text in files.items():
        path.write_bytes(text)


def identities(folder, task: str = "generated_reviews", **bring) -> dict[str, str]:
    """Stage -> identity, in mini with another task; of the runs, one that imitates texts and two that do not."""
    values = {**VALUES, "task": {**VALUES["task"], "name": task}, "bring": {**(VALUES.get("bring") or {}), **bring}}
    code, known = Code(folder), {}
    for name, (found, without) in depends.stages(values, code).items():
        if name.startswith("runs/") and name not in ("runs/ppo_kl_0", "runs/nlpo_kl_0", "runs/supervised"):
            continue
        known[name] = code.identity(found, without)
    return known


def again(folder, before: dict[str, str], **changes) -> set[str]:
    after = identities(folder, **changes)
    assert after.keys() == before.keys()
    return {name for name in after if after[name] != before[name]}


def test_a_new_task_and_a_new_judge_make_nothing_again(copy):
    before = identities(copy)
    (copy / TASK_FILE.format("weather")).write_text(NEW_TASK, encoding="utf-8")
    (copy / PART_FILE.format("oracle")).write_text(NEW_PART, encoding="utf-8")
    assert again(copy, before) == set()


@pytest.mark.parametrize("file", [TASK_FILE.format("imdb"), TASK_FILE.format("csv"), TASK_FILE.format("reviews")])
def test_another_tasks_loader_makes_nothing_again(copy, file):
    before = identities(copy)
    change(copy / file, "load")
    assert again(copy, before) == set()


@pytest.mark.parametrize("part", ["tfidf", "transformer", "own_texts"])
def test_a_part_that_the_task_does_not_name_makes_nothing_again(copy, part):
    before = identities(copy)
    change(copy / PART_FILE.format(part), "fit")
    assert again(copy, before) == set()


def test_its_own_loader_makes_its_data_again_and_no_run_that_imitates_nothing(copy):
    before = identities(copy)
    change(copy / TASK_FILE.format("generated_reviews"), "load")
    found = again(copy, before)
    assert {"data", "models", "variants", "runs/supervised"} <= found
    assert not found & {"worlds", "runs/ppo_kl_0", "runs/nlpo_kl_0", "tune/ppo", "claims", "tidy"}


@pytest.mark.parametrize(
    "part, function, stages",
    [
        ("grammar", "fit", {"models"}),
        ("grammar", "load", {"models", "runs/ppo_kl_0", "runs/nlpo_kl_0", "runs/supervised", "tune/ppo", "tune/nlpo"}),
        ("characters", "fit", {"variants"}),
    ],
)
def test_a_part_that_the_task_names_makes_again_what_asks_for_it(copy, part, function, stages):
    before = identities(copy)
    change(copy / PART_FILE.format(part), function)
    assert {name for name in again(copy, before) if not name.startswith("tune/")} == {
        name for name in stages if not name.startswith("tune/")
    }


def test_the_real_task_reaches_its_own_loader_judge_and_evaluator(copy):
    before = identities(copy, "reviews", model="base")
    change(copy / TASK_FILE.format("imdb"), "splits_of")  # which both real tasks read
    assert "data" in again(copy, before, task="reviews", model="base")
    before = identities(copy, "reviews", model="base")
    change(copy / PART_FILE.format("own_texts"), "fit")
    assert again(copy, before, task="reviews", model="base") == {"models"}
    before = identities(copy, "reviews", model="base")
    change(copy / PART_FILE.format("transformer"), "load")
    assert {"models", "runs/ppo_kl_0"} <= again(copy, before, task="reviews", model="base")


def test_a_metric_of_a_task_is_in_its_runs_and_in_no_others(copy, monkeypatch):
    (copy / PART_FILE.format("overlap")).write_text(
        "def measure(responses, prompts):\n    return {}\n", encoding="utf-8"
    )
    other = identities(copy)
    own = dataclasses.replace(tasks.task("imdb"), metrics=("overlap",))
    task = tasks.task
    monkeypatch.setattr(tasks, "task", lambda name: own if name == "imdb" else task(name))
    before = identities(copy, "imdb")
    change(copy / PART_FILE.format("overlap"), "measure")
    assert again(copy, other) == set()
    found = again(copy, before, task="imdb")
    assert {"runs/ppo_kl_0", "runs/supervised"} <= found and not found & {"data", "models", "variants"}


def test_brought_prompts_reach_what_reads_them(copy):
    before = identities(copy, prompts="mine.csv")
    change(copy / TASK_FILE.format("csv"), "load")
    assert again(copy, before, prompts="mine.csv") == {"data"}


def test_tasks_are_files_with_parts_that_there_are():
    assert {"generated_reviews", "imdb", "csv", "reviews"} <= set(tasks.names())
    for name in tasks.names():
        task = tasks.task(name)
        for part in filter(None, (task.judge, task.judge_2, task.evaluator)):
            module = named.module(part)
            assert all(hasattr(module, each) for each in named.MADE), part
        assert hasattr(named.module(task.judge), "load") and hasattr(named.module(task.judge_2), "load")
        found = roots.of_run("supervised", name, Code(ROOT))
        assert set(tasks.roots(name)) <= set(found)
        assert len(found) > len(algorithms.roots("supervised", Code(ROOT)))


def test_an_unknown_task_names_the_nearest():
    with pytest.raises(DataError, match="task.name: expected one of csv, .*'imbd'; did you mean 'imdb'"):
        tasks.task("imbd")
    with pytest.raises(DataError):
        tasks.task("__init__")
    with pytest.raises(KeyError, match="'oracle', expected one of characters, grammar"):
        named.module("oracle")
