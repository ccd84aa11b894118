"""The base model of real reviews: roles, invented words, sizes, training that goes on, pilot, release."""

from __future__ import annotations

import json
import math
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from ruamel.yaml import YAML
from safetensors import safe_open

from rlnlp import pretrained
from rlnlp.settings import ConfigError
from workbook.draws import prose, samples, training
from workbook.draws.language_model import bits_per_byte, new_language_model
from workbook.draws.pilot import best, steps_within
from workbook.draws.prose import Prose, Shop, check_size
from workbook.draws.samples import without_last_word, write
from workbook.draws.tokenizer import encode, train_tokenizer
from workbook.draws.training import TrainingError
from workbook.figures import bits
from workbook.stages import base_model
from workbook.store.tables import read_table
from workbook.texts import corpus, invented, reviews
from workbook.texts.hub import DataError
from workbook.texts.ngram import KneserNey
from workbook.texts.tasks import normalised
from workbook.texts.tasks.imdb import splits_of

pytestmark = pytest.mark.xdist_group("base model")

TINY = Prose(
    layers=1,
    width=32,
    heads=2,
    context=32,
    vocabulary=300,
    reviews=0,
    steps=8,
    batch_size=4,
    learning_rate=1e-2,
)
SIZES = {
    "language_model_burn": 5,
    "language_model_validation": 6,
    "reward_validation": 4,
    "evaluator": 10,
    "prompts_validation": 3,
    "prompts_test": 4,
    "human_reviews": 25,
}


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def rows(split: str, number: int) -> list[dict]:
    made = corpus.generate(0, split, number)
    label = (lambda i: {}) if split == "unsupervised" else (lambda i: {"label": int(i % 3 == 0)})
    return [dict(id=f"imdb/{split}/{i}", text=review.text, **label(i)) for i, review in enumerate(made)]


@pytest.fixture(scope="module")
def splits():
    return {name: rows(name, number) for name, number in (("train", 60), ("unsupervised", 40), ("test", 50))}


@pytest.fixture(scope="module")
def texts(splits):
    return [row["text"] for row in splits["unsupervised"]]


@pytest.fixture
def shop(tmp_path, texts):
    return Shop(texts, tmp_path / "work", seed=0, threads=1)


@pytest.fixture
def plan(tmp_path, splits, monkeypatch):
    """A settings file beside a mirror with made-up reviews; some stand twice, in other spelling or another split."""
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    again = {"train": splits["unsupervised"][:3], "unsupervised": splits["test"][:4], "test": splits["test"][:2]}
    for name, found in splits.items():
        written = [row["text"] for row in found] + ["  " + row["text"].upper() + "\n" for row in again[name]]
        labels = [row.get("label", -1) for row in found] + [found[0].get("label", -1)] * len(again[name])
        path = tmp_path / "mirror" / "datasets" / "imdb" / f"{name}.parquet"
        datasets.Dataset.from_dict({"text": written, "label": labels}).to_parquet(path)
    values = {
        "mirror": "mirror",
        "work": "work",
        "out": "base",
        "report": "report",
        "threads": 1,
        "samples": 22,
        "sizes": SIZES,
        "model": TINY.model_dump(mode="json"),
        "pilot": {
            "minutes": 2.0,
            "shares": [0.5, 1.0],
            "candidates": {"narrow": {"width": 16}, "few": {"reviews": 12, "steps": 6}},
        },
    }

    def write_plan(**changes) -> Path:
        path = tmp_path / "base_model.yaml"
        YAML().dump(values | changes, path)
        return path

    return write_plan


# roles ---------------------------------------------------------------------------------------------------------------


def keys(part: list[dict]) -> set[str]:
    return {normalised(row.get("text") or f"{row['prompt']} {row['reference']}") for row in part}


def test_every_review_has_one_role_and_each_role_its_split(plan):
    splits = splits_of(base_model.load(plan()).model_copy(update={"mirror": str(plan().parent / "mirror")}))
    parts = reviews.by_role(splits, SIZES)
    assert set(parts) == {name for names in reviews.ROLES.values() for name in names}
    for one, other in combinations(parts, 2):
        assert not keys(parts[one]) & keys(parts[other]), (one, other)
    assert sum(map(len, parts.values())) == len(set().union(*map(keys, parts.values()))) == 63 + 37 + 50
    origin = {name: {row["id"].split("/")[1] for row in part} for name, part in parts.items()}
    for name, part in parts.items():
        split = {"lan": "unsupervised", "pro": "test", "hum": "test"}.get(name[:3], "train")
        assert origin[name] == {split}, name
        assert len(part) == SIZES.get(name, len(part))
    halves = [parts["reward"] + parts["reward_validation"], parts["judge"] + parts["evaluator"]]
    assert [len(half) for half in halves] == [31, 32]
    assert [sum(row["label"] for row in half) for half in halves] == [11, 12]
    assert reviews.by_role(splits, SIZES) == parts


def test_the_reviews_of_a_role_are_in_no_order_of_the_data_set(splits):
    numbers = [int(row["id"].split("/")[2]) for row in reviews.by_role(splits, SIZES)["language_model"]]
    assert numbers != sorted(numbers)


def test_a_review_in_two_roles_is_named(splits):
    twice = [*splits["test"], {"id": "imdb/test/x", "text": splits["train"][7]["text"].upper() + " ", "label": 0}]
    with pytest.raises(DataError, match=r"two roles: \w+ \(imdb/\w+/\w+\) and \w+ \(imdb/test/x\)"):
        reviews.by_role(splits | {"test": twice}, SIZES)


def test_sizes_that_do_not_fit_are_named(splits):
    with pytest.raises(DataError, match="train, one half holds 30 .* reward_validation 30 leave none for reward"):
        reviews.by_role(splits, SIZES | {"reward_validation": 30})
    with pytest.raises(DataError, match="found 'evaluater'; did you mean 'evaluator'"):
        reviews.by_role(splits, SIZES | {"evaluater": 3})
    with pytest.raises(DataError, match="human_reviews: expected at least 1 review, found 0"):
        reviews.by_role(splits, SIZES | {"human_reviews": 0})


# invented words ------------------------------------------------------------------------------------------------------


def test_invented_words_by_hand():
    known = invented.known_words(["It's a GOOD film, naïve in 1994."])
    assert known == {"it", "s", "a", "good", "film", "naïve", "in"}
    assert invented.counts(["A goodly film: 7/10 films", "", "NAÏVE"], known).tolist() == [[2, 4], [0, 0], [0, 1]]


def test_human_text_is_cut_to_the_length_of_the_samples():
    assert invented.as_long_as(["one, two three.", "four", "five six"], ["a b!", "a b c", ""]) == [
        "one, two",
        "four",
        "",
    ]
    found = invented.beside(["good zzz", "good good"], ["good film xxx", "yyy good film"], {"good", "film"})
    assert (found["words"], found["share"], found["human_words"], found["human_share"]) == (4, 0.25, 4, 0.25)
    assert found["times"] == 1.0 and found["low"] is None  # some resamples have no invented human word
    with pytest.raises(ValueError, match="a human text for each of 2"):
        invented.beside(["a", "b"], ["a"], {"a"})
    with pytest.raises(ValueError, match="not a word"):
        invented.beside(["1 2"], ["a"], {"a"})


def test_the_interval_of_times_holds_what_is_true():
    """Samples invent 2 % of words, people 1 %: of 20 made-up studies, most intervals hold 2, few hold 1."""
    rng, holds, one = np.random.default_rng(0), 0, 0
    text = lambda share: " ".join(np.where(rng.random(50) < share, "new", "old"))
    for study in range(20):
        found = invented.beside([text(0.02) for _ in range(200)], [text(0.01) for _ in range(200)], {"old"}, study)
        holds, one = holds + (found["low"] <= 2 <= found["high"]), one + (found["low"] <= 1)
    assert holds >= 16 and one <= 3


# samples -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, kept", [("a good fil", "a good"), ("a good film.", "a good film."), ("goo", ""), ("", "")]
)
def test_a_cut_text_loses_its_last_word(text, kept):
    assert without_last_word(text) == kept


def test_samples_are_unselected_and_repeatable(texts):
    tokenizer = train_tokenizer(texts, "bpe", 300)
    model = new_language_model(tokenizer, TINY, seed=3).eval()
    found = write(model, tokenizer, 3, seed=1)
    assert found == write(model, tokenizer, 3, seed=1) != write(model, tokenizer, 3, seed=2)
    assert len(found) == 3 and all(found)


def test_only_a_sample_that_the_context_cut_loses_its_last_word(texts, monkeypatch):
    tokenizer = train_tokenizer(texts, "bpe", 300)
    model = new_language_model(tokenizer, TINY, seed=3)
    ids = torch.tensor(encode(tokenizer, ["a good film"] * 2))
    made = SimpleNamespace(responses=ids, mask=ids >= 0, terminated=torch.tensor([True, False]))
    monkeypatch.setattr(samples, "sample", lambda *given: made)
    assert write(model, tokenizer, 2, seed=1) == ["a good film", "a good"]


# sizes and training --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [{}, {"layers": 3, "width": 40, "heads": 4, "context": 16, "vocabulary": 320}])
def test_the_number_of_weights_is_known_before(texts, shape):
    settings = TINY.replace(**shape)
    model = new_language_model(train_tokenizer(texts, "bpe", settings.vocabulary), settings, 0)
    assert settings.weights == sum(weight.numel() for weight in model.parameters())


def test_too_large_a_model_is_refused_before_any_work(plan, capsys, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    path = plan(largest_mb=0.01, mirror="nowhere")  # not even the reviews are read
    for command in ("train", "pilot"):
        assert base_model.main([command, str(path)]) == 2
        assert "MB in half precision, expected at most 0.01 MB" in capsys.readouterr().err
    assert not (path.parent / "work").exists()
    check_size(TINY, 0.1)


def test_it_goes_on_after_a_kill_and_is_made_once(shop, tmp_path, texts, monkeypatch):
    whole, _, whole_curve = Shop(texts, tmp_path / "other", 0, 1).model(TINY)
    monkeypatch.setattr(prose, "SAVE_EVERY_S", 0)
    step, calls = training.optimizer_step, []

    def dies(*arguments):
        calls.append(arguments[-2])
        if len(calls) == 5:
            raise KeyboardInterrupt
        return step(*arguments)

    monkeypatch.setattr(training, "optimizer_step", dies)
    with pytest.raises(KeyboardInterrupt):
        shop.model(TINY)
    model, _, curve = shop.model(TINY)
    shop.model(TINY)
    assert calls == [0, 1, 2, 3, 4, 4, 5, 6, 7]
    assert curve == whole_curve
    assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), whole.state_dict().values()))


def test_what_decides_a_model_makes_another(shop, texts):
    first = shop.model(TINY.replace(steps=1))[0]
    for other in (Shop(texts, shop.work, 1, 1), Shop(texts[1:], shop.work, 0, 1)):
        weights = zip(first.state_dict().values(), other.model(TINY.replace(steps=1))[0].state_dict().values())
        assert not all(torch.equal(a, b) for a, b in weights if a.shape == b.shape)


def test_half_precision_products_learn_as_well(shop):
    """A cast of the weights that is kept over steps would leave the loss where the first step has put it."""
    settings = TINY.replace(steps=40)
    losses = [shop.model(settings.replace(precision=name))[2] for name in ("float32", "bfloat16")]
    assert losses[0] != losses[1]
    assert losses[0][-1][1] < losses[0][0][1] - 1
    assert losses[1][-1][1] == pytest.approx(losses[0][-1][1], abs=0.1)


def test_more_reviews_than_there_are(shop):
    with pytest.raises(TrainingError, match="reviews: 41 were asked for, and the base role has 40"):
        shop.model(TINY.replace(reviews=41))


# bits per byte -------------------------------------------------------------------------------------------------------


def test_five_gram_and_model_count_the_same_events(shop, texts):
    """A model that guesses pays log2 V for each token and each end; the five-gram gives as many probabilities."""
    held_out = ["An é of two bytes.", texts[0], ""]
    tokenizer = shop.tokenizer(300, 0)
    model = new_language_model(tokenizer, TINY, 0).eval()
    for weight in model.parameters():
        weight.data.zero_()
    ids = encode(tokenizer, held_out)
    events, size = sum(len(row) + 1 for row in ids), sum(len(text.encode()) for text in held_out)
    assert bits_per_byte(model, tokenizer, held_out) == pytest.approx(events * math.log2(len(tokenizer)) / size)
    counts = KneserNey(encode(tokenizer, shop.texts), len(tokenizer), tokenizer.eos_token_id, 5)
    probabilities = [p for row in counts.token_probabilities(ids) for p in row]
    assert len(probabilities) == events
    assert shop.five_gram(300, 0, held_out) == pytest.approx(-sum(map(math.log2, probabilities)) / size)


# pilot and release ---------------------------------------------------------------------------------------------------


def test_pilot_writes_a_row_per_candidate_and_budget_once(plan, monkeypatch):
    path = plan()
    assert base_model.main(["pilot", str(path)]) == 0
    table = read_table(path.parent / "report" / "pilot.csv")
    assert [(row["candidate"], row["minutes"], row["steps"], row["width"], row["reviews"]) for row in table] == [
        ("narrow", 1.0, 4, 16, 26),
        ("narrow", 2.0, 8, 16, 26),
        ("few", 1.0, 3, 32, 12),
        ("few", 2.0, 6, 32, 12),
    ]
    assert table[1]["tokens_seen"] == 8 * 4 * 32 and table[0]["bits_per_byte"] != table[1]["bits_per_byte"]
    assert table[0]["five_gram_bits_per_byte"] != table[2]["five_gram_bits_per_byte"]
    picture = (path.parent / "report" / "pilot.svg").read_text()
    assert "narrow" in picture and "few" in picture and "<desc" in picture
    monkeypatch.setattr(training, "optimizer_step", lambda *a: pytest.fail("trained again"))
    assert base_model.main(["pilot", str(path)]) == 0
    assert read_table(path.parent / "report" / "pilot.csv") == table


def test_the_best_is_the_lowest_at_the_whole_budget():
    table = [("a", 1.0, 2.0), ("a", 4.0, 1.8), ("b", 1.0, 1.5), ("b", 4.0, 1.9), ("c", 4.0, 1.8)]
    made = [{"candidate": name, "minutes": minutes, "bits_per_byte": found} for name, minutes, found in table]
    assert best(made) is made[1]


def test_a_pilot_without_rows():
    with pytest.raises(ValueError, match="no row"):
        bits.pilot([])


def test_speed_says_how_many_steps_fit(plan, capsys):
    assert base_model.main(["speed", str(plan())]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["candidate", "model", "narrow", "few"]
    assert all(int(line.split()[-1].replace(",", "")) >= 1 for line in lines[1:])
    assert steps_within(1000.0, TINY, 2.0) == 2 * 60 * 1000 // (4 * 32)


def test_the_released_model_is_half_precision_loads_and_is_what_its_card_says(plan):
    path = plan()
    assert base_model.main(["train", str(path)]) == 0
    folder = path.parent / "base"
    assert not [p.name for p in folder.iterdir() if p.suffix in (".bin", ".pt", ".pkl")]
    with safe_open(folder / "model.safetensors", framework="pt") as file:
        assert {file.get_tensor(name).dtype for name in file.keys()} == {torch.float16}  # noqa: SIM118
    facts = json.loads((folder / "facts.json").read_text())
    assert facts["megabytes"] == pytest.approx(TINY.megabytes, rel=0.1)
    model, tokenizer = pretrained.load(folder)
    settings = base_model.load(path)
    shop, roles = base_model.prepared(settings, path.parent)
    held_out = roles["language_model_validation"]
    assert model.dtype == torch.float32 and facts["validation_reviews"] == len(held_out) == 6
    assert facts["bits_per_byte"] == pytest.approx(bits_per_byte(model, tokenizer, held_out), rel=1e-9)
    assert facts["bits_per_byte"] != facts["single_precision_bits_per_byte"]
    assert facts["bits_per_byte"] == pytest.approx(facts["single_precision_bits_per_byte"], rel=1e-2)
    assert facts["five_gram_bits_per_byte"] == shop.five_gram(300, 0, held_out)
    assert facts["invented"]["samples"] == 22
    assert json.loads((folder / "loss.json").read_text())[-1][0] == TINY.steps
    card = (folder / "README.md").read_text()
    for said in (
        f"{facts['bits_per_byte']:.4f}",
        f"{facts['five_gram_bits_per_byte']:.4f}",
        "26 film reviews",
        "float16",
    ):
        assert said in card
    shown = (folder / "samples.md").read_text()
    assert "\n20. " in shown and "\n21. " not in shown


def test_too_many_samples_for_the_human_text(plan, capsys):
    assert base_model.main(["train", str(plan(samples=26))]) == 2
    assert "samples: expected 1 to 25" in capsys.readouterr().err


# settings ------------------------------------------------------------------------------------------------------------


def test_settings_that_cannot_be_used_are_named_before_any_work(plan):
    wrong = TINY.model_dump(mode="json") | {"width": 33}
    for changes, said in (
        ({"model": wrong}, r"line \d+: model.width: .*multiple of heads \(2\), found 33"),
        ({"thread": 2}, r"thread: .*not permitted"),
        ({"pilot": {"minutes": 1.0, "candidates": {"odd": {"layer": 2}}}}, r"candidates.odd.layer: .*not permitted"),
        ({"pilot": {"minutes": 1.0, "shares": [2.0], "candidates": {}}}, r"pilot.shares: expected shares above 0"),
    ):
        with pytest.raises(ConfigError, match=said):
            base_model.load(plan(**changes))


def test_the_settings_of_the_profile_are_sound_and_small_enough():
    plan = base_model.load(Path(__file__).parents[1] / base_model.DEFAULT)
    assert set(plan.sizes) == set(reviews.SIZES)
    for settings in (plan.model, *plan.candidates().values()):
        check_size(settings, plan.largest_mb)
    assert len({settings.vocabulary for settings in plan.candidates().values()}) >= 3
