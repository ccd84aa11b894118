"""Further models of a draw: what the data-budget and dropout ablations compare with the models every run uses.

``build`` makes the folder ``variants/draw<k>`` from ``data/draw<k>`` and ``models/draw<k>``:

    reward_<percent>/   the reward classifier trained on that share of its labels (0: untrained)
    standard.jsonl      zero-shot responses, with the score that each reward model gives to each
    standard.json       {reward model: {mean, sd}} of those scores, what ``standardised`` reads
    judge_2/            a second judge, as the task names it (``judge.load_judge`` reads it)
    policy_dropout/     the base language model pretrained with dropout
    variants.json       facts: sizes, accuracies, bits per byte, and why a part is not there
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import torch

from workbook.draws import fewer_labels
from workbook.draws.base import judge, language_model, maker
from workbook.draws.maker import Maker, reward_name
from workbook.draws.standard import standard
from workbook.store.files import atomic_json, whole


def build(
    params, draw: int, data_folder: str | Path, models_folder: str | Path, out: str | Path, scratch: str | Path
) -> dict:
    """Make the variants of one draw and return the facts that ``variants.json`` in ``out`` holds.

    params: workbook.runs.params.Params, of which ``variants`` says what is made; data_folder, models_folder: as
    ``data.build`` and ``base.build`` leave them; scratch: see ``Maker``. ``out`` is replaced whole, at the end.

    A part that cannot be made here, because ``bring`` replaced what it is a variant of or because the task has no
    labels, or that is not wanted, is left out; its facts say {"kind": "none", "why"}: no run of such a profile reads
    it. Raises FileNotFoundError if a folder is missing, TrainingError where training cannot go on.
    """
    for folder in map(Path, (data_folder, models_folder)):
        if not folder.is_dir():
            stage = f"{folder.parent.name}@{draw}"
            raise FileNotFoundError(f"{folder}: no such folder; run the stage {stage} first (make reproduce)")
    torch.set_num_threads(params.threads)
    make = maker(params, draw, data_folder, scratch, "variants", models_folder)
    done, facts = parts(make)
    facts["draw"] = draw
    with whole(out) as fresh:
        for name, folder in done.items():
            facts[name] |= json.loads((folder / "facts.json").read_text())
            if name == "standard":
                for file in ("standard.json", "standard.jsonl"):
                    shutil.copy(folder / file, fresh)
            else:
                shutil.copytree(folder, fresh / name)
        atomic_json(fresh / "variants.json", facts)
    return facts


def parts(make: Maker) -> tuple[dict[str, Path], dict[str, Any]]:
    """(finished folders by name, facts so far: why a part is missing)."""
    done, settings = {}, make.params.variants
    fractions = {reward_name(fraction): fraction for fraction in settings.label_fractions}
    names = [*fractions, "judge_2", "policy_dropout", "standard"]
    facts: dict[str, Any] = {"draw": make.draw, **{name: {} for name in names}}
    missing = _missing(make, "bring.reward", "reward", "reward_validation")
    for name, fraction in fractions.items():
        if missing:
            facts[name] = missing
        else:
            done[name] = fewer_labels.reward(make, name, fraction)
    if not missing:
        facts["reward"] = {"fraction": 1.0, **json.loads((make.models / "reward" / "facts.json").read_text())}
    if missing or not fractions:
        facts["standard"] = missing or _none("variants.label_fractions is empty: there is one reward model")
    else:
        done["standard"] = standard(make, {"reward": make.models / "reward", **done})
    if missing := _missing(make, "", "judge", "reward_validation"):
        facts["judge_2"] = missing
    else:
        done["judge_2"] = judge(make, "judge_2")
    missing = _missing(make, "bring.model", "language_model", "language_model_validation")
    if missing or not settings.dropout:
        facts["policy_dropout"] = missing or _none("variants.dropout is 0")
    else:
        facts["policy_dropout"] = {"dropout": settings.dropout}
        done["policy_dropout"] = policy_with_dropout(make)
    return done, facts


def _missing(make: Maker, brought: str, *files: str) -> dict[str, str]:
    """Why nothing can be trained on ``files``, {} if it can."""
    if brought and getattr(make.params.bring, brought.removeprefix("bring.")):
        return _none(f"{brought} is set: what this would be a variant of is not trained here")
    absent = make.lacks(*files)
    return _none(f"{make.data} has no {', '.join(absent)} (task {make.params.task.name})") if absent else {}


def _none(why: str) -> dict[str, str]:
    return {"kind": "none", "why": why}


def policy_with_dropout(make: Maker) -> Path:
    """The base model with dropout (attention, residual, embedding) in pretraining, otherwise made as ``policy`` is:
    the same step of ``base.build`` with one value changed, so the same weights, texts and batches."""
    settings = make.params.language_model.replace(dropout=make.params.variants.dropout)
    changed = make.params.replace(language_model=settings)
    return language_model(dataclasses.replace(make, params=changed), "policy")
