"""Where real rows are found and how they are read; adding a task is adding a file; every real split in a mirror."""

from __future__ import annotations

import ast
import importlib
import os
import sys
from pathlib import Path

import pytest

from tests.test_grue_encoding import t5_like
from tests.test_grue_tasks import ALL, MADE
from workbook.grue import tasks
from workbook.grue.encoding import encode
from workbook.grue.example import Task
from workbook.grue.rows import clean, examples, place, real
from workbook.grue.run import drawn
from workbook.texts.hub import DataError

MIRROR = os.environ.get("RLNLP_TEST_MIRROR", "")
with_mirror = pytest.mark.skipif(not MIRROR, reason="RLNLP_TEST_MIRROR: a folder with datasets/<hub id>")


def write(folder, split: str, rows: list[dict]) -> None:
    import datasets

    folder.mkdir(parents=True, exist_ok=True)
    datasets.Dataset.from_list(rows).to_parquet(folder / f"{split}.parquet")


@pytest.mark.parametrize("name", ALL)
def test_rows_are_found_under_the_hub_id_or_a_further_name_with_the_configuration(tmp_path, name, monkeypatch):
    task = tasks.task(name)
    wanted = [f"{task.hub}/{task.config}".rstrip("/"), *task.mirror]
    for number, folder in reversed(list(enumerate(wanted))):  # the last first: an earlier name is preferred
        root = tmp_path / "datasets" / folder
        write(root, "test", [MADE[name]()] * (number + 1))
        assert len(real(task, "test", tmp_path)) == number + 1, folder
    monkeypatch.setenv("RLNLP_MIRROR", str(tmp_path))
    (row,) = real(task, "test")
    assert examples(task, [row]) == task.read([MADE[name]()])  # a parquet file gives back what was written


@pytest.mark.parametrize("layout", ["{split}-0000{n}-of-00003", "data/{split}-0000{n}-of-00003", "{split}/000{n}"])
def test_rows_stand_in_the_order_of_the_files(tmp_path, layout):
    """The three layouts in which the hub keeps a data set, its branch of converted scripts the last."""
    task = tasks.task("multi30k")
    pairs = [{"en": f"owl {n}", "de": f"Eule {n}"} for n in range(9)]
    folder = tmp_path / "datasets" / task.hub
    for n in (2, 0, 1):
        for split, rows in (("train", pairs[3 * n :][:3]), ("test", pairs[:1])):
            file = folder / layout.format(split=split, n=n)
            write(file.parent, file.name, rows)
    assert real(task, "train", tmp_path) == pairs and len(real(task, "test", tmp_path)) == 3


def test_what_is_not_there_is_named(tmp_path):
    task = tasks.task("cnn_dailymail")
    with pytest.raises(DataError, match="cnn_dailymail: no part 'tests'; did you mean 'test'"):
        real(task, "tests", tmp_path)
    with pytest.raises(DataError) as caught:
        real(task, "test", tmp_path)  # HF_HUB_OFFLINE is set for every test
    assert "datasets/abisee/cnn_dailymail/3.0.0" in str(caught.value) and "HF_HUB_OFFLINE" in str(caught.value)
    write(tmp_path / "datasets" / task.mirror[0], "train", [MADE[task.name]()])
    with pytest.raises(DataError, match="no split 'validation'"):
        real(task, "validation", tmp_path)
    (tmp_path / "datasets" / task.mirror[0] / "test.parquet").write_text("no parquet")
    with pytest.raises(DataError, match="could not be read as a data set"):
        real(task, "test", tmp_path)


def test_a_folder_without_the_configuration_is_not_taken_for_it(tmp_path, monkeypatch):
    task = tasks.task("wmt16")
    write(tmp_path / "datasets" / task.hub, "test", [MADE["wmt16"]()])  # another pair of languages, perhaps
    monkeypatch.delenv("HF_HUB_OFFLINE")
    assert place(task, tmp_path) == "wmt/wmt16"


def test_a_script_is_refused_with_what_to_do_instead(tmp_path):
    """Trap 28: today's datasets runs no script."""
    task = tasks.task("totto")
    folder = tmp_path / "datasets" / task.hub
    folder.mkdir(parents=True)
    (folder / "totto.py").write_text("import datasets\n")
    with pytest.raises(DataError, match="refs/convert/parquet"):
        real(task, "test", tmp_path)


def test_clean_is_one_line_of_text():
    assert clean(" a\tb\n\x00c\x85 \u2028d\ud800 ") == "a b c d"
    assert clean("\x1b\x7f") == ""


NEW = '''"""Reversal: a task of its own."""

from workbook.grue.example import Decode, Example, Published, Task
from workbook.grue.rows import each, references, source


def read(rows):
    return each(rows, lambda row, place: [
        Example(f"r{place}", "reverse: ", source(row, "text"), "", references([row["text"][::-1]]))
    ])


TASK = Task(
    name="reversal", title="Reversal", hub="someone/reversal", config="", licence="none",
    splits={"train": "train"}, read=read, rows=lambda draw, part, n: [{"text": f"{part} {i}"} for i in range(n)],
    judge=lambda responses, examples: {"judge": [float(r in e.references) for r, e in zip(responses, examples)]},
    trivial={"source": lambda example: example.body}, reward={"chrf": 1.0}, metrics=("chrf",),
    prompt_tokens=9, response_tokens=9, decode=Decode(9), published=Published({}, {}, "none", ""),
)
'''


def test_a_new_task_is_one_file(tmp_path, monkeypatch):
    (tmp_path / "reversal.py").write_text(NEW)
    (tmp_path / "helper.py").write_text("# no task\n")
    monkeypatch.setattr(tasks, "__path__", [*tasks.__path__, str(tmp_path)])
    assert set(tasks.names()) == {*ALL, "reversal"}
    try:
        task = tasks.task("reversal")
        assert isinstance(task, Task)
        found = examples(task, task.rows(0, "train", 3))
        prompts = encode(found, t5_like(), task.prompt_tokens * 9)
        assert prompts.texts[2] == "reverse: train 2" and prompts.references[0] == ["0 niart"]
        assert task.judge(["0 niart"] * 3, found)["judge"] == [1.0, 0.0, 0.0]
    finally:
        sys.modules.pop(f"{tasks.__name__}.reversal", None)
        importlib.invalidate_caches()


NAMED = {  # file of generated rows -> tasks that it names beside its own: what a raw model reads is a mix of them
    "world/raw.py": {"cnn_dailymail", "daily_dialog", "totto"},
    "words.py": {"totto"},
    "world/translation.py": {"wmt16"},
}


def test_no_task_is_named_outside_its_file():
    """Of the benchmark's code, texts of docstrings apart; a task with generated rows has a second file in ``world``."""
    folder = Path(tasks.__file__).parents[1]
    files = [file for file in sorted(folder.rglob("*.py")) if file.stem not in ALL]
    found = {file.relative_to(folder).as_posix(): names_in(file.read_text(encoding="utf-8")) & {*ALL} for file in files}
    assert len(files) > 30 and {place: names for place, names in found.items() if names} == NAMED


def names_in(source: str) -> set[str]:
    """Texts of the code that are no docstring, and the last part of what it imports."""
    tree = ast.parse(source)
    alone = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    imported = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    parts = {alias.name for node in imported for alias in node.names}
    parts |= {node.module or "" for node in imported if isinstance(node, ast.ImportFrom)}
    texts = {n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    texts -= {n.value for n in alone if isinstance(n, ast.Constant)}
    return texts | {part.rpartition(".")[2] for part in parts}


# ------------------------------------------------------------------------------------------------------ a real mirror
REAL = {  # task -> rows of train, validation, test in the mirror, and examples of test
    "cnn_dailymail": ((992, 200, 200), 200),
    "common_gen": ((19999, 1997, 1998), 489),
    "imdb": ((25000, 50000, 23000), 23000),  # validation: the unlabelled ones
    "daily_dialog": ((7098, 993, 483), 1530),
    "iwslt2017": ((5475, 879, 1978), 1978),
    "multi30k": ((20000, 1014, 2000), 2000),
    "narrativeqa": ((7578, 2000, 2000), 2000),
    "totto": ((1904, 300, 300), 300),
    "wmt16": ((9914, 1200, 1250), 1250),
}


@pytest.mark.parametrize("name", ALL)
def test_the_first_examples_of_a_draw_are_the_same_and_whole_however_many_rows_are_made(name):
    task = tasks.task(name)
    for part in ("train", "test"):
        many = examples(task, task.rows(3, part, 200))
        for count in (1, 2, 7, 20):
            assert drawn(task, 3, part, count) == many[:count]


@with_mirror
@pytest.mark.parametrize("name", ALL)
def test_every_split_of_a_mirror_is_read(name):
    task = tasks.task(name)
    counts = []
    for part in ("train", "validation", "test"):
        rows = real(task, part, MIRROR)
        found = examples(task, rows)
        counts.append(len(rows))
        assert len({example.id for example in found}) == len(found) and all(example.references for example in found)
        assert not any("facts" in example.meta for example in found)  # no real row is taken for a generated one
        assert task.read(task.rows(0, part, 2))[0].meta.keys() - found[0].meta.keys() == {"facts"}
        assert set(rows[0]) == set(task.rows(0, part, 1)[0])  # generated rows have the columns of the real ones
        for answer in task.trivial.values():
            assert all(answer(example) for example in found[:50])
    assert (tuple(counts), len(found)) == REAL[name]


@with_mirror
@pytest.mark.parametrize("name", ALL)
def test_real_prompts_are_encoded_within_the_published_length(name):
    task = tasks.task(name)
    found = examples(task, real(task, "test", MIRROR))[:100]
    limit = task.prompt_tokens * 4  # of pieces that know little English, about four for one of T5's
    prompts = encode(found, t5_like(), limit)
    assert len(prompts) == len(found) and prompts.ids.shape[1] <= limit
    assert all(not meta["cut"] or row.sum() >= limit - 3 for meta, row in zip(prompts.meta, prompts.mask))
