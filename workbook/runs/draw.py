"""What a draw supplies to a run, loaded: models, tokenizer, rewards, judges, prompts.

In: params, the number of a draw, a run. Out: a ``Draw``, checked before training starts.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from rlnlp import models, pretrained, vocabulary
from rlnlp.brought import check_function, load_function
from rlnlp.rewards import classifier_reward
from rlnlp.scoring import scorer
from rlnlp.types import Prompts, Rollout, to
from workbook.draws import base, named, standard, worlds
from workbook.draws.judge import load_judge
from workbook.draws.tokenizer import encode
from workbook.runs.conditions import Trained
from workbook.runs.settings import REVERSED, Run
from workbook.texts import data, tasks


@dataclass
class Draw:
    """What draw k supplies to a run: models, tokenizer, rewards, judges, prompts; a world has no judges and no
    texts."""

    policy: PreTrainedModel
    evaluator: PreTrainedModel | None  # None = the policy as it begins, which a learner keeps as its reference
    tokenizer: PreTrainedTokenizerBase
    reward: Callable  # trained on all labels: what every run is measured by
    training_reward: Callable  # what this run is trained on
    score: Callable[[Rollout], tuple]  # the same, of a rollout: what the learner calls
    alone: Callable | None  # the reward of a response without its prompt, where the reward is a classifier
    judge: Callable | None
    judge_2: Callable | None
    data: Path | None
    load: Callable[[str], Prompts]
    metrics: tuple[Callable, ...] = ()  # the task's own: (responses, prompts) -> {name: number}
    read: dict[str, Prompts] = field(default_factory=dict)  # split -> its prompts

    def prompts(self, split: str) -> Prompts:
        if split not in self.read:
            self.read[split] = to(self.load(split), self.policy.device)
        return self.read[split]


def load_draw(params: Trained, draw: int, run: Run) -> Draw:
    """Everything a run of draw ``draw`` needs, checked before training starts."""
    if run.world:
        return load_world(params, draw, run)
    texts, trained, further = folders_of(params, draw)
    policy, tokenizer = pretrained.load(begin := base_folder(params, draw, run), params.device)
    if run.vocabulary:
        vocabulary.limit_vocabulary(policy, frequent_tokens(texts, tokenizer, run.vocabulary))
    other = base.locate(trained, "evaluator", params.mirror)
    evaluator = None if other == begin and not run.vocabulary else pretrained.load(other, params.device)[0]
    reward, alone = load_reward(
        params, trained, data.load_prompts(texts, "train", tokenizer, params.task.prompt_tokens, n=2)
    )
    training_reward = reward
    if run.reward == REVERSED:
        training_reward = standard.reversed_of(reward)
    elif run.reward != "reward":
        training_reward = load_variant_reward(params, further, run.reward)
    judges = [
        load_judge(folder) if (folder / "judge.json").is_file() else None
        for folder in (trained / "judge", further / "judge_2")
    ]
    draw = Draw(
        policy,
        evaluator,
        tokenizer,
        reward,
        training_reward,
        scorer(training_reward, tokenizer),
        alone,
        *judges,
        texts,
        lambda split: data.load_prompts(texts, split, tokenizer, params.task.prompt_tokens, first(params, split)),
        tuple(named.module(name).measure for name in tasks.task(params.task.name).metrics),
    )
    for split in ("train", "validation", "test"):
        models.check_context(policy, draw.prompts(split), params.learner["max_new_tokens"])
    return draw


def first(params: Trained, split: str) -> int | None:
    """How many prompts of a split a run uses, the first ones; None = all of them."""
    return params.evaluation.test_prompts or None if split == "test" else None


def load_world(params: Trained, draw: int, run: Run) -> Draw:
    """A world's model, which is policy and evaluator, its prompts, and the rewards that are measured by and trained on.

    Every run of a world is measured by its default reward. There are no judges, and no human texts.
    """
    policy, tokenizer = pretrained.load(begin := base_folder(params, draw, run), params.device)
    other = str(world_folder(params, draw, run.world))
    evaluator = None if other == begin else pretrained.load(other, params.device)[0]
    default = next(iter(worlds.REWARDS[run.world]))
    name = default if run.reward == "reward" else run.reward
    splits = ("train", "validation", "test")
    counts = {split: first(params, split) or getattr(params.task, f"{split}_prompts") for split in splits}
    measured = worlds.score_text(run.world, default)
    return Draw(
        policy,
        evaluator,
        tokenizer,
        measured,
        measured if name == default else worlds.score_text(run.world, name),
        worlds.scorer(run.world, name, tokenizer),
        None,
        None,
        None,
        None,
        lambda split: worlds.prompts(tokenizer, counts[split], split, draw),
    )


def load_reward(params: Trained, trained: Path, examples: Prompts) -> tuple[Callable, Callable | None]:
    """The reward function a run optimises: the user's (file.py:function, or a classifier) or the draw's classifier.

    A user's function is called once on ``examples`` before anything is trained. The second is the same classifier on
    the response alone; None for a function, which is never called with a prompt it was not made for.
    """
    source = base.locate(trained, "reward", params.mirror)
    if ".py:" in source:
        file, name = source.rsplit(":", 1)
        function = load_function(f"{(params.folder / file).resolve()}:{name}")
        check_function(function, examples)
        return function, None
    settings = params.reward_model
    common = {"label": settings.positive_label, "max_tokens": settings.max_tokens, "device": params.device}
    return (
        classifier_reward(source, include_prompt=settings.include_prompt, **common),
        classifier_reward(source, include_prompt=False, **common),
    )


def load_variant_reward(params: Trained, further: Path, name: str) -> Callable:
    """A reward model trained on fewer labels, its scores on the scale of the full one (same mean and spread on the
    untrained model's responses), so that beta weighs the same."""
    settings, scales = params.reward_model, json.loads((further / "standard.json").read_text())
    fewer = classifier_reward(
        str(further / name),
        include_prompt=settings.include_prompt,
        label=settings.positive_label,
        max_tokens=settings.max_tokens,
        device=params.device,
    )
    return standard.standardised(fewer, scales[name], scales["reward"])


def frequent_tokens(texts: Path, tokenizer: PreTrainedTokenizerBase, count: int) -> list[int]:
    """EOS and the ``count`` - 1 most frequent other tokens of the base model's training text: the smaller action spaces
    lie in the larger ones. Ties in the order of the ids. Raises ``ValueError`` where the text has fewer."""
    counted = Counter(token for ids in encode(tokenizer, data.load_texts(texts, "language_model")) for token in ids)
    counted.pop(tokenizer.eos_token_id, None)
    ranked = sorted(counted, key=lambda token: (-counted[token], token))
    if len(ranked) < count - 1:
        raise ValueError(
            f"vocabulary: expected at most {len(ranked) + 1}, the different tokens of the training text, found {count}"
        )
    return [tokenizer.eos_token_id, *ranked[: count - 1]]


def base_folder(params: Trained, draw: int, run: Run) -> str:
    """Path or hub id of the model that a run starts from: the base model, its variant, or another run's policy."""
    if run.start:
        folder = params.folder / "runs" / run.start / f"policy_seed{draw}"
        if not folder.is_dir():
            raise FileNotFoundError(f"{folder}: no such folder; run the stage runs@{run.start} first (make reproduce)")
        return str(folder)
    if run.world:
        return str(world_folder(params, draw, run.world))
    _, trained, further = folders_of(params, draw)
    return base.locate(trained, "policy", params.mirror) if run.base == "policy" else str(further / run.base)


def world_folder(params: Trained, draw: int, world: str) -> Path:
    """Where a draw's model of a world is. Raises ``FileNotFoundError`` naming the stage that makes it."""
    folder = params.folder / "worlds" / f"draw{draw}" / world
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: no such folder; run the stage worlds@{draw} first (make reproduce)")
    return folder


def folders_of(params: Trained, draw: int) -> tuple[Path, Path, Path]:
    """A draw's data, models and variants. Raises ``FileNotFoundError`` naming the stage that makes what is missing."""
    found = [params.folder / kind / f"draw{draw}" for kind in ("data", "models", "variants")]
    for folder in found:
        if not folder.is_dir():
            raise FileNotFoundError(
                f"{folder}: no such folder; run the stage {folder.parent.name}@{draw} first (make reproduce)"
            )
    return tuple(found)
