"""Real reviews on one base model: fixed roles, models that all seeds share, an evaluator with its tokenizer."""

from __future__ import annotations

import contextlib
import json
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch
from ruamel.yaml import YAML

from rlnlp import pretrained
from rlnlp.models import score_tokens
from tests.executed import ROOT
from workbook.draws import base, named, training, variants
from workbook.draws.judge import load_judge
from workbook.draws.language_model import new_language_model
from workbook.draws.tokenizer import train_tokenizer
from workbook.runs.checks import load
from workbook.texts import corpus, data, reviews, tasks
from workbook.texts.hub import DataError
from workbook.texts.tasks import normalised

pytestmark = pytest.mark.xdist_group("real reviews")

SIZES = {
    "language_model_burn": 5,
    "language_model_validation": 8,
    "reward_validation": 20,
    "evaluator": 30,
    "prompts_validation": 10,
    "prompts_test": 12,
    "human_reviews": 9,
}
SETTINGS = {
    "task.name": "reviews",
    "task.language_model_reviews": 40,
    "task.language_model_validation_reviews": 8,
    "task.evaluator_reviews": 30,
    "task.reward_reviews": 60,
    "task.reward_validation_reviews": 20,
    "task.judge_reviews": 50,
    "task.train_prompts": 20,
    "task.validation_prompts": 10,
    "task.test_prompts": 12,
    "evaluation.test_prompts": 12,
    "evaluation.human_reviews": 9,
    "language_model.steps": 4,
    "language_model.batch_size": 2,
    "language_model.width": 32,
    "reward_model.layers": 1,
    "reward_model.width": 32,
    "reward_model.epochs": 1,
    "variants.label_fractions": [],
}


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """(params, folder): a mirror with made-up reviews, and a brought model with a tokenizer of its own."""
    import datasets

    patch = pytest.MonkeyPatch()
    folder = tmp_path_factory.mktemp("real")
    for split, n in (("train", 240), ("unsupervised", 60), ("test", 60)):
        made = corpus.generate(0, split, n)
        labels = [-1 if split == "unsupervised" else review.label for review in made]
        path = folder / "mirror" / "datasets" / "imdb" / f"{split}.parquet"
        datasets.Dataset.from_dict({"text": [review.text for review in made], "label": labels}).to_parquet(path)
    patch.setattr(datasets.config, "HF_DATASETS_CACHE", folder / "cache")
    patch.setattr("workbook.texts.tasks.reviews.SIZES", SIZES)
    small = YAML(typ="safe").load(ROOT / "params.yaml")
    runs = {"ppo_kl_0": small["runs"]["ppo_kl_0"]}
    small |= {"runs": runs, "continued": {}, "reports": {"kl": {"conditions": ["ppo_kl_0"]}}, "claims": []}
    small["worlds"] = {}
    YAML().dump(small, folder / "params.yaml")
    params = load(folder / "params.yaml", mirror=str(folder / "mirror"), **SETTINGS)
    texts = [review.text for review in corpus.generate(1, "language_model", 60)]
    tokenizer = train_tokenizer(texts, "bpe", 300)
    training.save(folder / "base", new_language_model(tokenizer, params.language_model, 0), tokenizer, "# a card")
    brought = params.replace(bring=params.bring.replace(model=str(folder / "base")))
    brought._path = params._path
    yield brought, folder
    patch.undo()


@pytest.fixture(scope="module")
def built(world):
    """{draw: (facts, data folder, models folder)} of two draws."""
    params, folder = world
    found = {}
    with contextlib.chdir(folder):  # as the stages call them: with paths in which the draw stands
        for draw in (1, 2):
            texts, models = Path(f"data/draw{draw}"), Path(f"models/draw{draw}")
            data.build(params, draw, texts)
            facts = base.build(params, draw, texts, models, folder / "scratch")
            found[draw] = facts, texts.resolve(), models.resolve()
    return found


def content(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_no_review_has_two_roles_and_prompts_are_of_the_test_split(built):
    _, texts, _ = built[1]
    found, origin = {}, {}
    for part in data.PARTS:
        rows = data.load_rows(texts, part)
        found[part] = {normalised(row.get("text") or f"{row['prompt']} {row['reference']}") for row in rows}
        origin[part] = {row["id"].split("/")[1] for row in rows}
    for one, other in combinations(found, 2):
        assert not found[one] & found[other], (one, other)
    held_out = ("prompts_train", "prompts_validation", "prompts_test", "human_reviews")
    assert all(origin[part] == {"test"} for part in held_out)
    assert all(origin[part] == {"train"} for part in ("reward", "reward_validation", "judge", "evaluator"))
    assert origin["language_model"] == origin["language_model_validation"] == {"unsupervised"}
    row = data.load_rows(texts, "prompts_test")[0]
    words = f"{row['prompt']} {row['reference']}".split()
    assert row["prompt"].split() == words[: len(words) // 2]


def test_draws_share_their_texts_and_models_which_are_made_once(built, world):
    (one, texts, models), (other, again, more) = built[1], built[2]
    apart = {name for name, text in content(texts).items() if text != content(again)[name]}
    assert apart == {"facts.json"} and json.loads((again / "facts.json").read_text())["draw"] == 2
    trained = {name: content(models / name) for name in base.PARTS}
    assert trained == {name: content(more / name) for name in base.PARTS}
    assert one["draw"] == 1 and other["draw"] == 2
    made = sorted(path.name for path in (world[1] / "scratch").iterdir())
    assert made == ["models_draw0"]
    for part in base.PARTS:
        assert len(list((world[1] / "scratch" / "models_draw0" / part).glob("*/finished"))) == 1, part


def test_the_evaluator_reads_with_the_brought_tokenizer_other_reviews(built, world):
    params, folder = world
    facts, _, models = built[1]
    source = params.bring.model
    assert base.locate(models, "policy") == source and base.locate(models, "evaluator") == str(models / "evaluator")
    policy, tokenizer = pretrained.load(source)
    evaluator, own = pretrained.load(models / "evaluator")
    assert own.get_vocab() == tokenizer.get_vocab()
    assert facts["evaluator"]["training_reviews"] == 30 and facts["evaluator"]["vocabulary"] == len(tokenizer)
    assert not torch.equal(policy.get_input_embeddings().weight, evaluator.get_input_embeddings().weight)
    from rlnlp import rollout
    from rlnlp.types import generator

    prompts = data.load_prompts(built[1][1], "test", tokenizer, 8)
    seen = rollout.sample(policy, prompts, rollout.sampling_from(policy, 4), generator(1, "x"))
    assert torch.isfinite(score_tokens(evaluator, seen)).all()


def test_another_brought_model_makes_the_evaluator_again(world, built):
    params, folder = world
    tokenizer = train_tokenizer([r.text for r in corpus.generate(2, "x", 40)], "bpe", 280)
    training.save(folder / "other", new_language_model(tokenizer, params.language_model, 0), tokenizer, "# a card")
    changed = params.replace(bring=params.bring.replace(model=str(folder / "other")))
    changed._path = params._path
    facts = base.build(changed, 1, built[1][1], folder / "models_other", folder / "scratch")
    assert facts["evaluator"]["vocabulary"] == len(tokenizer) != built[1][0]["evaluator"]["vocabulary"]


def test_a_task_that_names_no_evaluator_keeps_the_brought_model(world, built):
    params, folder = world
    changed = params.replace(task=params.task.replace(name="imdb"))
    changed._path = params._path
    facts = base.build(changed, 1, built[1][1], folder / "models_imdb", folder / "scratch")
    assert facts["evaluator"] == facts["policy"] == {"source": params.bring.model}
    assert facts["judge"]["kind"] == "tfidf"


def test_the_judges_are_a_transformer_and_a_linear_model_on_the_judges_reviews(built, world):
    params, folder = world
    facts, texts, models = built[1]
    assert facts["judge"]["kind"] == "transformer" and facts["judge"]["training_reviews"] == 50
    judge = load_judge(models / "judge")
    scores = judge(["a fine film", "dull", ""], ["p", "p", "p"])
    assert scores.shape == (3,) and scores.dtype == np.float64 and ((scores > 0) & (scores < 1)).all()
    assert judge([]).shape == (0,)
    vocabularies = [pretrained.read_tokenizer(models / name).get_vocab() for name in ("judge", "reward")]
    assert vocabularies[0] != vocabularies[1]
    found = {}
    for draw in (1, 2):
        out = folder / f"variants{draw}"
        found[draw] = variants.build(params, draw, texts, models, out, folder / "scratch")
        assert found[draw]["judge_2"]["kind"] == "characters" and found[draw]["draw"] == draw
    assert content(folder / "variants1" / "judge_2") == content(folder / "variants2" / "judge_2")


def test_too_much_is_refused_by_the_setting(world, tmp_path):
    params, _ = world
    for setting, n in (("evaluator_reviews", 31), ("test_prompts", 13), ("judge_reviews", 1000)):
        changed = params.replace(task=params.task.replace(**{setting: n}))
        changed._path = params._path
        with pytest.raises(DataError, match=f"task.{setting}: expected at most .* got {n}"):
            data.build(changed, 1, tmp_path / "x")


def test_what_a_smaller_experiment_reads_a_larger_one_reads_in_the_same_role(world, built, tmp_path):
    params, _ = world
    few = params.replace(task=params.task.replace(reward_reviews=10, test_prompts=5, judge_reviews=10))
    few._path = params._path
    data.build(few, 3, tmp_path / "few")
    for part, n in (("reward", 10), ("prompts_test", 5), ("judge", 10), ("evaluator", 30)):
        assert data.load_rows(tmp_path / "few", part) == data.load_rows(built[1][1], part)[:n]


def test_the_roles_are_those_that_the_base_model_was_trained_by():
    plan = YAML(typ="safe").load(ROOT / "profiles" / "reviews" / "base_model.yaml")
    assert plan["sizes"] == reviews.SIZES
    assert tasks.task("reviews").draw(5) == 0 and tasks.task("imdb").draw(5) == 5
    assert "own_texts" in named.names()
