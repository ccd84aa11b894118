"""The reward on a share of its labels, and what supervised fine-tuning gets for the same labels."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from rlnlp import encoding, pretrained
from rlnlp.types import Prompts, stream
from workbook.draws.classifier import accuracy, new_classifier, train_classifier
from workbook.draws.maker import Maker
from workbook.draws.training import save
from workbook.texts import data, tasks
from workbook.texts.hub import DataError


def labelled_subset(n: int, fraction: float, draw: int) -> list[int]:
    """Row numbers, ascending, of the share ``fraction`` of n labelled reviews: the first of a permutation of the draw.

    So the subsets of a draw are nested, those of two draws differ, 0 gives none and 1 gives all rows in file order.
    Raises ValueError for a fraction outside [0, 1].
    """
    if not 0 <= fraction <= 1:
        raise ValueError(f"label fraction: expected 0 to 1, got {fraction}")
    order = np.random.default_rng(stream(draw, "labelled subset")).permutation(n)
    return sorted(order[: round(n * fraction)].tolist())


def positive_prompts(params, draw_folder: str | Path, draw: int, fraction: float, tokenizer) -> Prompts:
    """The positive reviews among a share of the reward's labels: prompts with references, for supervised fine-tuning.

    The share is the one of ``labelled_subset``, so that 10 % of the labels and 10 % of the positives are the same
    reviews. Each is cut as the task cuts its prompts: after ``task.prompt_tokens`` words of a generated review, after
    half of the words of a real one. prompt + reference is the review (the reference keeps the blank between them, so
    that a byte-level tokenizer sees the tokens that it would see in the review). Reviews that begin as a prompt of
    validation or test does are left out.

    draw_folder: data/draw<k>; fraction: in (0, 1]. Returns ``Prompts`` with the reviews' ids, ids [B, P] left padded
    as ``data.load_prompts``, one reference each, meta {"label": 1, "cut"}.
    Raises DataError where the folder has no labelled reviews or the share holds no positive one.
    """
    rows = data.load_rows(draw_folder, "reward")
    splits = [data.load_rows(draw_folder, f"prompts_{split}") for split in ("validation", "test")]
    held_out = {row["prompt"] for split in splits for row in split}
    task, found = tasks.task(params.task.name), []
    for number in labelled_subset(len(rows), fraction, task.draw(draw)):
        row = rows[number]
        cut = task.cut(params, row["text"])
        if row["label"] == 1 and cut["reference"] and cut["prompt"] not in held_out:
            found.append((row["id"], cut["prompt"], " " + cut["reference"]))
    if not found:
        raise DataError(f"{draw_folder}/reward.jsonl: no positive review among {fraction:.0%} of {len(rows)}")
    ids, prompts, references = map(list, zip(*found))
    return encoding.encode_prompts(
        prompts,
        tokenizer,
        params.task.prompt_tokens,
        example_ids=ids,
        references=[[text] for text in references],
        meta=[{"label": 1} for _ in ids],
    )


def reward(make: Maker, name: str, fraction: float) -> Path:
    """The finished folder of the reward classifier on a share of its labels; at 0 the classifier before its first step.

    Every size is trained for the same number of epochs, as in the paper, from the same random weights, with the
    full one's tokenizer: fewer labels are fewer steps, too. Equal steps would instead show the few labels many
    times, equal epochs show few labels few times; neither is the other's control.
    """
    tokenizer = sorted((make.models / "reward").glob("tokenizer*.json"))
    files = [*make.files("reward", "reward_validation"), *tokenizer]
    values = {**make.params.pick("reward_model"), "fraction": fraction}
    return make.part(name, values, files, train_reward, name, fraction)


def train_reward(make: Maker, fresh: Path, states: Path, name: str, fraction: float) -> tuple[dict, list | None]:
    settings, tokenizer = make.params.reward_model, pretrained.read_tokenizer(make.models / "reward")
    texts, labels = data.load_labelled(make.data, "reward")
    rows = labelled_subset(len(texts), fraction, make.draw)
    seed = stream(make.draw, "reward")  # that of the full one: the same weights before training
    if rows:
        model, curve = train_classifier(
            [texts[row] for row in rows],
            [labels[row] for row in rows],
            tokenizer,
            settings,
            seed,
            states,
            f"draw {make.draw} {name}",
            make.params.device,
        )
    else:
        model, curve = new_classifier(tokenizer, settings, seed).to(make.params.device).eval(), None
    validation, truth = data.load_labelled(make.data, "reward_validation")
    facts = {
        "fraction": fraction,
        "training_reviews": len(rows),
        "positive_reviews": sum(labels[row] for row in rows),
        "parameters": sum(w.numel() for w in model.parameters()),
        "validation_reviews": len(validation),
        "validation_accuracy": accuracy(model, tokenizer, validation, truth, settings.max_tokens),
    }
    card = (
        f"# rlnlp {name}, task {make.params.task.name}, draw {make.draw}\n\n"
        "Sentiment classifier trained from scratch on "
        f"{len(rows)} of {len(texts)} labels;\naccuracy {facts['validation_accuracy']:.4f} on {len(validation)} others."
        " Easy to fool, on purpose.\n"
    )
    save(fresh, model.cpu(), tokenizer, card)
    return facts, curve
