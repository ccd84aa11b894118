"""The four models of a draw, which every run starts from: policy, evaluator, reward, judge.

``build`` makes the folder ``models/draw<k>`` that the runs read.
"""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import torch

from rlnlp.types import stream
from workbook.draws.classifier import accuracy, train_classifier
from workbook.draws.judge import judge_accuracy, load_judge, save_grammar_judge, train_judge
from workbook.draws.language_model import bits_per_byte, train_language_model
from workbook.draws.maker import Maker
from workbook.draws.tokenizer import encode, train_tokenizer
from workbook.draws.training import TrainingError, save
from workbook.store.files import atomic_json, whole
from workbook.texts.data import load_labelled, load_texts
from workbook.texts.hub import find
from workbook.texts.ngram import KneserNey
from workbook.texts.tasks import TASKS

PARTS = ("policy", "evaluator", "reward", "judge")


def build(params, draw: int, data_folder: str | Path, out: str | Path, scratch: str | Path) -> dict:
    """Make the models of one draw and return what ``models.json`` in ``out`` holds.

    out/policy and out/evaluator: language models on disjoint reviews, one tokenizer; out/reward: a sentiment
    classifier; out/judge: see ``judge.load_judge``. What ``bring.model`` and ``bring.reward`` name is recorded, not
    copied or trained (``locate`` finds it); a brought model is also the evaluator, because a score per token needs one
    tokenizer.
    params: workbook.runs.params.Params; data_folder: as ``data.build`` leaves it; scratch: see ``Maker``.
    Raises TrainingError, at once where the data folder lacks the texts that a model would be trained on.
    """
    torch.set_num_threads(params.threads)
    make = Maker(params, draw, Path(data_folder), Path(scratch) / f"models_draw{draw}")
    check(make)
    done = {"policy": language_model(make, "policy"), "reward": reward(make), "judge": judge(make)}
    done["evaluator"] = language_model(make, "evaluator")
    facts = {"draw": draw, **{name: json.loads((done[name] / "facts.json").read_text()) for name in PARTS}}
    with whole(out) as fresh:
        for name in PARTS:
            shutil.copytree(done[name], fresh / name)
        atomic_json(fresh / "models.json", facts)
    return facts


def locate(models_folder: str | Path, part: str, mirror: str = "") -> str:
    """Path or hub id of a draw's part: its folder, or what ``bring`` names (a model is looked for in the mirror)."""
    folder = Path(models_folder) / part
    source = folder / "source.json"
    if not source.is_file():
        return str(folder)
    brought = json.loads(source.read_text())["source"]
    if part == "reward" and ".py:" in brought:
        return brought
    return str(find("models", brought, mirror))


def loss_curve(models_folder: str | Path, part: str) -> list[tuple[int, float]]:
    """(step, loss in nats) of a trained part, in order; empty for a brought one."""
    path = Path(models_folder) / part / "loss.json"
    return [tuple(point) for point in json.loads(path.read_text())] if path.is_file() else []


def guessing_loss(facts: dict) -> float:
    """Loss in nats of a model that knows nothing: log of the vocabulary, or of two classes where there is none."""
    return math.log(facts.get("vocabulary", 2))


def check(make: Maker) -> None:
    """Raises TrainingError if something that is to be trained here has no texts."""
    needed = {"model": ("language_model", "evaluator", "language_model_validation")}
    needed["reward"] = ("reward", "reward_validation")
    for setting, files in needed.items():
        missing = make.lacks(*files)
        if missing and not getattr(make.params.bring, setting):
            raise TrainingError(
                f"{make.data}: no {', '.join(missing)} to train on (task {make.params.task.name}); set bring.{setting}"
            )


def note_source(make: Maker, fresh: Path, states: Path, source: str) -> tuple[dict, None]:
    """What ``bring`` names is used where it is."""
    atomic_json(fresh / "source.json", {"source": source})
    return {"source": source}, None


def language_model(make: Maker, name: str) -> Path:
    """The finished folder of "policy" or "evaluator"."""
    params = make.params
    if params.bring.model:
        return make.part(name, params.pick("bring"), [], note_source, params.bring.model)
    texts = {"policy": "language_model", "evaluator": "evaluator"}[name]
    files = make.files(*sorted({texts, "language_model_validation", *_tokenizer_texts(make)}))
    return make.part(name, params.pick("language_model"), files, train_base_model, name, texts)


def _tokenizer_texts(make: Maker) -> list[str]:
    return [] if make.params.language_model.tokenizer == "word" else ["language_model"]


def tokenizer_of(make: Maker):
    """The draw's tokenizer: learned from the policy's training text."""
    settings = make.params.language_model
    texts = [text for name in _tokenizer_texts(make) for text in load_texts(make.data, name)]
    return train_tokenizer(texts, settings.tokenizer, settings.vocabulary)


def train_base_model(make: Maker, fresh: Path, states: Path, name: str, part: str) -> tuple[dict, list]:
    settings, tokenizer, draw = make.params.language_model, tokenizer_of(make), make.draw
    texts, validation = load_texts(make.data, part), load_texts(make.data, "language_model_validation")
    model, curve = train_language_model(
        texts, tokenizer, settings, stream(draw, name), states, f"draw {draw} {name}", make.params.device
    )
    ids, validation_ids = encode(tokenizer, texts), encode(tokenizer, validation)
    counts = KneserNey(ids, len(tokenizer), tokenizer.eos_token_id, order=5)
    bits, predicted = bits_per_byte(model, tokenizer, validation), sum(len(x) + 1 for x in validation_ids)
    five_gram = counts.bits_per_byte(validation_ids, validation)
    size = sum(len(text.encode()) for text in validation)
    facts = {
        "parameters": sum(w.numel() for w in model.parameters()),
        "vocabulary": len(tokenizer),
        "training_reviews": len(texts),
        "training_tokens": sum(map(len, ids)),
        "tokens_seen": settings.steps * settings.batch_size * settings.context,
        "validation_reviews": len(validation),
        "validation_bits_per_byte": bits,
        "five_gram_bits_per_byte": five_gram,
        "beats_five_gram": bits < five_gram,
        "validation_perplexity_per_token": 2 ** (bits * size / predicted),
        "bytes_per_token": size / (predicted - len(validation)),
    }
    save(fresh, model.cpu(), tokenizer, _card(make.params, draw, name, facts))
    return facts, curve


def reward(make: Maker) -> Path:
    """The finished folder of the sentiment classifier whose probability is the reward."""
    params = make.params
    if params.bring.reward:
        return make.part("reward", params.pick("bring"), [], note_source, params.bring.reward)
    files = ["reward", "reward_validation"] + ([] if params.bring.model else _tokenizer_texts(make))
    read = ("reward_model", "language_model.tokenizer", "language_model.vocabulary", "bring.model")
    return make.part("reward", params.pick(*read), make.files(*files), train_reward)


def train_reward(make: Maker, fresh: Path, states: Path) -> tuple[dict, list]:
    params, settings, draw = make.params, make.params.reward_model, make.draw
    texts, labels = load_labelled(make.data, "reward")
    if params.bring.model:  # its tokenizer need not know the task's words
        tokenizer = train_tokenizer(texts, "bpe", max(2048, params.language_model.vocabulary))
    else:
        tokenizer = tokenizer_of(make)
    seed, progress = stream(draw, "reward"), f"draw {draw} reward"
    model, curve = train_classifier(texts, labels, tokenizer, settings, seed, states, progress, params.device)
    validation, truth = load_labelled(make.data, "reward_validation")
    facts = {
        "parameters": sum(w.numel() for w in model.parameters()),
        "training_reviews": len(texts),
        "validation_reviews": len(validation),
        "validation_accuracy": accuracy(model, tokenizer, validation, truth, settings.max_tokens),
    }
    save(fresh, model.cpu(), tokenizer, _card(params, draw, "reward", facts))
    return facts, curve


def judge(make: Maker) -> Path:
    """The finished folder of a scorer that no policy is trained on; facts.json alone where the task has no labels."""
    lacking = make.lacks("judge", "reward_validation")
    files = [path for path in make.files("judge", "reward_validation") if path.name not in lacking]
    return make.part("judge", {}, files, fit_judge)


def fit_judge(make: Maker, fresh: Path, states: Path) -> tuple[dict, None]:
    known = TASKS[make.params.task.name].judge is not None
    if known:
        save_grammar_judge(fresh)
    elif make.lacks("judge"):
        return {"kind": "none"}, None
    else:
        train_judge(*load_labelled(make.data, "judge")).save(fresh)
    validation, truth = load_labelled(make.data, "reward_validation")
    facts = {"kind": "grammar" if known else "tfidf", "validation_reviews": len(validation)}
    return {**facts, "validation_accuracy": judge_accuracy(load_judge(fresh), validation, truth)}, None


def _card(params, draw: int, name: str, facts: dict) -> str:
    what = {
        "policy": "Language model that the policies start from.",
        "evaluator": "Language model for perplexity of generations; trained on reviews that the policy's has not seen.",
        "reward": "Sentiment classifier; its probability of 'positive' is the reward. Easy to fool, on purpose.",
    }[name]
    lines = "\n".join(f"- {k}: {round(v, 4) if isinstance(v, float) else v}" for k, v in facts.items())
    title = f"# rlnlp {name}, task {params.task.name}, draw {draw}"
    return f"{title}\n\n{what}\nTrained from scratch by rlnlp.\n\n{lines}\n"
