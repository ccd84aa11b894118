"""Tokenizers, training from scratch, bits per byte, classifier, judge, and the build of a draw's models."""

import json
import math
import random
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.made_up import ALL_PROMPTS
from workbook.draws import base, maker, training
from workbook.draws.classifier import accuracy, epoch_of, positive_probability, train_classifier
from workbook.draws.judge import judge_accuracy, load_judge
from workbook.draws.language_model import (
    batch_of,
    bits_per_byte,
    new_language_model,
    one_row,
    train_language_model,
    windows_of,
)
from workbook.draws.linear import LinearJudge
from workbook.draws.named import tfidf
from workbook.draws.shapes import LanguageModel, RewardModel
from workbook.draws.tokenizer import encode, train_tokenizer
from workbook.runs.checks import load
from workbook.texts import corpus, language

pytestmark = pytest.mark.xdist_group("pretrain")  # what it sets up takes seconds: once, not once a worker

ROOT = Path(__file__).parents[1]
TINY = LanguageModel(
    layers=1,
    width=32,
    heads=2,
    context=16,
    tokenizer="word",
    vocabulary=0,
    steps=30,
    batch_size=4,
    learning_rate=1e-2,
    dropout=0.1,
)
REWARD = RewardModel(layers=1, width=32, heads=2, epochs=3, batch_size=32, learning_rate=3e-3, max_tokens=48)


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def reviews():
    return corpus.generate(0, "reward", 1200)


@pytest.fixture(scope="module")
def texts(reviews):
    return [review.text for review in reviews[:100]]


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(kind="word")


def same_weights(a, b):
    return all(torch.equal(x, y) for x, y in zip(a.state_dict().values(), b.state_dict().values(), strict=True))


# tokenizers ----------------------------------------------------------------------------------------------------------

ODD = [
    "Plain text.",
    "  two  blanks ",
    "naïve café \u2014 10/10 <br /> \x96",
    "日本語 🙂",
    "tab\tand\nline",
    "it's n't 's",
    "",
]


def test_bpe_round_trip_offline(tmp_path, texts):
    from transformers import AutoTokenizer

    made = train_tokenizer(texts + ODD[:2], "bpe", 400)
    made.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    for tokenizer in (made, loaded):
        assert [tokenizer.decode(ids) for ids in encode(tokenizer, ODD + texts)] == ODD + texts
        assert len(tokenizer) == 400
        assert (tokenizer.eos_token_id, tokenizer.pad_token_id, tokenizer.padding_side) == (0, 1, "left")
    assert tokenizer(["a", "a b c"], padding=True)["attention_mask"][0][0] == 0


def test_words_round_trip(tmp_path, tokenizer, reviews):
    from transformers import AutoTokenizer

    tokenizer.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    all_texts = [review.text for review in reviews]
    ids = encode(loaded, all_texts)
    assert [loaded.decode(row) for row in ids] == all_texts
    assert [len(row) for row in ids] == [len(text.split()) for text in all_texts]
    assert encode(loaded, ["zzz"]) == [[loaded.unk_token_id]]
    assert len(loaded) == len(language.vocabulary()) + 3


def test_tokenizer_errors():
    with pytest.raises(ValueError, match="'word' or 'bpe', got 'words'"):
        train_tokenizer([], "words")
    with pytest.raises(ValueError, match="at least 259"):
        train_tokenizer(["a"], "bpe", 100)


# language models -----------------------------------------------------------------------------------------------------


def test_training_learns_and_is_reproducible(texts, tokenizer):
    first, curve = train_language_model(texts, tokenizer, TINY, seed=1)
    again, _ = train_language_model(texts, tokenizer, TINY, seed=1)
    other, _ = train_language_model(texts, tokenizer, TINY, seed=2)
    assert same_weights(first, again) and not same_weights(first, other)
    assert curve[-1][0] == TINY.steps and curve[-1][1] < curve[0][1] - 1
    assert not first.training


def test_resumed_equals_uninterrupted(tmp_path, texts, tokenizer, monkeypatch):
    whole, whole_curve = train_language_model(texts, tokenizer, TINY, seed=1)
    step, calls = training.optimizer_step, []

    def dies(*arguments):
        calls.append(1)
        if len(calls) == 17:
            raise KeyboardInterrupt
        return step(*arguments)

    monkeypatch.setattr(training, "optimizer_step", dies)
    with pytest.raises(KeyboardInterrupt):
        train_language_model(texts, tokenizer, TINY, 1, tmp_path, save_every_s=0)
    torch.rand(3)  # whatever else uses the global stream in between
    resumed, curve = train_language_model(texts, tokenizer, TINY, 1, tmp_path)
    assert len(calls) == 17 + TINY.steps - 16
    assert same_weights(whole, resumed) and curve == whole_curve


def test_not_finite_names_the_step(tmp_path, texts, tokenizer, monkeypatch):
    real = training.optimizer_step
    monkeypatch.setattr(training, "optimizer_step", lambda *a: math.nan if a[-2] == 7 else real(*a))
    with pytest.raises(training.TrainingError, match="not finite at step 7 of 30; last good state: .*learning_rate"):
        train_language_model(texts, tokenizer, TINY, 1, tmp_path, save_every_s=0)


def test_a_bad_gradient_leaves_the_weights():
    layer = torch.nn.Linear(2, 1)
    before = layer.weight.detach().clone()
    optimizer = torch.optim.AdamW(layer.parameters(), lr=1.0)
    loss = (layer(torch.ones(1, 2)) * torch.tensor(float("inf"))).sum()
    assert not math.isfinite(training.optimizer_step(layer, optimizer, loss, TINY, 0, 10))
    assert torch.equal(layer.weight, before)


def test_too_little_text(tokenizer):
    with pytest.raises(training.TrainingError, match="language_model.context: 16 .* got 4"):
        train_language_model(["the plot"], tokenizer, TINY, 1)


def test_batches_are_every_row_once_an_epoch():
    settings = TINY.replace(batch_size=3)
    tokens = torch.arange(16 * 10 + 5)
    rows = len(tokens) // 16 - 1
    seen = torch.cat([batch_of(tokens, rows, step, settings, seed=0) for step in range(rows // 3)])
    assert seen.shape == (rows, 17)
    assert len(set(seen[:, 0].tolist())) == rows and len(set((seen[:, 0] % 16).tolist())) == 1
    assert torch.equal(seen[:, 1:], seen[:, :-1] + 1)
    assert not torch.equal(seen[:3], batch_of(tokens, rows, rows // 3, settings, seed=0))


def test_learning_rate_shape():
    rates = [training.learning_rate(step, 100, 2.0, 0.1) for step in range(100)]
    assert rates[0] == pytest.approx(0.2) and max(rates) == pytest.approx(2.0) and rates.index(max(rates)) == 9
    assert rates[9:] == sorted(rates[9:], reverse=True) and 0.04 <= rates[-1] < 0.06


def test_documents_start_and_stop_at_the_end_token(tokenizer):
    row = one_row([[5, 6], [7]], 0)
    assert row.tolist() == [0, 5, 6, 0, 7, 0]


def test_bits_per_byte_short_texts(texts, tokenizer):
    """Documents that fit the context: equal to scoring each alone, without windows or batches."""
    model = new_language_model(tokenizer, TINY.replace(context=64), seed=3).eval()
    model.transformer.wte.weight.data.mul_(20)
    short = [" ".join(text.split()[:n]) for n, text in zip((1, 5, 30, 61), texts)]
    nats = 0.0
    for text in short:
        ids = torch.tensor([[0, *encode(tokenizer, [text])[0], 0]])
        logprobs = model(ids).logits.log_softmax(-1)[0, :-1]
        nats -= logprobs.gather(1, ids[0, 1:, None]).sum().item()
    expected = nats / math.log(2) / sum(len(text.encode()) for text in short)
    assert bits_per_byte(model, tokenizer, short) == pytest.approx(expected, rel=1e-5)
    assert bits_per_byte(model, tokenizer, short, batch_size=1) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("length", [1, 2, 16, 17, 18, 24, 25, 100])
def test_windows_predict_each_token_once_with_half_a_context(length):
    size, ids = 16, list(range(length + 1))
    predicted = []
    for window, skip in windows_of(ids, size):
        assert len(window) <= size + 1 and 1 <= skip
        assert skip >= size // 2 or window[0] == 0
        predicted += window[skip:]
    assert predicted == ids[1:]


def test_saved_model_runs_in_a_pipeline(tmp_path, texts, tokenizer):
    from transformers import pipeline

    model, _ = train_language_model(texts, tokenizer, TINY.replace(steps=2), seed=1)
    training.save(tmp_path, model, tokenizer, "# a card")
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "README.md",
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    ]
    out = pipeline("text-generation", str(tmp_path))("the plot was", max_new_tokens=5)[0]["generated_text"]
    assert out.startswith("the plot was")
    config = json.loads((tmp_path / "generation_config.json").read_text())
    assert config["do_sample"] is True and (config["eos_token_id"], config["pad_token_id"]) == (0, 1)


def test_same_formula_as_gpt2s_activation():
    from transformers.activations import ACT2FN

    x = torch.linspace(-6, 6, 101)
    assert torch.allclose(ACT2FN["gelu_pytorch_tanh"](x), ACT2FN["gelu_new"](x), atol=1e-6)


# classifier and judge ------------------------------------------------------------------------------------------------


def test_classifier_learns_resumes_and_ignores_padding(tmp_path, reviews, tokenizer, monkeypatch):
    texts, labels = [r.text for r in reviews], [r.label for r in reviews]
    train = {
        "texts": texts[:1000],
        "labels": labels[:1000],
        "tokenizer": tokenizer,
        "settings": REWARD,
        "seed": 0,
    }
    whole, curve = train_classifier(**train)
    assert accuracy(whole, tokenizer, texts[1000:], labels[1000:], 48) > 0.65
    assert whole.config.id2label == {0: "negative", 1: "positive"}

    alone = positive_probability(whole, tokenizer, texts[:1], 48)
    assert torch.allclose(positive_probability(whole, tokenizer, texts[:40], 48)[:1], alone, atol=1e-5)
    left = tokenizer(texts[:8], padding=True, truncation=True, max_length=48, return_tensors="pt")
    scores = whole(input_ids=left["input_ids"], attention_mask=left["attention_mask"]).logits.softmax(-1)[:, 1]
    assert torch.allclose(scores, positive_probability(whole, tokenizer, texts[:8], 48), atol=1e-5)

    step, calls = training.optimizer_step, []

    def dies(*arguments):
        calls.append(1)
        if len(calls) == 40:
            raise KeyboardInterrupt
        return step(*arguments)

    monkeypatch.setattr(training, "optimizer_step", dies)
    with pytest.raises(KeyboardInterrupt):
        train_classifier(**train, checkpoint_folder=tmp_path, save_every_s=0)
    resumed, resumed_curve = train_classifier(**train, checkpoint_folder=tmp_path)
    assert same_weights(whole, resumed) and curve == resumed_curve


def test_classifier_epoch_shows_each_text_once(tokenizer, texts):
    ids = encode(tokenizer, texts)
    batches, stretches = epoch_of(ids, REWARD.replace(max_tokens=8, batch_size=7), seed=0, epoch=0)
    assert sorted(row for batch in batches for row in batch) == list(range(len(ids)))
    for whole, part in zip(ids, stretches):
        assert len(part) == min(8, len(whole))
        assert any(whole[i : i + len(part)] == part for i in range(len(whole)))
    assert stretches != epoch_of(ids, REWARD.replace(max_tokens=8, batch_size=7), seed=0, epoch=1)[1]


def test_labels_of_one_class_are_an_error(tokenizer):
    with pytest.raises(training.TrainingError, match=r"both of them, got \[1\]"):
        train_classifier(["a"], [1], tokenizer, REWARD, 0)


def test_linear_judge_equals_scikit_learn_and_has_no_pickle(tmp_path):
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression

    rng = random.Random(0)
    words = {0: ["dull", "bad", "not", "film", "I", "a"], 1: ["good", "fine", "film", "great", "I", "a"]}
    labels = [i % 2 for i in range(80)]
    texts = [" ".join(rng.choices(words[label], k=8)) for label in labels]
    tfidf.train(texts, labels).save(tmp_path)
    judge = load_judge(tmp_path)
    vectorizer = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"(?u)\b\w+\b")
    fitted = LogisticRegression(C=10.0, max_iter=300).fit(vectorizer.fit_transform(texts), labels)
    fresh = ["good good film", "not good", "bad film", "zzz", ""]
    assert judge(fresh) == pytest.approx(fitted.predict_proba(vectorizer.transform(fresh))[:, 1], abs=1e-9)
    assert judge_accuracy(judge, texts, labels) > 0.95
    assert judge([]).shape == (0,)
    assert b"pickle" not in b"".join(p.read_bytes() for p in tmp_path.iterdir())
    with np.load(tmp_path / "judge.npz", allow_pickle=False) as arrays:
        assert {name: arrays[name].dtype.kind for name in arrays} == {"idf": "f", "weights": "f", "bias": "f"}


def test_judge_accuracy_counts_ties_half():
    scores = np.array([0.9, 0.1, 0.5, 0.5])
    assert judge_accuracy(lambda texts: scores, ["a"] * 4, [1, 1, 0, 1]) == 0.5


def test_no_judge_is_named(tmp_path):
    with pytest.raises(ValueError, match=f"{tmp_path}: no judge here"):
        load_judge(tmp_path)


# a draw's models -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """(params, data folder, scratch folder): the mini profile, much smaller."""
    from workbook.texts import data

    folder = tmp_path_factory.mktemp("build")
    sizes = {
        "language_model_reviews": 60,
        "language_model_validation_reviews": 10,
        "evaluator_reviews": 60,
        "reward_reviews": 80,
        "reward_validation_reviews": 40,
        "judge_reviews": 40,
        "train_prompts": 20,
        "validation_prompts": 10,
        "test_prompts": 10,
    }
    changes = ALL_PROMPTS | {f"task.{k}": v for k, v in sizes.items()}
    changes |= {"language_model.steps": 5, "language_model.batch_size": 2, "reward_model.epochs": 1}
    changes |= {"language_model.width": 32, "reward_model.width": 32}
    params = load(ROOT / "params.yaml", **changes)
    data.build(params, 1, folder / "data")
    return params, folder / "data", folder / "scratch"


def trained(monkeypatch):
    """Names of the parts that are really trained from here on."""
    names, once = [], maker.once

    def spy(parent, inputs, make, *more):
        def making(fresh, states):
            make(fresh, states)
            if not (fresh / "source.json").exists():  # a brought one is only noted
                names.append(parent.name)

        return once(parent, inputs, making, *more)

    monkeypatch.setattr(maker, "once", spy)
    return names


def test_build_writes_four_models_and_trains_only_what_changed(tmp_path, small, monkeypatch):
    params, data_folder, scratch = small
    out, names = tmp_path / "models", trained(monkeypatch)
    facts = base.build(params, 1, data_folder, out, scratch)
    assert sorted(names) == ["evaluator", "judge", "policy", "reward"]
    assert sorted(p.name for p in out.iterdir()) == ["evaluator", "judge", "models.json", "policy", "reward"]
    assert json.loads((out / "models.json").read_text()) == facts
    for part in ("policy", "evaluator"):
        assert facts[part]["validation_bits_per_byte"] > facts[part]["five_gram_bits_per_byte"] > 0.3
        assert facts[part]["beats_five_gram"] is False
    assert facts["policy"] != facts["evaluator"]
    assert facts["judge"]["kind"] == "grammar" and facts["judge"]["validation_accuracy"] > 0.8
    assert base.locate(out, "policy") == str(out / "policy")
    assert [step for step, _ in base.loss_curve(out, "policy")] == [1, 2, 3, 4, 5]

    def content(folder):
        return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}

    before = content(out)
    names.clear()
    base.build(params, 1, data_folder, out, scratch)
    assert names == [] and content(out) == before
    base.build(params, 1, data_folder, tmp_path / "again", tmp_path / "other_scratch")
    assert content(tmp_path / "again") == before  # trained again from nothing: the same bytes

    names.clear()
    changed = params.replace(reward_model=params.reward_model.replace(weight_decay=0.5))
    changed._path = params._path
    base.build(changed, 1, data_folder, out, scratch)
    assert names == ["reward"]
    names.clear()
    moved = tmp_path / "data"
    shutil.copytree(data_folder, moved)
    rows = (moved / "evaluator.jsonl").read_text().splitlines(keepends=True)
    (moved / "evaluator.jsonl").write_text("".join(rows[1:]))
    base.build(params, 1, moved, out, scratch)
    assert names == ["evaluator"]


def test_brought_models_are_not_trained(tmp_path, small, monkeypatch):
    params, data_folder, scratch = small
    model = new_language_model(train_tokenizer(), TINY, 0)
    training.save(tmp_path / "mine", model, train_tokenizer(), "mine")
    (tmp_path / "score.py").write_text("def score(*a): return 0\n")
    bring = {"model": str(tmp_path / "mine"), "reward": f"{tmp_path}/score.py:score"}
    brought = params.replace(bring=bring)
    brought._path = params._path
    names = trained(monkeypatch)
    facts = base.build(brought, 1, data_folder, tmp_path / "models", scratch)
    assert names in ([], ["judge"])
    assert facts["policy"] == facts["evaluator"] == {"source": bring["model"]}
    assert base.locate(tmp_path / "models", "evaluator") == bring["model"]
    assert base.locate(tmp_path / "models", "reward") == bring["reward"]
    assert base.loss_curve(tmp_path / "models", "policy") == []


def test_prompts_alone_need_a_model_and_a_reward(tmp_path, small):
    """A folder of prompts only (task csv): what is missing is named; with both brought it works, without a judge."""
    params, data_folder, scratch = small
    prompts = tmp_path / "prompts"
    prompts.mkdir()
    shutil.copy(data_folder / "prompts_test.jsonl", prompts)

    def csv(**bring):
        changed = params.replace(bring={"prompts": "mine.csv", **bring}, task=params.task.replace(name="csv"))
        changed._path = params._path
        return base.build(changed, 1, prompts, tmp_path / "models", scratch)

    with pytest.raises(training.TrainingError, match=r"no language_model.jsonl, .*task csv.*set bring.model"):
        csv(reward="a.py:f")
    with pytest.raises(training.TrainingError, match=r"no reward.jsonl, .*set bring.reward"):
        csv(model="mine")
    assert csv(model="mine", reward="a.py:f")["judge"] == {"kind": "none"}
    assert not (tmp_path / "models" / "judge" / "judge.json").exists()


def test_real_task_trains_a_linear_judge(tmp_path, small):
    """Any task but the generated one gets the TF-IDF judge, trained on judge.jsonl."""
    params, data_folder, scratch = small
    changed = params.replace(task=params.task.replace(name="imdb"))
    changed._path = params._path
    facts = base.build(changed, 1, data_folder, tmp_path / "models", scratch)
    assert facts["judge"]["kind"] == "tfidf"
    assert isinstance(load_judge(tmp_path / "models" / "judge"), LinearJudge)
