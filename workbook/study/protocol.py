"""The second human study of Ramamurthy et al. 2022 (section 5.2, B.4.4; claim P29), end to end, restated for film
reviews.

    python -m workbook.study FOLDER [--seeds 5]                    simulated raters, unattended
    python -m workbook.study FOLDER --raters people                stops where people must rate, and goes on when called
    again

Policies write, raters compare, a reward is learned from the pairs, RL runs on task reward + learned preference, and
raters
compare again. The paper: CommonGen, METEOR, 417 pairs, three raters each (alpha .28), a T5-11B scorer (AUC 69.5),
reward = METEOR + P(good) / (1 + missing concepts); 682 of 1,269 judgements for it against 587, p < .01, every judgement
taken for
independent. Here: generated reviews, a classifier's P(positive) in METEOR's place, no concepts to miss. Two questions
more: what p is where raters and texts repeat, and whether *twice the task reward* would have done as well, as the sum
of two rewards also halves the weight of the KL penalty (the paper has no such control).

A seed is a whole draw: texts, base model, task reward, raters, scorer and RL are its own. With simulated raters this is
another claim than the paper's, and every file and figure says "simulated". ``results`` says what came out.
"""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Literal

import torch
from pydantic import Field, model_validator

from rlnlp import encoding, pretrained, rewards
from rlnlp.decoding import Decoding, generate
from rlnlp.learners import ppo
from rlnlp.models import exact_kl
from rlnlp.rollout import decode
from rlnlp.scoring import evaluate_reward, scorer
from rlnlp.settings import Settings
from rlnlp.types import Prompts, stream
from workbook.draws import small, training
from workbook.draws.classifier import train_classifier
from workbook.draws.language_model import train_language_model
from workbook.draws.shapes import LanguageModel, RewardModel
from workbook.draws.tokenizer import train_tokenizer
from workbook.store.files import atomic_json, whole
from workbook.store.locks import writer_lock
from workbook.study import preference_model
from workbook.study.collected import rated
from workbook.study.ratings import (
    Pair,
    Preference,
    PreferenceError,
    preferences,
    save,
)
from workbook.texts import corpus

TASK, BOTH, TWICE, BASE = "task", "task + preference", "2 x task", "before RL"
FOLDERS = {TASK: "task", BOTH: "both", TWICE: "twice"}  # of the policies


class Config(Settings):
    reviews: int = Field(2000, ge=1, description="generated reviews that the base model and the task reward learn from")
    steps: int = Field(600, ge=1, description="of language-model training")
    pairs: int = Field(400, ge=8, description="pairs the reward is learned from; paper 417")
    comparisons: int = Field(200, ge=4, description="prompts of the second comparison; paper 423")
    simulated: int = Field(12, ge=2, description="simulated raters")
    each: int = Field(3, ge=2, description="raters of a pair; paper 3")
    noise: float = Field(0.2, ge=0, description="simulated raters' noise, in the judge's unit")
    repeatability: float = Field(0.5, ge=0, le=1, description="share of that noise a rater repeats")
    kind: Literal["bradley-terry", "classifier"] = Field(
        "bradley-terry", description="scorer's loss; paper: classifier"
    )
    body: Literal["language model", "new"] = Field("language model", description="what the scorer starts from")
    epochs: int = Field(
        4, ge=1, description="passes of the scorer over its pairs; with its step size chosen on other pairs"
    )
    updates: int = Field(25, ge=1, description="of PPO, in every arm")
    episodes: int = Field(64, ge=2, description="per update")
    learning_rate: float = Field(1e-3, gt=0, description="of PPO")
    gamma: float = Field(
        0.95, ge=0, le=1, description="discount of PPO; below 1 it teaches policies to end their texts early"
    )
    kl_coef: float = Field(0.1, ge=0, description="beta, reward units per nat; the same in every arm")
    min_new_tokens: int = Field(
        12, ge=0, le=small.RESPONSE_TOKENS, description="no text ends before; else the discount makes stubs of them"
    )
    control: bool = Field(True, description="also train and compare twice the task reward")

    @model_validator(mode="after")
    def _enough_raters(self):
        if self.each > self.simulated:
            raise ValueError(
                f"each {self.each}: expected at most simulated ({self.simulated}), the raters that there are"
            )
        return self

    def ppo(self) -> ppo.Config:
        return ppo.Config(
            updates=self.updates,
            episodes_per_update=self.episodes,
            learning_rate=self.learning_rate,
            kl_coef=self.kl_coef,
            gamma=self.gamma,
            max_new_tokens=small.RESPONSE_TOKENS,
            min_new_tokens=self.min_new_tokens,
        )

    def decoding(self) -> Decoding:
        """Texts are written as they are in training."""
        return Decoding("plain", max_new_tokens=small.RESPONSE_TOKENS, min_new_tokens=self.min_new_tokens)

    def scorer(self) -> RewardModel:
        rate = 1e-3 if self.body == "language model" else 3e-3
        shape = {"layers": 1, "width": 32, "heads": 2, "max_tokens": 64}
        return RewardModel(**shape, epochs=self.epochs, batch_size=16, learning_rate=rate)


DEFAULTS = Config()


# ---------------------------------------------------------------------------------------------------------- the pieces
def draw(config: Config, seed: int, folder: str | Path, progress: bool = False) -> small.Start:
    """What a seed starts from, of ``small.start``'s kind: its own reviews, base model, task reward and prompts for RL.

    The models are in ``folder`` afterwards, and are read from there if they were. The same seed gives the same weights.
    """
    folder, tokenizer = Path(folder), train_tokenizer()
    written = corpus.generate(seed, "study texts", config.reviews)
    texts, labels = [r.text for r in written], [r.label for r in written]
    shape, reader = LanguageModel(**small.POLICY, steps=config.steps), RewardModel(**small.REWARD)
    bars = ("base model", "task reward") if progress else ("", "")

    def write_like():
        state = folder / "policy-unfinished"
        return train_language_model(texts, tokenizer, shape, seed, state, bars[0])[0]

    def judge_like():
        state = folder / "reward-unfinished"
        return train_classifier(texts, labels, tokenizer, reader, seed, state, bars[1])[0]

    _keep(folder / "policy", tokenizer, write_like)
    _keep(folder / "reward", tokenizer, judge_like)
    policy, tokenizer = pretrained.load(folder / "policy")
    reward = rewards.classifier_reward(folder / "reward", tokenizer, label=1)
    prompts = new_prompts(tokenizer, "prompts", small.PROMPTS, seed)
    return small.Start(tokenizer, policy, reward, prompts, texts, labels)


def _keep(folder: Path, tokenizer, train: Callable) -> None:
    """Put the model that ``train()`` returns into a folder, whole or not at all; nothing to do if it is there."""
    if not folder.is_dir():
        model = train()
        with whole(folder) as fresh:
            training.save(fresh, model, tokenizer, "A model of the preference study.\n")


def new_prompts(start, name: str, n: int, draw: int = 0) -> Prompts:
    """Beginnings of ``n`` reviews that nothing was trained on; another name, other reviews.

    start: a ``small.Start``, or a tokenizer; draw: of the corpus.
    """
    texts = [" ".join(r.text.split()[: small.PROMPT_WORDS]) for r in corpus.generate(draw, f"study {name}", n)]
    return encoding.encode_prompts(texts, getattr(start, "tokenizer", start), max_prompt_tokens=small.PROMPT_WORDS)


def write(policy, prompts: Prompts, tokenizer, name: str, seed: int, config: Config = DEFAULTS) -> list[str]:
    """One response per prompt, sampled as in training. Equal name and seed: equal random numbers."""
    rollouts = generate(policy, prompts, config.decoding(), f"study {name} {seed}", batch_size=64)
    return [text for rollout in rollouts for text in decode(rollout, tokenizer)]


def pairs_of(prompts: Prompts, written: dict[str, list[str]], name: str, seed: int) -> list[Pair]:
    """A pair per prompt of two systems' responses, in an order drawn by the seed; equal responses make no pair.

    A pair's id ends in a digest of its texts, so that ratings of other texts are never taken for its own.
    """
    (one, texts), (other, others) = written.items()
    draw, out = Random(f"rlnlp pairs {name} {seed}"), []
    for i, (prompt, a, b) in enumerate(zip(prompts.texts, texts, others)):
        sides = [(a, one), (b, other)]
        draw.shuffle(sides)
        (first, first_system), (second, second_system) = sides
        if first != second:
            content = f"{stream(prompt, first, second):016x}"[:6]
            out.append(Pair(f"{name}-{i}-{content}", prompt, first, second, first_system, second_system))
    return out


def learn(start: small.Start, known: Sequence[Preference], config: Config, seed: int):
    """A scorer trained on preferences."""
    model = preference_model.from_language_model(start.policy, seed) if config.body == "language model" else None
    return preference_model.train(known, start.tokenizer, config.scorer(), seed, config.kind, model)


def qualities(start: small.Start, learned, unseen: Sequence[Preference]) -> dict[str, dict[str, float]]:
    """How well each reader orders pairs as raters did: the learned scorer, the rule "the longer one", the task reward,
    and the
    judge: the simulated raters are it with errors, so no scorer of them can be expected to do better."""
    prompts = [p.prompt for p in unseen]

    def reads(score) -> preference_model.Quality:
        return preference_model.quality(
            *(torch.as_tensor(score(prompts, [getattr(p, side) for p in unseen])) for side in ("chosen", "rejected"))
        )

    found = {"learned": preference_model.evaluate(learned, unseen), "the longer one": preference_model.longer(unseen)}
    found |= {"task reward": reads(start.reward), "judge": reads(lambda prompts, texts: corpus.judge(texts, prompts))}
    return {name: vars(quality) for name, quality in found.items()}


def reinforce(start: small.Start, reward, config: Config, seed: int, progress: str = ""):
    """A copy of the base policy after PPO on a reward. progress: label of a bar on stderr, "" for none."""
    from tqdm import tqdm

    settings = config.ppo()
    state = ppo.init(copy.deepcopy(start.policy), settings, seed)
    steps = ppo.train(state, start.prompts, scorer(reward, start.tokenizer), settings)
    for _ in tqdm(steps, progress, settings.updates, disable=not progress, file=sys.stderr, mininterval=5):
        pass
    return state.policy


def twice(reward):
    """2 x a reward."""

    def doubled(prompts, responses, references=None, meta=None):
        return 2 * torch.as_tensor(reward(prompts, responses, references, meta))

    return doubled


def arms(start: small.Start, learned, config: Config) -> dict:
    """{name: reward} of the second comparison. Start, prompts, updates and beta are the same for all of them."""
    rewards = {TASK: start.reward, BOTH: preference_model.combined(start.reward, preference_model.reward(learned))}
    return rewards | ({TWICE: twice(start.reward)} if config.control else {})


@torch.no_grad()
def measure(
    start: small.Start, policy, prompts: Prompts, learned, seed: int, config: Config = DEFAULTS
) -> dict[str, float]:
    """What a policy writes, by every reader there is: task reward, learned preference, the judge (and its grammar), KL
    to the base model in nats per token, words per response."""
    rollouts = generate(policy, prompts, config.decoding(), f"study measure {seed}", batch_size=64)
    responses = [text for rollout in rollouts for text in decode(rollout, start.tokenizer)]
    judged = corpus.judge_parts(responses, prompts.texts)
    kl = sum(exact_kl(policy, start.policy, rollout)[0].sum().item() for rollout in rollouts)
    preferred = evaluate_reward(preference_model.reward(learned), prompts, responses)[0]
    return {
        "task": evaluate_reward(start.reward, prompts, responses)[0].mean().item(),
        "preference": preferred.mean().item(),
        "judge": float(judged["score"].mean()),
        "grammatical": float(judged["grammatical"].mean()),
        "kl": kl / sum(int(rollout.mask.sum()) for rollout in rollouts),
        "words": sum(len(text.split()) for text in responses) / len(responses),
    }


# ------------------------------------------------------------------------------------------------------------ one seed
def run(config: Config, seed: int, folder: str | Path, raters: str = "simulated", progress: bool = False) -> None:
    """The whole study for one seed, into ``folder``: items ``<round>.jsonl`` and their ratings for the rounds first,
    second and (with config.control) control; ``texts.json``, what each policy wrote to the second round's prompts; the
    models; and last ``measured.json``.

    raters: "simulated" or "people". Called again it goes on from the files; a finished one is left as it is.
    Raises: Waiting (people have to rate), PreferenceError for a folder that holds a study of other settings.
    """
    folder = Path(folder)
    with writer_lock(folder, wait_s=0):
        kept, said = folder / "study.json", {"config": config.model_dump(), "seed": seed, "raters": raters}
        if kept.exists() and json.loads(kept.read_text()) != said:
            raise PreferenceError(f"{folder}: holds a study of other settings; give another folder")
        atomic_json(kept, said)
        if not (folder / "measured.json").exists():
            _run(config, seed, folder, raters, progress)


def _run(config: Config, seed: int, folder: Path, raters: str, progress: bool) -> None:
    start = draw(config, seed, folder / "models", progress)
    policies = {BASE: start.policy}

    def trained(name: str, reward) -> None:
        home = folder / "models" / FOLDERS[name]
        _keep(home, start.tokenizer, lambda: reinforce(start, reward, config, seed, f"RL, {name}" if progress else ""))
        policies[name] = pretrained.load(home)[0]

    trained(TASK, start.reward)
    if not (folder / "first.jsonl").exists():
        prompts = new_prompts(start, "first", config.pairs, seed)
        texts = {
            name: write(policy, prompts, start.tokenizer, f"first {name}", seed, config)
            for name, policy in policies.items()
        }
        save(folder / "first.jsonl", pairs_of(prompts, texts, "first", seed))
    known, unseen = preference_model.split(preferences(*rated(folder, "first", config, seed, raters)), seed=seed)
    if not (folder / "models" / "preference").is_dir():
        scorer = learn(start, known, config, seed)
        with whole(folder / "models" / "preference") as fresh:
            preference_model.save(scorer, fresh)
    learned = preference_model.load(folder / "models" / "preference")
    for name, reward in arms(start, learned, config).items():
        trained(name, reward)

    prompts = new_prompts(start, "second", config.comparisons, seed)
    texts = {
        name: write(policy, prompts, start.tokenizer, f"second {name}", seed, config)
        for name, policy in policies.items()
    }
    atomic_json(folder / "texts.json", {"prompts": prompts.texts, "texts": texts})
    for round, other in rounds(config).items():
        if not (folder / f"{round}.jsonl").exists():
            save(
                folder / f"{round}.jsonl", pairs_of(prompts, {name: texts[name] for name in (other, BOTH)}, round, seed)
            )
    compared = {round: rated(folder, round, config, seed, raters) for round in rounds(config)}
    after = preferences(*compared["second"])
    atomic_json(
        folder / "measured.json",
        {
            "policies": {
                name: measure(start, policy, prompts, learned, seed, config) for name, policy in policies.items()
            },
            "learned from": len(known),
            "held out": qualities(start, learned, unseen),
            "second round": qualities(start, learned, after) if after else {},
        },
    )


def rounds(config: Config) -> dict[str, str]:
    """Round -> what task + preference is compared with in it."""
    return {"second": TASK} | ({"control": TWICE} if config.control else {})
