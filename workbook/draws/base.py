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
from workbook.draws import named
from workbook.draws.classifier import accuracy, train_classifier
from workbook.draws.maker import Maker
from workbook.draws.models import card, trained
from workbook.draws.tokenizer import train_tokenizer
from workbook.draws.training import TrainingError, save
from workbook.store.files import atomic_json, folder_hash, whole
from workbook.texts import tasks
from workbook.texts.data import load_labelled, load_texts
from workbook.texts.hub import find

PARTS = ("policy", "evaluator", "reward", "judge")
LONGEST_S = 86400.0  # that a part of several draws may take


def build(params, draw: int, data_folder: str | Path, out: str | Path, scratch: str | Path) -> dict:
    """Make the models of one draw and return what ``models.json`` in ``out`` holds.

    out/policy and out/evaluator: language models on disjoint reviews, one tokenizer; out/reward: a sentiment
    classifier; out/judge: see ``judge.load_judge``. What ``bring.model`` and ``bring.reward`` name is recorded, not
    copied or trained (``locate`` finds it). A brought model is also the evaluator, because a score per token needs one
    tokenizer, unless the task names how another one is made.
    params: workbook.runs.params.Params; data_folder: as ``data.build`` leaves it; scratch: see ``Maker``.
    Raises TrainingError, at once where the data folder lacks the texts that a model would be trained on.
    """
    torch.set_num_threads(params.threads)
    make = maker(params, draw, data_folder, scratch, "models")
    check(make)
    done = {"policy": language_model(make, "policy"), "reward": reward(make), "judge": judge(make)}
    done["evaluator"] = evaluator(make)
    facts = {"draw": draw, **{name: json.loads((done[name] / "facts.json").read_text()) for name in PARTS}}
    with whole(out) as fresh:
        for name in PARTS:
            shutil.copytree(done[name], fresh / name)
        atomic_json(fresh / "models.json", facts)
    return facts


def maker(params, draw: int, data_folder: str | Path, scratch: str | Path, kind: str, models: str | Path = "") -> Maker:
    """What the parts of a draw are made from. Draws that a task says are one share their parts: who comes second waits.

    kind: "models" or "variants".
    """
    about = tasks.task(params.task.name)
    own = about.draw(draw)
    wait_s = LONGEST_S if own == about.draw(draw + 1) else 60
    texts, trained = (Path(folder).resolve() for folder in (data_folder, models))  # a key has no draw in its paths
    return Maker(params, own, texts, Path(scratch) / f"{kind}_draw{own}", trained, wait_s)


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
    if (kind := own_evaluator(make)) and (missing := make.lacks(*named.module(kind).READS)):
        raise TrainingError(f"{make.data}: no {', '.join(missing)} to train the evaluator on")
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


def own_evaluator(make: Maker) -> str:
    """Which part of ``named`` makes the evaluator beside a brought model; "" where the task names none."""
    return tasks.task(make.params.task.name).evaluator if make.params.bring.model else ""


def evaluator(make: Maker) -> Path:
    """The finished folder of the evaluator."""
    if not (name := own_evaluator(make)):
        return language_model(make, "evaluator")
    kind, params = named.module(name), make.params
    brought = find("models", params.bring.model, params.mirror)
    values = params.pick("bring.model", *kind.SETTINGS)
    values |= {"brought": folder_hash(brought)} if isinstance(brought, Path) else {}
    return make.part("evaluator", values, make.files(*kind.READS), kind.fit, brought)


def _tokenizer_texts(make: Maker) -> list[str]:
    return [] if make.params.language_model.tokenizer == "word" else ["language_model"]


def tokenizer_of(make: Maker):
    """The draw's tokenizer: learned from the policy's training text."""
    settings = make.params.language_model
    texts = [text for name in _tokenizer_texts(make) for text in load_texts(make.data, name)]
    return train_tokenizer(texts, settings.tokenizer, settings.vocabulary)


def train_base_model(make: Maker, fresh: Path, states: Path, name: str, part: str) -> tuple[dict, list]:
    return trained(make, fresh, states, name, part, tokenizer_of(make))


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
    save(fresh, model.cpu(), tokenizer, card(params, draw, "reward", facts))
    return facts, curve


def judge(make: Maker, name: str = "judge") -> Path:
    """The finished folder of "judge" or "judge_2", as the task names them; facts.json alone where it has no labels."""
    kind = named.module(getattr(tasks.task(make.params.task.name), name))
    if make.lacks(*kind.READS):
        return make.part(name, {}, [], no_judge)
    return make.part(name, make.params.pick(*kind.SETTINGS), make.files(*kind.READS), kind.fit)


def no_judge(make: Maker, fresh: Path, states: Path) -> tuple[dict, None]:
    return {"kind": "none"}, None
