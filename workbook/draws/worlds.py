"""Two small worlds beside the reviews, whose rewards need no model: texts of numbers, and sentences with dates.

``build`` makes the folder ``worlds/draw<k>``: for each world that params.yaml names

    <world>/        a small language model trained on generated texts, where every run of that world starts
    worlds.json     facts: sizes, and what the untrained model scores under each reward

A prompt is five padding tokens, always the same, so that a policy writes from nothing (the synthetic task of the second
paper). The rewards are functions of the response's text (``score_text``); a learner is paid by ``scorer``, either at
the
end or token by token: then each token earns what it adds, and all of them together the same score.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from rlnlp import rewards, rollout, scoring
from rlnlp.settings import nearest
from rlnlp.types import Prompts, Rollout, generator, stream, to
from workbook.draws.language_model import train_language_model
from workbook.draws.maker import Maker
from workbook.draws.tokenizer import encode, train_tokenizer
from workbook.draws.training import save
from workbook.store.files import atomic_json, whole

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

PROMPT = 5  # padding tokens
TOKENS = 20  # of an episode: the horizon, and in numbers the length of every text
CONTEXT = 32  # positions of the models: prompt, response and some room
SPLITS = ("train", "validation", "test")
MEASURED = 256  # responses of an untrained model that its facts are about

LARGEST = 99
SORTED = 0.4  # share of the texts that are in order, upwards or downwards


def number_texts(n: int, draw: int) -> list[str]:
    """n texts of 20 different integers 0 to 99 each.

    Most are in no order. The others are sorted, half of them downwards: so the model can learn which number is larger,
    as a model of real text has, without a preference: of its neighbouring pairs about half ascend. (Of texts without
    any order it would learn a hundred unrelated tokens, and reinforcement learning would first have to find out what
    they mean.)
    """
    random, texts = Random(stream(draw, "numbers")), []
    for _ in range(n):
        numbers = random.sample(range(LARGEST + 1), TOKENS)
        if (kind := random.random()) < SORTED:
            numbers.sort(reverse=kind < SORTED / 2)
        texts.append(" ".join(map(str, numbers)))
    return texts


def number_tokenizer() -> PreTrainedTokenizerBase:
    """One token for each integer."""
    return train_tokenizer(words=[str(number) for number in range(LARGEST + 1)])


SUBJECTS = (
    "The ship",
    "The train",
    "The letter",
    "The committee",
    "The new museum",
    "Her brother",
    "The old bridge",
    "The team",
)
VERBS = ("arrived", "left", "opened", "closed", "moved", "returned", "stopped", "was seen")
PLACES = ("", " in London", " in Rome", " near the river", " at the station", " without a word")
WEEKDAYS = ("Monday", "Tuesday", "Friday", "Sunday")
YEARS, MONTHS, DAYS = range(2000, 2030), range(1, 13), range(1, 29)
DATED = 0.1  # share of the sentences that contain a date; as many name a year alone


def date_texts(n: int, draw: int) -> list[str]:
    """n texts of two short sentences each; a tenth of the sentences contain a date such as 2021-03-04."""
    random = Random(stream(draw, "dates"))
    return [" ".join(_sentence(random) for _ in range(2)) for _ in range(n)]


def _sentence(random: Random) -> str:
    year, kind = random.choice(YEARS), random.random()
    if kind < DATED:
        when = f" on {year}-{random.choice(MONTHS):02d}-{random.choice(DAYS):02d}"
    elif kind < 2 * DATED:
        when = f" in {year}"
    else:
        when = random.choice(("", f" on {random.choice(WEEKDAYS)}"))
    return f"{random.choice(SUBJECTS)} {random.choice(VERBS)}{random.choice(PLACES)}{when}."


def date_tokenizer() -> PreTrainedTokenizerBase:
    """One token for each word with the blank before it, each year, each month or day, and each mark: a date is five."""
    from tokenizers import decoders, pre_tokenizers

    split = pre_tokenizers.ByteLevel(add_prefix_space=False)  # GPT-2's: words, figures and marks apart
    texts = [*SUBJECTS, *(f" {text}" for text in (*SUBJECTS, *VERBS, *WEEKDAYS)), *PLACES, " on", " in", "-", "."]
    texts += [f" {year}" for year in YEARS] + [f"{number:02d}" for number in sorted({*MONTHS, *DAYS})]
    words = dict.fromkeys(word for text in texts for word, _ in split.pre_tokenize_str(text))
    tokenizer = train_tokenizer(words=list(words))
    tokenizer.backend_tokenizer.pre_tokenizer = split
    tokenizer.backend_tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


@dataclass(frozen=True)
class World:
    """texts: (how many, draw) -> training texts; min_new_tokens: of an episode, whose longest is ``TOKENS``."""

    texts: Callable[[int, int], list[str]]
    tokenizer: Callable[[], PreTrainedTokenizerBase]
    min_new_tokens: int


WORLDS = {"numbers": World(number_texts, number_tokenizer, TOKENS), "dates": World(date_texts, date_tokenizer, 0)}
REWARDS: dict[str, dict[str, scoring.Reward]] = {  # the first is the world's default
    "numbers": {
        "pairs": rewards.ascending_pairs,
        "pairs_end": rewards.ascending_pairs,
        "prefix": rewards.increasing_numbers,
        "prefix_token": rewards.increasing_numbers,
    },
    "dates": {"dates": rewards.dates},
}
BY_TOKEN = ("pairs", "prefix_token")  # paid token by token; the others at the end


def prompts(tokenizer: PreTrainedTokenizerBase, n: int, split: str, draw: int) -> Prompts:
    """n prompts of five padding tokens, which are real tokens here (mask True); they differ in their names alone.

    Raises ValueError for fewer than one or a split that is none of train, validation and test.
    """
    if split not in SPLITS:
        raise ValueError(f"split: expected one of {', '.join(SPLITS)}, got {split!r}{nearest(split, SPLITS)}")
    if n < 1:
        raise ValueError(f"prompts: expected at least 1, got {n}")
    ids = torch.full((n, PROMPT), tokenizer.pad_token_id)
    names = [f"{split}-{draw}-{row}" for row in range(n)]
    return Prompts(ids, torch.ones_like(ids, dtype=torch.bool), [""] * n, [[] for _ in names], names)


def score_text(world: str, reward: str) -> scoring.Reward:
    """The reward function of texts [B]; two rewards that are only paid differently have the same.

    Raises ValueError for an unknown world or reward, naming the nearest.
    """
    if world not in REWARDS:
        raise ValueError(f"world: expected one of {', '.join(REWARDS)}, got {world!r}{nearest(world, REWARDS)}")
    known = REWARDS[world]
    if reward not in known:
        raise ValueError(f"reward: expected one of {', '.join(known)}, got {reward!r}{nearest(reward, known)}")
    return known[reward]


def scorer(
    world: str, reward: str, tokenizer: PreTrainedTokenizerBase
) -> Callable[[Rollout], tuple[Tensor, dict[str, Tensor]]]:
    """The ``score`` a learner calls: rollout -> (scores, {}), scores [B, T] if the reward is paid token by token, else
    [B].

    Raises ValueError as ``score_text``, at once.
    """
    of_text = score_text(world, reward)
    of_tokens = rewards.increments(of_text, tokenizer)

    def score(episodes: Rollout):
        if reward in BY_TOKEN:
            return scoring.evaluate_token_reward(of_tokens, episodes.prompts, episodes.responses, episodes.mask), {}
        scores, parts = scoring.evaluate_reward(of_text, episodes.prompts, rollout.decode(episodes, tokenizer))
        return scores.to(episodes.responses.device), parts

    return score


def build(params, draw: int, out: str | Path, scratch: str | Path) -> dict:
    """Make the worlds of one draw and return the facts that ``worlds.json`` in ``out`` holds.

    params: workbook.runs.params.Params, whose ``worlds`` names the worlds and how much their models are trained;
    scratch: where states and finished models live, keyed by all that decides them, so that a kill or a change costs
    only what depends on it. ``out`` is replaced whole, at the end; without any world it holds worlds.json alone.
    Raises ValueError for a world that is not known, TrainingError where training cannot go on.
    """
    for world in params.worlds:
        if world not in WORLDS:
            raise ValueError(f"worlds: expected some of {', '.join(WORLDS)}, got {world!r}{nearest(world, WORLDS)}")
    torch.set_num_threads(params.threads)
    make = Maker(params, draw, Path(), Path(scratch) / f"worlds_draw{draw}")
    done = {world: model(make, world) for world in params.worlds}
    facts = {"draw": draw, **{world: json.loads((folder / "facts.json").read_text()) for world, folder in done.items()}}
    with whole(out) as fresh:
        for world, folder in done.items():
            shutil.copytree(folder, fresh / world)
        atomic_json(fresh / "worlds.json", facts)
    return facts


# of the settings of language models, those that a world's model has too: its length and its tokens are the world's
SHAPE = (
    "layers",
    "width",
    "heads",
    "batch_size",
    "learning_rate",
    "warmup_fraction",
    "weight_decay",
    "max_grad_norm",
    "dropout",
)


def model(make: Maker, world: str) -> Path:
    """The finished folder of a world's model, from scratch if it is there already."""
    names = [f"language_model.{name}" for name in SHAPE] + [f"worlds.{world}.{name}" for name in ("texts", "steps")]
    return make.part(world, make.params.pick(*names), [], train_model, world)


def train_model(make: Maker, fresh: Path, states: Path, world: str) -> tuple[dict, Sequence]:
    """Train on padding and text, so that a number or a sentence follows padding however much of it there is."""
    params, draw = make.params, make.draw
    own, tokenizer = params.worlds[world], WORLDS[world].tokenizer()
    settings = params.language_model.replace(steps=own.steps, context=CONTEXT, tokenizer="word")
    texts = WORLDS[world].texts(own.texts, draw)
    model, curve = train_language_model(
        [tokenizer.pad_token + text for text in texts],
        tokenizer,
        settings,
        stream(draw, world),
        states,
        f"draw {draw} {world}",
        params.device,
    )
    facts = {
        "parameters": sum(w.numel() for w in model.parameters()),
        "vocabulary": len(tokenizer),
        "training_texts": len(texts),
        "training_tokens": sum(map(len, encode(tokenizer, texts))),
        "tokens_seen": settings.steps * settings.batch_size * settings.context,
        "training_scores": _scores(world, texts),
        "responses": MEASURED,
        "response_scores": _scores(world, responses(model, tokenizer, world, MEASURED, draw)),
    }
    save(fresh, model.cpu(), tokenizer, _card(world, draw, facts))
    return facts, curve


def responses(model, tokenizer: PreTrainedTokenizerBase, world: str, n: int, draw: int) -> list[str]:
    """n responses of a world's model, sampled from all tokens at temperature 1."""
    how = rollout.sampling_from(model, TOKENS, min_new_tokens=WORLDS[world].min_new_tokens)
    start = to(prompts(tokenizer, n, "test", draw), model.device)
    return rollout.decode(rollout.sample(model, start, how, generator(draw, world, "responses")), tokenizer)


def _scores(world: str, texts: Sequence[str]) -> dict[str, float]:
    """Mean of each reward function of the world over the texts, by the function's name."""
    functions = {scoring.name_of(function): function for function in REWARDS[world].values()}
    return {name: sum(function([""] * len(texts), texts)) / len(texts) for name, function in functions.items()}


def _card(world: str, draw: int, facts: Mapping) -> str:
    lines = "\n".join(f"- {name}: {value}" for name, value in facts.items())
    return (
        f"# rlnlp world {world}, draw {draw}\n\nLanguage model that the runs in the world of {world} start from, "
        f"trained from "
        f"scratch by rlnlp on generated texts.\nGive it {PROMPT} padding tokens as a prompt.\n\n{lines}\n"
    )
