"""Further models of a draw: what the data-budget and dropout ablations compare with the models every run uses.

``build`` makes the folder ``variants/draw<k>`` from ``data/draw<k>`` and ``models/draw<k>``:

    reward_<percent>/   the reward classifier trained on that share of its labels (0: untrained)
    standard.jsonl      zero-shot responses, with the score that each reward model gives to each
    standard.json       {reward model: {mean, sd}} of those scores, what ``standardised`` reads
    judge_2/            a second judge, on parts of words (``classify.load_judge`` reads it)
    policy_dropout/     the base language model pretrained with dropout
    variants.json       facts: sizes, accuracies, bits per byte, and why a part is not there

``positive_prompts`` are the examples that supervised fine-tuning gets for the same labels.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from . import classify, data, models, pretrain, rewards, rollout, tasks
from .config import reward_name
from .runs import (
    atomic_json,
    atomic_write,
    fingerprint_inputs,
    folder_hash,
    keyed_folder,
    package_files,
    publish,
    writer_lock,
)
from .seeds import generator, stream
from .types import Prompts, take, to

FLAT = 1e-6  # a standard deviation below this is rounding: single precision gives probabilities to about 1e-7
BATCH = 64  # responses sampled at once; also decides which random numbers a row gets
# code that decides no number of a part: what only hands over rows (hashed themselves), scoring, sampling, other kinds
CLASSIFIERS_SKIP = (
    "rlnlp.config", "rlnlp.data", "rlnlp.tasks", "rlnlp.ngram", "rlnlp.rewards", "rlnlp.rollout", "rlnlp.models",
)
TEXTS_SKIP = ("rlnlp.config", "rlnlp.ngram", "rlnlp.classify")


# shares of the labels ------------------------------------------------------------------------------------------------


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
    """The positive reviews among a share of the reward's labels, as prompts with references, for supervised fine-tuning.

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
    found = []
    for number in labelled_subset(len(rows), fraction, draw):
        row = rows[number]
        cut = _cut(params, row["text"])
        if row["label"] == 1 and cut["reference"] and cut["prompt"] not in held_out:
            found.append((row["id"], cut["prompt"], " " + cut["reference"]))
    if not found:
        raise data.DataError(f"{draw_folder}/reward.jsonl: no positive review among {fraction:.0%} of {len(rows)}")
    ids, prompts, references = map(list, zip(*found))
    return data.encode_prompts(
        prompts, tokenizer, params.task.prompt_tokens, example_ids=ids, references=[[text] for text in references],
        meta=[{"label": 1} for _ in ids],
    )


def _cut(params, text: str) -> dict[str, str]:
    words = params.task.prompt_tokens if params.task.name == "generated_reviews" else max(1, len(text.split()) // 2)
    return tasks._cut(text, words)


# one scale for all rewards -------------------------------------------------------------------------------------------


def standardised(reward: Callable, of: Mapping[str, float], to: Mapping[str, float]) -> Callable:
    """The reward s' = (s - of.mean) / of.sd * to.sd + to.mean, called as ``reward`` is; named parts stay as they are.

    The scores of a reward model of few labels spread less, so that one beta would mean more KL penalty for it than for
    another; on one scale beta means the same for all. of, to: mean and sd of this reward and of the one that beta was
    chosen for, on the same texts (entries of ``standard.json``). ``of`` equal to ``to`` changes nothing but rounding.
    Raises RewardError naming the reward if either is constant (sd below 1e-6): there is no scale to put it on.
    """
    name = rewards.name_of(reward)
    for scale, what in ((of, "it is"), (to, "the reward that it is put on the scale of is")):
        if not scale["sd"] > FLAT:
            raise rewards.RewardError(
                f"reward {name}: {what} constant on the standard texts (sd {scale['sd']:.1e}): it cannot be standardised"
            )
    factor = to["sd"] / of["sd"]

    def scaled(prompts, responses, references=None, meta=None):
        out = reward(prompts, responses, references, meta)
        parts = out[1:] if isinstance(out, tuple) else ()
        scores = torch.as_tensor(out[0] if parts else out, dtype=torch.float64)
        scores = ((scores - of["mean"]) * factor + to["mean"]).float()
        return (scores, *parts) if parts else scores

    scaled.__name__ = f"standardised({name})"
    return scaled


# the models of a draw ------------------------------------------------------------------------------------------------


def build(
    params, draw: int, data_folder: str | Path, models_folder: str | Path, out: str | Path, scratch: str | Path
) -> dict:
    """Make the variants of one draw and return the facts that ``variants.json`` in ``out`` holds.

    params: rlnlp.config.Params, of which ``variants`` says what is made; data_folder, models_folder: as
    ``data.build`` and ``pretrain.build`` leave them; scratch: where states and finished parts live, keyed by all that
    decides them, so that a kill or a change costs only what depends on it. ``out`` is replaced whole, at the end.

    A part that cannot be made here, because ``bring`` replaced what it is a variant of or because the task has no
    labels, or that is not wanted, is left out; its facts say {"kind": "none", "why"}: no run of such a profile reads it.
    Raises FileNotFoundError if a folder is missing, TrainingError where training cannot go on.
    """
    for folder in map(Path, (data_folder, models_folder)):
        if not folder.is_dir():
            stage = f"{folder.parent.name}@{draw}"
            raise FileNotFoundError(f"{folder}: no such folder; run the stage {stage} first (make reproduce)")
    torch.set_num_threads(params.threads)
    work = Path(scratch) / f"variants_draw{draw}"
    make = _Draw(params, draw, Path(data_folder), Path(models_folder), work)
    done, facts = make.parts()
    whole = work / "whole"
    shutil.rmtree(whole, ignore_errors=True)
    whole.mkdir(parents=True)
    for name, folder in done.items():
        facts[name] |= json.loads((folder / "facts.json").read_text())
        if name == "standard":
            for file in ("standard.json", "standard.jsonl"):
                shutil.copy(folder / file, whole)
        else:
            shutil.copytree(folder, whole / name)
    atomic_json(whole / "variants.json", facts)
    publish(whole, out)
    shutil.rmtree(whole)
    return facts


class _Draw:
    """The parts of ``build``; each method returns the finished folder of a part, from scratch if it is there already."""

    def __init__(self, params, draw: int, data_folder: Path, models_folder: Path, work: Path):
        self.params, self.draw, self.data, self.models, self.work = params, draw, data_folder, models_folder, work

    def parts(self) -> tuple[dict[str, Path], dict[str, Any]]:
        """(finished folders by name, facts so far: why a part is missing)."""
        done, settings = {}, self.params.variants
        fractions = {reward_name(fraction): fraction for fraction in settings.label_fractions}
        names = [*fractions, "judge_2", "policy_dropout", "standard"]
        facts: dict[str, Any] = {"draw": self.draw, **{name: {} for name in names}}
        missing = self._missing("bring.reward", "reward", "reward_validation")
        for name, fraction in fractions.items():
            if missing:
                facts[name] = missing
            else:
                done[name] = self.reward(name, fraction)
        if not missing:
            facts["reward"] = {"fraction": 1.0, **json.loads((self.models / "reward" / "facts.json").read_text())}
        if missing or not fractions:
            facts["standard"] = missing or _none("variants.label_fractions is empty: there is one reward model")
        else:
            done["standard"] = self.standard({"reward": self.models / "reward", **done})
        if missing := self._missing("", "judge", "reward_validation"):
            facts["judge_2"] = missing
        else:
            done["judge_2"] = self.judge()
        missing = self._missing("bring.model", "language_model", "language_model_validation")
        if missing or not settings.dropout:
            facts["policy_dropout"] = missing or _none("variants.dropout is 0")
        else:
            facts["policy_dropout"] = {"dropout": settings.dropout}
            done["policy_dropout"] = self.policy()
        return done, facts

    def _missing(self, brought: str, *files: str) -> dict[str, str]:
        """Why nothing can be trained on ``files``, {} if it can."""
        if brought and getattr(self.params.bring, brought.removeprefix("bring.")):
            return _none(f"{brought} is set: what this would be a variant of is not trained here")
        absent = [f"{file}.jsonl" for file in files if not (self.data / f"{file}.jsonl").is_file()]
        return _none(f"{self.data} has no {', '.join(absent)} (task {self.params.task.name})") if absent else {}

    def _part(
        self, name: str, values: Mapping[str, Any], files: Sequence[Path], without: Sequence[str], train: Callable
    ) -> Path:
        """As ``pretrain.build`` keeps its parts. train: (fresh folder, folder for states) -> (facts, loss curve or None)."""
        values = {"part": name, "draw": self.draw, **self.params.pick("task.name", "device", "threads"), **values}
        inputs = fingerprint_inputs(values, [*package_files(__name__, without=without), *files])
        folder = keyed_folder(self.work / name, inputs)
        with writer_lock(folder):
            if not (folder / "finished").is_dir():
                fresh = folder / "fresh"
                shutil.rmtree(fresh, ignore_errors=True)
                fresh.mkdir()
                facts, curve = train(fresh, folder)
                atomic_json(fresh / "facts.json", facts)
                if curve:
                    atomic_json(fresh / "loss.json", curve)
                publish(fresh, folder / "finished")
                shutil.rmtree(fresh)
                for left in folder.glob("state-*.safetensors"):
                    left.unlink()
        return folder / "finished"

    def _files(self, *names: str) -> list[Path]:
        return [self.data / f"{name}.jsonl" for name in names]

    def reward(self, name: str, fraction: float) -> Path:
        """The reward classifier on a share of its labels; at 0 the classifier before its first step.

        Every size is trained for the same number of epochs, as in the paper, from the same random weights, with the
        full one's tokenizer: fewer labels are fewer steps, too. Equal steps would instead show the few labels many
        times, equal epochs show few labels few times; neither is the other's control.
        """
        tokenizer = sorted((self.models / "reward").glob("tokenizer*.json"))
        files = [*self._files("reward", "reward_validation"), *tokenizer]
        values = {**self.params.pick("reward_model"), "fraction": fraction}
        return self._part(name, values, files, CLASSIFIERS_SKIP, lambda fresh, folder: (
            self._train_reward(name, fraction, fresh, folder)
        ))

    def _train_reward(self, name: str, fraction: float, fresh: Path, folder: Path):
        from transformers import AutoTokenizer

        settings, tokenizer = self.params.reward_model, AutoTokenizer.from_pretrained(self.models / "reward")
        texts, labels = data.load_labelled(self.data, "reward")
        rows = labelled_subset(len(texts), fraction, self.draw)
        seed = stream(self.draw, "reward")  # that of the full one: the same weights before training
        if rows:
            model, curve = classify.train_classifier(
                [texts[row] for row in rows], [labels[row] for row in rows], tokenizer, settings, seed, folder,
                f"draw {self.draw} {name}", self.params.device,
            )
        else:
            model, curve = classify.new_classifier(tokenizer, settings, seed).to(self.params.device).eval(), None
        validation, truth = data.load_labelled(self.data, "reward_validation")
        facts = {
            "fraction": fraction,
            "training_reviews": len(rows),
            "positive_reviews": sum(labels[row] for row in rows),
            "parameters": sum(w.numel() for w in model.parameters()),
            "validation_reviews": len(validation),
            "validation_accuracy": classify.accuracy(model, tokenizer, validation, truth, settings.max_tokens),
        }
        card = (
            f"# rlnlp {name}, task {self.params.task.name}, draw {self.draw}\n\n"
            "Sentiment classifier trained from scratch on "
            f"{len(rows)} of {len(texts)} labels;\naccuracy {facts['validation_accuracy']:.4f} on {len(validation)} others. "
            "Easy to fool, on purpose.\n"
        )
        pretrain.save(fresh, model.cpu(), tokenizer, card)
        return facts, curve

    def standard(self, folders: Mapping[str, Path]) -> Path:
        """Scores of every reward model in ``folders`` on the same responses of the base model: standard.json, .jsonl."""
        source = Path(pretrain.locate(self.models, "policy", self.params.mirror))
        values = {
            **self.params.pick("task.prompt_tokens", "sampling.max_new_tokens", "sampling.min_new_tokens", "bring.model"),
            **self.params.pick("reward_model.positive_label", "reward_model.include_prompt", "reward_model.max_tokens"),
            "prompts": self.params.variants.standard_prompts,
            "policy": folder_hash(source) if source.is_dir() else str(source),
            "rewards": {name: folder_hash(folder) for name, folder in folders.items()},
        }
        return self._part("standard", values, self._files("prompts_train"), TEXTS_SKIP, lambda fresh, _: (
            self._score(source, folders, fresh), None,
        ))

    def _score(self, source: Path, folders: Mapping[str, Path], fresh: Path) -> dict:
        prompts, responses = self._zero_shot(source)
        settings, scores = self.params.reward_model, {}
        for name, folder in folders.items():
            function = rewards.classifier_reward(
                folder, label=settings.positive_label, include_prompt=settings.include_prompt,
                max_tokens=settings.max_tokens, device=self.params.device,
            )
            scores[name] = rewards.evaluate_reward(function, prompts, responses)[0].double()
        standard = {name: {"mean": s.mean().item(), "sd": s.std(correction=0).item()} for name, s in scores.items()}
        atomic_json(fresh / "standard.json", standard)
        lines = [
            {"example_id": i, "prompt": p, "response": r, "scores": {name: s[row].item() for name, s in scores.items()}}
            for row, (i, p, r) in enumerate(zip(prompts.example_ids, prompts.texts, responses))
        ]
        atomic_write(fresh / "standard.jsonl", "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
        return {"texts": len(lines), "scores": standard}

    def _zero_shot(self, source: Path) -> tuple[Prompts, list[str]]:
        """The first training prompts and what the base model writes after them: all tokens, temperature 1."""
        policy, tokenizer = models.load(source, self.params.device)
        settings, sampling = self.params.variants, self.params.sampling
        length = self.params.task.prompt_tokens
        prompts = data.load_prompts(self.data, "train", tokenizer, length, settings.standard_prompts)
        how = rollout.sampling_from(policy, sampling.max_new_tokens, min_new_tokens=sampling.min_new_tokens)
        responses = []
        for rows in torch.arange(len(prompts)).split(BATCH):
            batch = to(take(prompts, rows), policy.device)
            sampled = rollout.sample(policy, batch, how, generator(self.draw, "standard texts", int(rows[0])))
            responses += rollout.decode(sampled, tokenizer)
        return prompts, responses

    def judge(self) -> Path:
        """The second judge: which parts of words (3 to 5 characters) are in a text, weighted by a logistic regression.

        It is trained on judge.jsonl, which no reward model has seen. For generated reviews the first judge is the
        grammar itself, so that the two share nothing; for real ones the first is linear too, on words and pairs of
        them, and trained on the same reviews: another view of the same labels.
        """
        files = self._files("judge", "reward_validation")
        return self._part("judge_2", {}, files, CLASSIFIERS_SKIP, lambda fresh, _: (self._train_judge(fresh), None))

    def _train_judge(self, fresh: Path) -> dict:
        texts, labels = data.load_labelled(self.data, "judge")
        classify.train_judge(texts, labels, kind="characters").save(fresh)
        validation, truth = data.load_labelled(self.data, "reward_validation")
        correct = classify.judge_accuracy(classify.load_judge(fresh), validation, truth)
        return {
            "kind": "characters", "training_reviews": len(texts), "validation_reviews": len(validation),
            "validation_accuracy": correct,
        }

    def policy(self) -> Path:
        """The base model with dropout (attention, residual, embedding) in pretraining, otherwise made as ``policy`` is:
        the same step of ``pretrain.build`` with one value changed, so the same weights, texts and batches."""
        changed = self.params.replace(
            language_model=self.params.language_model.replace(dropout=self.params.variants.dropout)
        )
        changed._path = self.params._path
        return pretrain._Draw(changed, self.draw, self.data, self.work).language_model("policy")


def _none(why: str) -> dict[str, str]:
    return {"kind": "none", "why": why}
