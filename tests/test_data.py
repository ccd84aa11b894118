"""Finding, building and reading data: disjoint parts, same bytes, and errors that name the place."""

import csv
import json
import os
from itertools import combinations
from types import SimpleNamespace

import pytest
import torch

from rlnlp import encoding
from workbook.texts import data, tasks
from workbook.texts.hub import DataError, find
from workbook.texts.tasks import csv as brought
from workbook.texts.tasks import generated_reviews, imdb

SMALL = {
    "language_model_reviews": 40,
    "language_model_validation_reviews": 10,
    "evaluator_reviews": 20,
    "reward_reviews": 15,
    "reward_validation_reviews": 5,
    "judge_reviews": 15,
    "prompt_tokens": 10,
    "train_prompts": 20,
    "validation_prompts": 8,
    "test_prompts": 8,
}


def settings(name="generated_reviews", prompts="", mirror="", folder=".", **changes):
    return SimpleNamespace(
        task=SimpleNamespace(name=name, **{**SMALL, **changes}),
        evaluation=SimpleNamespace(human_reviews=12),
        bring=SimpleNamespace(prompts=str(prompts)),
        mirror=str(mirror),
        folder=folder,
    )


def contents(parts):
    """{part: normalised texts}; of a prompt also the whole review."""
    found = {}
    for part, rows in parts.items():
        texts = [row.get("text") or f"{row['prompt']} {row['reference']}" for row in rows]
        found[part] = {tasks.normalised(text) for text in texts}
        assert len(found[part]) == len(rows), part
    return found


# finding ---------------------------------------------------------------------------------------------------------
@pytest.fixture(autouse=True)
def no_mirror(monkeypatch):
    monkeypatch.delenv("RLNLP_MIRROR", raising=False)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)


def filled(folder):
    folder.mkdir(parents=True)
    (folder / "train.parquet").write_text("x")
    return folder


def test_find_prefers_the_config_mirror_then_the_variable_then_the_hub(tmp_path, monkeypatch):
    assert find("datasets", "imdb") == "imdb"
    from_variable = filled(tmp_path / "b" / "datasets" / "imdb")
    monkeypatch.setenv("RLNLP_MIRROR", str(tmp_path / "b"))
    assert find("datasets", "imdb", tmp_path / "a") == from_variable
    from_config = filled(tmp_path / "a" / "datasets" / "imdb")
    assert find("datasets", "imdb", tmp_path / "a") == from_config
    model = filled(tmp_path / "a" / "models" / "org" / "model")
    assert find("models", "org/model", tmp_path / "a") == model
    assert find("models", str(model)) == model
    (tmp_path / "b" / "models" / "empty").mkdir(parents=True)
    assert find("models", "empty") == "empty"  # an empty folder is not a model


def test_find_offline_says_what_was_looked_for_and_where(tmp_path, monkeypatch):
    filled(tmp_path / "datasets" / "imdb")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(DataError) as error:
        find("datasets", "imbd", tmp_path)
    message = str(error.value)
    assert "dataset 'imbd' was not found" in message and str(tmp_path / "datasets" / "imbd") in message
    assert "did you mean 'imdb'?" in message and "$RLNLP_MIRROR: not set" in message and "HF_HUB_OFFLINE" in message
    with pytest.raises(DataError, match="model './missing' was not found"):
        find("models", "./missing")
    with pytest.raises(DataError, match="no name of the model"):
        find("models", "")
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    assert find("datasets", "imbd", tmp_path) == "imbd"


# generated reviews -----------------------------------------------------------------------------------------------
def test_build_generated_parts_are_disjoint_and_the_same_bytes_again(tmp_path):
    params = settings()
    facts = data.build(params, 3, tmp_path / "draw3")
    files = {path.name: path.read_bytes() for path in (tmp_path / "draw3").iterdir()}
    assert set(files) == {f"{part}.jsonl" for part in data.PARTS} | {"facts.json"}
    found = contents({part: data.load_rows(tmp_path / "draw3", part) for part in data.PARTS})
    for a, b in combinations(found, 2):
        assert not found[a] & found[b], (a, b)
    prompts = [row["prompt"] for s in brought.SPLITS for row in data.load_rows(tmp_path / "draw3", f"prompts_{s}")]
    assert len(set(prompts)) == len(prompts) == 36 and all(len(prompt.split()) == 10 for prompt in prompts)
    assert facts["parts"]["language_model"]["examples"] == 40 and facts["parts"]["reward"]["labelled"] == 15
    assert json.loads(files["facts.json"]) == facts
    (tmp_path / "draw3" / "stale.jsonl").write_text("{}")
    data.build(params, 3, tmp_path / "draw3")
    assert {path.name: path.read_bytes() for path in (tmp_path / "draw3").iterdir()} == files
    assert [path.name for path in tmp_path.iterdir()] == ["draw3"]
    data.build(params, 4, tmp_path / "draw4")
    assert (tmp_path / "draw4" / "reward.jsonl").read_bytes() != files["reward.jsonl"]


def test_a_larger_part_changes_no_other_part(tmp_path):
    small, large = generated_reviews.load(settings(), 0), generated_reviews.load(settings(reward_reviews=60), 0)
    assert large["reward"][:15] == small["reward"]
    assert all(large[part] == small[part] for part in small if part != "reward")


def test_evaluator_reads_another_corpus_draw():
    assert generated_reviews.load(settings(), 2)["evaluator"][0]["id"].startswith("draw1002/")


def test_unusable_requests(tmp_path):
    with pytest.raises(DataError, match="task.prompt_tokens: expected < 25"):
        data.build(settings(prompt_tokens=25), 0, tmp_path / "x")
    with pytest.raises(DataError, match="did you mean 'imdb'"):
        data.build(settings("imbd"), 0, tmp_path / "x")
    with pytest.raises(DataError, match="draw: expected >= 0"):
        data.build(settings(), -1, tmp_path / "x")
    assert not list(tmp_path.iterdir())


def test_a_failed_build_leaves_the_old_folder(tmp_path, monkeypatch):
    data.build(settings(), 0, tmp_path / "draw0")
    before = (tmp_path / "draw0" / "reward.jsonl").read_bytes()
    monkeypatch.setattr(data, "_write", lambda path, text: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError):
        data.build(settings(reward_reviews=5), 0, tmp_path / "draw0")
    assert (tmp_path / "draw0" / "reward.jsonl").read_bytes() == before
    monkeypatch.undo()
    data.build(settings(reward_reviews=5), 0, tmp_path / "draw0")
    assert len(data.load_texts(tmp_path / "draw0", "reward")) == 5
    assert [path.name for path in tmp_path.iterdir()] == ["draw0"]


# real reviews ----------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def mirror(tmp_path_factory):
    """A mirror with a made-up imdb: repeated texts within and across splits, line breaks, a blank one."""
    import datasets

    root = tmp_path_factory.mktemp("mirror")
    folder = root / "datasets" / "imdb"

    def text(split, i):
        return f"Review {i} of {split}.<br /><br />It is  long enough to be\tcut in two halves."

    for split, n in (("train", 120), ("unsupervised", 150), ("test", 60)):
        texts = [text(split, i) for i in range(n)] + [text(split, 0), " ", text("test", 1).upper(), text("train", 2)]
        labels = [-1 if split == "unsupervised" else i % 2 for i in range(len(texts))]
        datasets.Dataset.from_dict({"text": texts, "label": labels}).to_parquet(folder / f"{split}.parquet")
    before = datasets.config.HF_DATASETS_CACHE
    datasets.config.HF_DATASETS_CACHE = root / "cache"
    yield root
    datasets.config.HF_DATASETS_CACHE = before


def test_imdb_parts_are_disjoint_clean_and_from_the_right_split(mirror):
    parts = imdb.load(settings("imdb", mirror=mirror), 0)
    assert set(parts) == set(data.PARTS)
    assert {part: len(rows) for part, rows in parts.items()} == {
        "language_model": 40,
        "language_model_validation": 10,
        "evaluator": 20,
        "reward": 15,
        "reward_validation": 5,
        "judge": 15,
        "prompts_train": 20,
        "prompts_validation": 8,
        "prompts_test": 8,
        "human_reviews": 12,
    }
    found = contents(parts)
    for a, b in combinations(found, 2):
        assert not found[a] & found[b], (a, b)
    origin = {part: {row["id"].split("/")[1] for row in rows} for part, rows in parts.items()}
    assert origin["reward"] == origin["judge"] == origin["reward_validation"] == {"train"}
    assert origin["language_model"] == {"train", "unsupervised"}
    assert origin["evaluator"] == origin["prompts_train"] == origin["language_model_validation"] == {"unsupervised"}
    assert origin["prompts_validation"] == origin["prompts_test"] == origin["human_reviews"] == {"test"}
    assert all(row["label"] in (0, 1) for part in ("reward", "judge", "prompts_test") for row in parts[part])
    assert all("label" not in row for row in parts["evaluator"])
    row = parts["prompts_test"][0]
    assert row["prompt"].endswith("It is long") and row["reference"] == "enough to be cut in two halves."
    assert imdb.load(settings("imdb", mirror=mirror), 0) == parts


def test_imdb_draws_are_disjoint_for_as_long_as_the_splits_last(mirror):
    found = [contents(imdb.load(settings("imdb", mirror=mirror), k)) for k in range(4)]
    everything = [set().union(*parts.values()) for parts in found]
    assert not everything[0] & everything[1]
    assert all(everything[a] != everything[b] for a, b in combinations(range(4), 2))


def test_imdb_asked_for_too_much(mirror):
    with pytest.raises(DataError, match=r"train holds 119 different reviews, but reward 105 .* = 125 were asked for"):
        imdb.load(settings("imdb", mirror=mirror, reward_reviews=105), 0)
    with pytest.raises(DataError, match="unsupervised holds 150"):
        imdb.load(settings("imdb", mirror=mirror, evaluator_reviews=500), 0)


def test_imdb_missing_or_broken(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(DataError, match="dataset 'imdb' was not found"):
        imdb.load(settings("imdb", mirror=tmp_path), 0)
    filled(tmp_path / "datasets" / "imdb")
    with pytest.raises(DataError, match="could not be read as a data set"):
        imdb.load(settings("imdb", mirror=tmp_path), 0)


@pytest.mark.skipif("RLNLP_TEST_MIRROR" not in os.environ, reason="RLNLP_TEST_MIRROR: a folder with datasets/imdb")
def test_imdb_real_reviews():
    params = settings("imdb", mirror=os.environ["RLNLP_TEST_MIRROR"], language_model_reviews=2000)
    found = contents(imdb.load(params, 0))
    assert all(not found[a] & found[b] for a, b in combinations(found, 2))
    assert not any("<br" in text for texts in found.values() for text in texts)


# bring your own --------------------------------------------------------------------------------------------------
def write_csv(path, header, rows):
    with open(path, "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def test_csv_is_split_by_the_draw(tmp_path):
    rows = [[f"prompt {i}, more", f"ref {i}"] for i in range(30)]
    path = write_csv(tmp_path / "mine.csv", ["prompt", "reference"], rows)
    params = settings("csv", prompts="mine.csv", folder=tmp_path)
    data.build(params, 0, tmp_path / "out")
    parts = {split: data.load_rows(tmp_path / "out", f"prompts_{split}") for split in brought.SPLITS}
    assert {split: len(rows) for split, rows in parts.items()} == {"train": 20, "validation": 3, "test": 3}  # of 24: 20
    contents(parts)
    assert len({row["id"] for rows in parts.values() for row in rows}) == 26
    assert parts["train"][0]["id"].startswith("mine.csv/") and parts["train"][0]["reference"].startswith("ref ")
    assert len(data.load_texts(tmp_path / "out", "human_reviews")) == 3
    assert brought.load(params, 1)["prompts_test"] != parts["test"]
    assert not (tmp_path / "out" / "reward.jsonl").exists()
    write_csv(path, ["prompt"], [["same"], ["Same "], ["other"], ["third"]])
    splits = brought.load(params, 0)
    assert sum(len(rows) for rows in splits.values()) == 4  # the two equal prompts are together
    assert "human_reviews" not in splits


def test_brought_prompts_replace_those_of_any_task(tmp_path):
    write_csv(tmp_path / "mine.csv", ["prompt"], [[f"prompt {i}"] for i in range(10)])
    facts = data.build(settings(prompts="mine.csv", folder=tmp_path), 0, tmp_path / "out")
    assert data.load_rows(tmp_path / "out", "prompts_test")[0]["prompt"].startswith("prompt ")
    assert facts["prompts"] == "mine.csv" and len(data.load_texts(tmp_path / "out", "human_reviews")) == 12


def test_csv_with_splits_of_its_own(tmp_path):
    rows = [["a", "train"], ["b", "validation"], ["c", "test"], ["d", "test"]]
    path = write_csv(tmp_path / "mine.csv", ["prompt", "split"], rows)
    params = settings("csv", prompts=path)
    assert [row["prompt"] for row in brought.load(params, 0)["prompts_test"]] == ["c", "d"]
    for bad, message in (
        (["a", "test"], "row 6: this prompt is in train and in test"),
        (["e", ""], "row 6: no split"),
        (["e", "tset"], "row 6: .* did you mean 'test'"),
    ):
        write_csv(path, ["prompt", "split"], [*rows, bad])
        with pytest.raises(DataError, match=message):
            brought.load(params, 0)
    write_csv(path, ["prompt", "split"], rows[:2])
    with pytest.raises(DataError, match="no row with split test"):
        brought.load(params, 0)


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "an empty file"),
        ("prompt\n", "a header and no rows"),
        ("promt\na\n", "unknown column 'promt'; did you mean 'prompt'"),
        ("reference\na\n", "expected one column 'prompt'"),
        ("prompt,reference\na,b\n ,c\n", "row 3: the prompt is empty"),
        ("prompt,reference\na,b\nc,d,e\n", r"row 3: expected 2 cells"),
        ("prompt\na\nb\n", "expected >= 3 different prompts"),
        ("prompt\n\xff\n", "not a CSV in UTF-8"),
    ],
)
def test_csv_errors_name_file_and_place(tmp_path, text, message):
    (tmp_path / "mine.csv").write_bytes(text.encode("latin-1"))
    with pytest.raises(DataError, match=message) as error:
        brought.load(settings("csv", prompts="mine.csv", folder=tmp_path), 0)
    assert "mine.csv" in str(error.value)


def test_csv_missing(tmp_path):
    write_csv(tmp_path / "prompts.csv", ["prompt"], [["a"]])
    with pytest.raises(DataError, match="no such file; did you mean 'prompts.csv'"):
        brought.load(settings("csv", prompts="promts.csv", folder=tmp_path), 0)
    with pytest.raises(DataError, match="bring.prompts is empty"):
        brought.load(settings("csv"), 0)


# reading ---------------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def tokenizer():
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {word: i for i, word in enumerate(["<pad>", "<eos>", "<unk>", "a", "b", "c", "d", "e"])}
    core = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=core, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")


@pytest.fixture
def folder(tmp_path):
    rows = [
        {"id": "one", "prompt": "a b c d e", "reference": "a", "label": 1},
        {"id": "two", "prompt": "d e", "reference": "", "label": 0},
        {"id": "three", "prompt": "c"},
    ]
    (tmp_path / "prompts_test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def test_prompts_are_left_padded_and_cut_on_the_left(folder, tokenizer):
    prompts = data.load_prompts(folder, "test", tokenizer, 3)
    assert prompts.ids.tolist() == [[5, 6, 7], [0, 6, 7], [0, 0, 5]] and prompts.ids.dtype == torch.int64
    assert prompts.mask.tolist() == [[True] * 3, [False, True, True], [False, False, True]]
    assert prompts.texts == ["a b c d e", "d e", "c"]  # whole, also what was cut off
    assert prompts.references == [["a"], [], []] and prompts.example_ids == ["one", "two", "three"]
    assert prompts.meta == [{"label": 1, "cut": 2}, {"label": 0, "cut": 0}, {"cut": 0}]
    assert data.load_prompts(folder, "prompts_test", tokenizer, 64).ids.shape == (3, 5)
    assert data.load_prompts(folder, "test", tokenizer, 64, n=1).example_ids == ["one"]
    (folder / "prompts_train.jsonl").write_text('{"id": "four", "prompt": "a", "references": ["b", "c d"]}\n')
    assert data.load_prompts(folder, "train", tokenizer, 3).references == [["b", "c d"]]
    with pytest.raises(DataError, match="max_prompt_tokens: expected >= 1"):
        data.load_prompts(folder, "test", tokenizer, 0)


def test_reading_errors(folder, tokenizer):
    with pytest.raises(DataError, match="did you mean 'prompts_test'"):
        data.load_prompts(folder, "tets", tokenizer, 8)
    with pytest.raises(DataError, match="no data in .*; the data stage writes it"):
        data.load_texts(folder / "nowhere", "reward")
    with pytest.raises(DataError, match="line 3: no 'label'"):
        data._field(data.load_rows(folder, "prompts_test"), "label", folder, "prompts_test")
    (folder / "reward.jsonl").write_text('{"id": 1, "text": "x"}\n[1]\n')
    with pytest.raises(DataError, match="reward.jsonl, line 2: expected a JSON object"):
        data.load_texts(folder, "reward")
    with pytest.raises(DataError, match="line 1: no 'label'"):
        data.load_labelled(folder, "reward", 1)
    (folder / "reward.jsonl").write_text('{"id": 1, "te')
    with pytest.raises(DataError, match="line 1: not JSON"):
        data.load_texts(folder, "reward")
    (folder / "reward.jsonl").write_text("")
    with pytest.raises(DataError, match="an empty data set"):
        data.load_texts(folder, "reward")
    (folder / "prompts_train.jsonl").write_text('{"id": "seven", "prompt": "a"}\n{"id": "eight", "prompt": " "}\n')
    with pytest.raises(DataError, match="prompt eight: no tokens"):
        data.load_prompts(folder, "train", tokenizer, 8)
    with pytest.raises(ValueError, match="an empty data set"):
        encoding.encode_prompts([], tokenizer, 8)
