"""Further models of a draw: shares of the labels, one scale for rewards, the second judge, dropout, positives."""

import functools
import itertools
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from rlnlp import rewards, scoring
from rlnlp.types import stream
from tests.made_up import ALL_PROMPTS
from workbook.draws import base, fewer_labels, maker, standard, training, variants
from workbook.draws.classifier import new_classifier, train_classifier
from workbook.draws.judge import judge_accuracy, load_judge
from workbook.draws.language_model import new_language_model
from workbook.draws.named import characters, tfidf
from workbook.draws.tokenizer import encode, train_tokenizer
from workbook.runs.checks import load
from workbook.texts import data
from workbook.texts.hub import DataError

pytestmark = pytest.mark.xdist_group("variants")  # what it sets up takes seconds: once, not once a worker

ROOT = Path(__file__).parents[1]
SETTINGS = {
    "task.language_model_reviews": 60,
    "task.language_model_validation_reviews": 10,
    "task.evaluator_reviews": 20,
    "task.reward_reviews": 1000,
    "task.reward_validation_reviews": 200,
    "task.judge_reviews": 300,
    "task.train_prompts": 100,
    "task.validation_prompts": 10,
    "task.test_prompts": 10,
    **ALL_PROMPTS,
    "language_model.steps": 5,
    "language_model.batch_size": 2,
    "language_model.width": 32,
    "reward_model.layers": 1,
    "reward_model.width": 32,
    "reward_model.epochs": 3,
    "reward_model.max_tokens": 48,
    "reward_model.learning_rate": 3e-3,
    "sampling.max_new_tokens": 8,
    "sampling.min_new_tokens": 0,
    "variants.dropout": 0.1,
    "variants.standard_prompts": 70,
}
ALL = 1 - 1e-12  # of the labels: settings refuse 1, for which there is a reward model already
PARTS = ["reward_0", "reward_10", "reward_50", "reward_100", "standard", "judge_2", "policy"]


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def content(folder):
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def changed(params, **sections):
    """params with some values changed, {section: {name: value}}."""
    new = params.replace(**{name: getattr(params, name).replace(**values) for name, values in sections.items()})
    new._path = params._path
    return new


@pytest.fixture(scope="module")
def draw(tmp_path_factory):
    """(params, data folder, models folder) of a small draw."""
    folder = tmp_path_factory.mktemp("draw")
    params = changed(load(ROOT / "params.yaml", **SETTINGS), variants={"label_fractions": (0.0, 0.1, 0.5, ALL)})
    data.build(params, 1, folder / "data")
    base.build(params, 1, folder / "data", folder / "models", folder / "scratch")
    return params, folder / "data", folder / "models"


@pytest.fixture(scope="module")
def built(draw, tmp_path_factory):
    """(facts, variants folder, scratch) of that draw."""
    folder = tmp_path_factory.mktemp("variants")
    facts = variants.build(draw[0], 1, *draw[1:], folder / "out", folder / "scratch")
    return facts, folder / "out", folder / "scratch"


@pytest.fixture
def made(monkeypatch):
    """Names of the parts that are really made from here on."""
    names, once = [], maker.once

    def spy(parent, inputs, make, *more):
        def making(fresh, states):
            names.append(parent.name)
            make(fresh, states)

        return once(parent, inputs, making, *more)

    monkeypatch.setattr(maker, "once", spy)
    return names


# shares of the labels ------------------------------------------------------------------------------------------------


def test_shares_are_nested_and_differ_between_draws():
    shares = [fewer_labels.labelled_subset(1000, fraction, 3) for fraction in (0.0, 0.1, 0.5, 1.0)]
    assert [len(share) for share in shares] == [0, 100, 500, 1000]
    assert all(set(small) < set(large) for small, large in itertools.pairwise(shares))
    assert shares[3] == list(range(1000)) and all(share == sorted(share) for share in shares)
    assert np.mean(shares[1]) > 200, "a random share, not the first rows"
    others = [set(fewer_labels.labelled_subset(1000, 0.1, k)) for k in range(4)]
    assert all(len(a & b) < 40 for i, a in enumerate(others) for b in others[:i]), "about 10 of 100 by chance"
    assert fewer_labels.labelled_subset(1000, 0.1, 3) == shares[1]
    with pytest.raises(ValueError, match=r"expected 0 to 1, got 1\.5"):
        fewer_labels.labelled_subset(10, 1.5, 3)


def test_labels_make_the_reward_model(draw, built):
    """None teaches nothing, more are better, and all of them make the very model that the runs use."""
    params, texts, trained = draw
    facts, out, _ = built
    accuracy = {name: facts[name]["validation_accuracy"] for name in ("reward_0", "reward_50", "reward_100", "reward")}
    assert accuracy["reward_0"] < 0.6 and accuracy["reward_50"] > 0.65
    assert accuracy["reward_100"] == accuracy["reward"]
    assert [facts[f"reward_{n}"]["training_reviews"] for n in (0, 10, 50, 100)] == [0, 100, 500, 1000]
    labels = np.array(data.load_labelled(texts, "reward")[1])
    assert facts["reward_10"]["positive_reviews"] == labels[fewer_labels.labelled_subset(1000, 0.1, 1)].sum()
    whole = (trained / "reward" / "model.safetensors").read_bytes()
    assert (out / "reward_100" / "model.safetensors").read_bytes() == whole
    assert (out / "reward_50" / "model.safetensors").read_bytes() != whole
    model, tokenizer = rewards._load_classifier(out / "reward_0", None)
    untrained = new_classifier(tokenizer, params.reward_model, stream(1, "reward"))
    assert all(
        torch.equal(a, b) for a, b in zip(model.state_dict().values(), untrained.state_dict().values(), strict=True)
    )


# one scale for all rewards -------------------------------------------------------------------------------------------


def test_standardised_scores_have_the_target_mean_and_sd(draw, built):
    params, texts, trained = draw
    facts, out, _ = built
    rows = [json.loads(line) for line in (out / "standard.jsonl").read_text().splitlines()]
    scales = json.loads((out / "standard.json").read_text())
    assert sorted(scales) == ["reward", "reward_0", "reward_10", "reward_100", "reward_50"] == sorted(rows[0]["scores"])
    assert facts["standard"] == {"texts": 70, "scores": scales}
    first = data.load_rows(texts, "prompts_train", 70)
    assert [row["example_id"] for row in rows] == [row["id"] for row in first]
    assert len({row["response"] for row in rows}) > 35
    prompts, responses = [row["prompt"] for row in rows], [row["response"] for row in rows]
    goal = scales["reward"]
    raw = {}
    for name in scales:
        folder = trained / "reward" if name == "reward" else out / name
        reward = rewards.classifier_reward(folder, max_tokens=params.reward_model.max_tokens)
        raw[name] = reward(prompts, responses)
        assert raw[name].tolist() == pytest.approx([row["scores"][name] for row in rows], abs=1e-6)
        scores = standard.standardised(reward, scales[name], goal)(prompts, responses, None, None)
        assert (scores.mean().item(), scores.std(correction=0).item()) == pytest.approx(
            (goal["mean"], goal["sd"]), rel=1e-3
        )
        assert torch.equal(scores.argsort(), raw[name].argsort())
    assert abs(raw["reward_0"].std().item() / goal["sd"] - 1) > 0.1, "so small a share had another scale before"


def test_a_reversed_reward_is_one_minus_the_score():
    def words(prompts, responses, references, meta):
        return [len(r.split()) / 4 for r in responses], {"words": [1.0, 2.0]}

    turned = standard.reversed_of(words)
    assert turned(["a"] * 2, ["a", "a b c"]).tolist() == [0.75, 0.25] and turned.__name__ == "reversed(words)"


def test_standardised_keeps_what_a_reward_function_may_do():
    scale = {"mean": 1.0, "sd": 2.0}

    def counts(prompts, responses, references, meta):
        return [len(response) for response in responses], {"words": [len(r.split()) for r in responses]}

    scores, parts = standard.standardised(counts, scale, {"mean": 10.0, "sd": 1.0})(["a"] * 2, ["abc", "a b c"], [], [])
    assert scores.tolist() == [11.0, 12.0] and parts == {"words": [1, 3]}

    def plain(prompts, responses, references=None, meta=None):
        return np.array([0.25, 0.75])

    assert standard.standardised(plain, scale, scale)(["a"] * 2, ["b"] * 2).tolist() == [0.25, 0.75]


@pytest.mark.parametrize("sd", [0.0, 1e-8, float("nan")])
def test_a_constant_reward_is_refused_by_name(sd):
    def always_half(prompts, responses, references=None, meta=None):
        return [0.5] * len(responses)

    flat, fine = {"mean": 0.5, "sd": sd}, {"mean": 0.5, "sd": 0.1}
    with pytest.raises(scoring.RewardError, match="reward always_half: it is constant"):
        standard.standardised(always_half, flat, fine)
    with pytest.raises(scoring.RewardError, match="on the scale of is constant"):
        standard.standardised(always_half, fine, flat)


# judge ---------------------------------------------------------------------------------------------------------------


def test_the_second_judge_is_another_one_and_survives_a_save(draw, built):
    facts, out, _ = built
    texts, labels = data.load_labelled(draw[1], "reward_validation")
    judge = load_judge(out / "judge_2")
    assert facts["judge_2"]["kind"] == "characters" and facts["judge_2"]["training_reviews"] == 300
    assert judge_accuracy(judge, texts, labels) == facts["judge_2"]["validation_accuracy"] > 0.6
    fitted = characters.train(*data.load_labelled(draw[1], "judge"))
    assert judge(texts).tolist() == fitted(texts, ["a prompt"] * len(texts)).tolist()
    assert judge(["delightfulness"]) != judge(["mattressness"]), "it reads parts of words that it has never seen"
    words = tfidf.train(*data.load_labelled(draw[1], "judge"))
    assert words(["delightfulness"]) == words(["mattressness"])
    assert b"pickle" not in b"".join(content(out / "judge_2").values())


def test_an_unknown_kind_of_judge_is_named(tmp_path, built):
    shutil.copytree(built[1] / "judge_2", tmp_path / "judge")
    record = json.loads((tmp_path / "judge" / "judge.json").read_text())
    (tmp_path / "judge" / "judge.json").write_text(json.dumps(record | {"kind": "oracle"}))
    with pytest.raises(ValueError, match="no judge here .*'oracle', expected one of characters, grammar"):
        load_judge(tmp_path / "judge")


# base model with dropout ---------------------------------------------------------------------------------------------


def test_policy_dropout_differs_from_policy_in_dropout_alone(draw, built, tmp_path):
    params, texts, trained = draw
    facts, out, _ = built
    config = json.loads((out / "policy_dropout" / "config.json").read_text())
    assert (config["attn_pdrop"], config["resid_pdrop"], config["embd_pdrop"]) == (0.1, 0.1, 0.1)
    assert facts["policy_dropout"]["dropout"] == 0.1 and facts["policy_dropout"]["validation_bits_per_byte"] > 0
    weights = (trained / "policy" / "model.safetensors").read_bytes()
    assert (out / "policy_dropout" / "model.safetensors").read_bytes() != weights
    make = maker.Maker(changed(params, variants={"dropout": 0.0}), 1, texts, tmp_path, trained)
    without = variants.policy_with_dropout(make)
    assert (without / "model.safetensors").read_bytes() == weights


# positives -----------------------------------------------------------------------------------------------------------


def test_positives_are_the_positive_ones_of_the_same_labels(draw):
    params, texts, _ = draw
    tokenizer = train_tokenizer()
    rows = data.load_rows(texts, "reward")
    by_id = {row["id"]: row for row in rows}
    few, half, all_ = (fewer_labels.positive_prompts(params, texts, 1, f, tokenizer) for f in (0.1, 0.5, 1.0))
    for prompts, fraction in ((few, 0.1), (half, 0.5), (all_, 1.0)):
        share = [rows[i] for i in fewer_labels.labelled_subset(len(rows), fraction, 1)]
        assert prompts.example_ids == [row["id"] for row in share if row["label"] == 1]
        assert all(meta["label"] == 1 and meta["cut"] == 0 for meta in prompts.meta)
    assert set(few.example_ids) < set(half.example_ids) < set(all_.example_ids)
    for example, prompt, references in zip(few.example_ids, few.texts, few.references):
        assert prompt + references[0] == by_id[example]["text"] and len(references) == 1
        assert len(prompt.split()) == params.task.prompt_tokens
    assert few.mask.sum(1).eq(params.task.prompt_tokens).all()
    test = {row["prompt"] for row in data.load_rows(texts, "prompts_test")}
    assert not test & set(all_.texts)


def test_a_positive_review_that_begins_as_a_test_prompt_is_left_out(draw, tmp_path):
    params, texts, _ = draw
    tokenizer = train_tokenizer()
    before = fewer_labels.positive_prompts(params, texts, 1, 0.5, tokenizer)
    moved = shutil.copytree(texts, tmp_path / "data")
    with open(moved / "prompts_test.jsonl", "a") as file:
        file.write(json.dumps({"id": "planted", "prompt": before.texts[7]}) + "\n")
    after = fewer_labels.positive_prompts(params, moved, 1, 0.5, tokenizer)
    assert set(before.example_ids) - set(after.example_ids) == {before.example_ids[7]}


def test_real_reviews_are_cut_in_half_and_keep_their_tokens(draw):
    """With byte-level BPE the tokens of prompt and reference are those of the review."""
    params, texts, _ = draw
    real = changed(params, task={"name": "imdb", "prompt_tokens": 100})
    whole = {row["id"]: row["text"] for row in data.load_rows(texts, "reward")}
    tokenizer = train_tokenizer(list(whole.values())[:50], "bpe", 400)
    found = fewer_labels.positive_prompts(real, texts, 1, 0.1, tokenizer)
    for example, prompt, (reference,) in zip(found.example_ids, found.texts, found.references):
        assert len(prompt.split()) == len(whole[example].split()) // 2
        start, rest = encode(tokenizer, [prompt, reference])
        assert start + rest == encode(tokenizer, [whole[example]])[0]


def test_no_positive_review_is_an_error(draw):
    with pytest.raises(DataError, match="no positive review among 0% of 1000"):
        fewer_labels.positive_prompts(draw[0], draw[1], 1, 0.0, train_tokenizer())


# build ---------------------------------------------------------------------------------------------------------------


def test_a_change_makes_again_only_what_depends_on_it(draw, built, tmp_path, made):
    params, texts, trained = draw
    facts, out, scratch = built
    assert sorted(p.name for p in out.iterdir()) == [
        "judge_2",
        "policy_dropout",
        "reward_0",
        "reward_10",
        "reward_100",
        "reward_50",
        "standard.json",
        "standard.jsonl",
        "variants.json",
    ]
    assert json.loads((out / "variants.json").read_text()) == facts

    def again(params=params, texts=texts):
        made.clear()
        variants.build(params, 1, texts, trained, tmp_path / "out", scratch)
        return made

    assert again() == [] and content(tmp_path / "out") == content(out)
    assert again(changed(params, variants={"dropout": 0.2})) == ["policy"]
    assert again(changed(params, variants={"label_fractions": (0.0, 0.2)})) == ["reward_20", "standard"]
    assert again(changed(params, variants={"standard_prompts": 65})) == ["standard"]
    assert again(changed(params, sampling={"max_new_tokens": 6})) == ["standard"]
    assert again(changed(params, language_model={"steps": 4})) == ["policy"]  # texts come from the policy in models/
    alone = changed(params, reward_model={"include_prompt": False}, variants={"label_fractions": (0.0,)})
    assert again(alone) == ["reward_0", "standard"]
    moved = shutil.copytree(texts, tmp_path / "data")
    rows = (moved / "judge.jsonl").read_text().splitlines(keepends=True)
    (moved / "judge.jsonl").write_text("".join(rows[1:]))
    assert again(texts=moved) == ["judge_2"]
    other = shutil.copytree(trained, tmp_path / "models")
    (other / "policy" / "README.md").write_text("another policy")
    made.clear()
    variants.build(params, 1, texts, other, tmp_path / "out", scratch)
    assert made == ["standard"]


def test_from_nothing_and_after_a_kill_the_same_bytes(draw, built, tmp_path, monkeypatch, made):
    params, texts, trained = draw
    monkeypatch.setattr(
        fewer_labels, "train_classifier", functools.partial(train_classifier, save_every_s=0)
    )  # a state after every step
    step, calls = training.optimizer_step, []

    def dies(*arguments):
        calls.append(1)
        if len(calls) == 40:
            raise KeyboardInterrupt
        return step(*arguments)

    monkeypatch.setattr(training, "optimizer_step", dies)
    folders = (texts, trained, tmp_path / "out", tmp_path / "scratch")
    with pytest.raises(KeyboardInterrupt):
        variants.build(params, 1, *folders)
    assert not (tmp_path / "out").exists() and made == ["reward_0", "reward_10", "reward_50"]
    assert list((tmp_path / "scratch").rglob("reward_50/*/state-*.safetensors"))
    made.clear()
    variants.build(params, 1, *folders)
    assert made == PARTS[2:] and len(calls) == 12 + 48 + 96 + 1 + 5, "steps done before the kill are not done again"
    assert content(tmp_path / "out") == content(built[1])


def test_what_cannot_be_made_or_is_not_wanted_says_why(draw, tmp_path, made):
    params, texts, trained = draw

    def build(params, texts=texts, name="out"):
        made.clear()
        facts = variants.build(params, 1, texts, trained, tmp_path / name, tmp_path / "scratch")
        return {name: part["why"] for name, part in facts.items() if name != "draw" and part.get("kind") == "none"}

    why = build(changed(params, variants={"label_fractions": (), "dropout": 0.0}))
    assert sorted(why) == ["policy_dropout", "standard"] and made == ["judge_2"]
    assert why["policy_dropout"] == "variants.dropout is 0" and "one reward model" in why["standard"]

    small = changed(params, variants={"label_fractions": (0.0,), "standard_prompts": 2})
    why = build(changed(small, bring={"model": str(trained / "policy"), "reward": "mine.py:score"}))
    assert sorted(why) == ["policy_dropout", "reward_0", "standard"] and made == []
    assert why["reward_0"].startswith("bring.reward is set") and why["policy_dropout"].startswith("bring.model is set")

    prompts = tmp_path / "prompts"
    prompts.mkdir()
    shutil.copy(texts / "prompts_train.jsonl", prompts)
    why = build(changed(small, task={"name": "csv"}, bring={"prompts": "mine.csv"}), prompts)
    assert sorted(why) == ["judge_2", "policy_dropout", "reward_0", "standard"] and made == []
    assert why["judge_2"] == f"{prompts} has no judge.jsonl, reward_validation.jsonl (task csv)"
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["variants.json"], "the folder is replaced whole"


def test_texts_of_a_brought_policy(draw, tmp_path, made):
    """bring.model alone: the reward models are made, and their texts are what that model writes."""
    params, texts, trained = draw
    mine = tmp_path / "mine"
    tokenizer = train_tokenizer()
    training.save(mine, new_language_model(tokenizer, params.language_model, 5), tokenizer, "mine")
    brought = changed(params, bring={"model": str(mine)}, variants={"label_fractions": (0.0,), "standard_prompts": 4})
    moved = shutil.copytree(trained, tmp_path / "models")
    shutil.rmtree(moved / "policy")
    (moved / "policy").mkdir()
    (moved / "policy" / "source.json").write_text(json.dumps({"source": str(mine)}))
    build = functools.partial(variants.build, brought, 1, texts, moved, tmp_path / "out", tmp_path / "scratch")
    facts = build()
    assert made == ["reward_0", "standard", "judge_2"] and facts["standard"]["texts"] == 4
    made.clear()
    training.save(mine, new_language_model(tokenizer, params.language_model, 6), tokenizer, "mine")
    assert build()["standard"] != facts["standard"] and made == ["standard"]


def test_a_missing_folder_is_named(draw, tmp_path):
    with pytest.raises(FileNotFoundError, match="models/draw7: no such folder; run the stage models@7"):
        variants.build(draw[0], 7, draw[1], tmp_path / "models" / "draw7", tmp_path / "out", tmp_path / "scratch")
