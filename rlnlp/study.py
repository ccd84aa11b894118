"""The second human study of Ramamurthy et al. 2022 (section 5.2, B.4.4; claim P29), end to end, restated for film reviews.

    python -m rlnlp.study FOLDER [--seeds 5]                    simulated raters, unattended
    python -m rlnlp.study FOLDER --raters people                stops where people must rate, and goes on when called again

Policies write, raters compare, a reward is learned from the pairs, RL runs on task reward + learned preference, and raters
compare again. The paper: CommonGen, METEOR, 417 pairs, three raters each (alpha .28), a T5-11B scorer (AUC 69.5), reward =
METEOR + P(good) / (1 + missing concepts); 682 of 1,269 judgements for it against 587, p < .01, every judgement taken for
independent. Here: generated reviews, a classifier's P(positive) in METEOR's place, no concepts to miss. Two questions more:
what p is where raters and texts repeat, and whether *twice the task reward* would have done as well, as the sum of two
rewards also halves the weight of the KL penalty (the paper has no such control).

A seed is new texts, raters, scorer and RL; the base model and its task reward are those of ``lesson.start`` for all seeds.
With simulated raters this is another claim than the paper's, and every file and figure says "simulated".
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Literal

import pandas as pd
import torch
from pydantic import Field

from . import agreement, corpus, data, lesson, preference_model
from .config import RewardModel
from .evaluation import Decoding, generate
from .experiment import scorer
from .learners import ppo
from .models import exact_kl
from .preferences import (
    Choice, Pair, PreferenceError, checked, load, preferences, save, simulate_choices, simulated_raters, table,
)
from .rewards import evaluate_reward
from .rollout import decode
from .runs import atomic_json
from .seeds import stream
from .settings import Settings
from .stats import mean_interval
from .types import Prompts

TASK, BOTH, TWICE, BASE = "task", "task + preference", "2 x task", "before RL"


class Waiting(RuntimeError):
    """People have to rate before the study can go on; the message says what and how."""


class Config(Settings):
    pairs: int = Field(400, ge=8, description="pairs the reward is learned from; paper 417")
    comparisons: int = Field(200, ge=4, description="prompts of the second comparison; paper 423")
    simulated: int = Field(12, ge=2, description="simulated raters")
    each: int = Field(3, ge=2, description="raters of a pair; paper 3")
    noise: float = Field(0.2, ge=0, description="simulated raters' noise, in the judge's unit")
    repeatability: float = Field(0.5, ge=0, le=1, description="share of that noise a rater repeats")
    kind: Literal["bradley-terry", "classifier"] = Field("bradley-terry", description="scorer's loss; paper: classifier")
    body: Literal["language model", "new"] = Field("language model", description="what the scorer starts from")
    epochs: int = Field(4, ge=1, description="passes of the scorer over its pairs; with its step size chosen on other pairs")
    updates: int = Field(25, ge=1, description="of PPO, in every arm")
    episodes: int = Field(64, ge=2, description="per update")
    learning_rate: float = Field(1e-3, gt=0, description="of PPO")
    kl_coef: float = Field(0.1, ge=0, description="beta, reward units per nat; the same in every arm")
    control: bool = Field(True, description="also train and compare twice the task reward")

    def ppo(self) -> ppo.Config:
        return ppo.Config(
            updates=self.updates, episodes_per_update=self.episodes, learning_rate=self.learning_rate, kl_coef=self.kl_coef,
            max_new_tokens=lesson.RESPONSE_TOKENS,
        )

    def scorer(self) -> RewardModel:
        rate = 1e-3 if self.body == "language model" else 3e-3
        shape = {"layers": 1, "width": 32, "heads": 2, "max_tokens": 64}
        return RewardModel(**shape, epochs=self.epochs, batch_size=16, learning_rate=rate)


def new_prompts(start: lesson.Start, name: str, n: int) -> Prompts:
    """Beginnings of ``n`` reviews that nothing was trained on; another name, other reviews."""
    texts = [" ".join(r.text.split()[: lesson.PROMPT_WORDS]) for r in corpus.generate(0, f"study {name}", n)]
    return data.encode_prompts(texts, start.tokenizer, max_prompt_tokens=lesson.PROMPT_WORDS)


def write(policy, prompts: Prompts, tokenizer, name: str, seed: int) -> list[str]:
    """One response per prompt, sampled plainly. Equal name and seed: equal random numbers."""
    decoding = Decoding("plain", max_new_tokens=lesson.RESPONSE_TOKENS)
    rollouts = generate(policy, prompts, decoding, f"study {name} {seed}", batch_size=64)
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


def learn(start: lesson.Start, pairs: Sequence[Pair], choices: Sequence[Choice], config: Config, seed: int):
    """(scorer, its quality on held-out pairs, the quality of choosing the longer one) from what raters chose."""
    known, unseen = preference_model.split(preferences(pairs, choices), seed=seed)
    model = preference_model.from_language_model(start.policy, seed) if config.body == "language model" else None
    learned = preference_model.train(known, start.tokenizer, config.scorer(), seed, config.kind, model)
    return learned, preference_model.evaluate(learned, unseen), preference_model.longer(unseen)


def reinforce(start: lesson.Start, reward, config: Config, seed: int):
    """A copy of the base policy after PPO on a reward."""
    settings = config.ppo()
    state = ppo.init(copy.deepcopy(start.policy), settings, seed)
    for _ in ppo.train(state, start.prompts, scorer(reward, start.tokenizer), settings):
        pass
    return state.policy


def twice(reward):
    """2 x a reward."""

    def doubled(prompts, responses, references=None, meta=None):
        return 2 * torch.as_tensor(reward(prompts, responses, references, meta))

    return doubled


def arms(start: lesson.Start, learned, config: Config) -> dict:
    """{name: reward} of the second comparison. Start, prompts, updates and beta are the same for all of them."""
    rewards = {TASK: start.reward, BOTH: preference_model.combined(start.reward, preference_model.reward(learned))}
    return rewards | ({TWICE: twice(start.reward)} if config.control else {})


@torch.no_grad()
def measure(start: lesson.Start, policy, prompts: Prompts, learned, seed: int) -> dict[str, float]:
    """What a policy writes, by every reader there is: task reward, learned preference, the judge (and its grammar), KL to the
    base model in nats per token, words per response."""
    decoding = Decoding("plain", max_new_tokens=lesson.RESPONSE_TOKENS)
    rollouts = generate(policy, prompts, decoding, f"study second {seed}", batch_size=64)
    responses = [text for rollout in rollouts for text in decode(rollout, start.tokenizer)]
    judged = corpus.judge_parts(responses, prompts.texts)
    kl = sum(exact_kl(policy, start.policy, rollout)[0].sum().item() for rollout in rollouts)
    preferred = evaluate_reward(preference_model.reward(learned), prompts, responses)[0]
    return {
        "task": evaluate_reward(start.reward, prompts, responses)[0].mean().item(), "preference": preferred.mean().item(),
        "judge": float(judged["score"].mean()), "grammatical": float(judged["grammatical"].mean()),
        "kl": kl / sum(int(rollout.mask.sum()) for rollout in rollouts),
        "words": sum(len(text.split()) for text in responses) / len(responses),
    }  # fmt: skip


def rated(folder: Path, name: str, config: Config, seed: int, raters: str) -> tuple[list[Pair], list[Choice]]:
    """The items ``<name>.jsonl`` of a folder and their ratings: simulated, or what people have left in ``<name>_*.jsonl``.

    Raises: Waiting where people have not rated all of it; PreferenceError for files that cannot be used.
    """
    pairs, file = load(folder / f"{name}.jsonl", Pair), folder / f"{name}_simulated.jsonl"
    if raters == "simulated":
        draw = stream(seed, "raters") % 10**6
        people = simulated_raters(config.simulated, draw, config.noise, config.repeatability)
        choices = simulate_choices(pairs, people, min(config.each, config.simulated), seed)
        save(file, choices)
        return pairs, choices
    files = sorted(path for path in folder.glob(f"{name}_*.jsonl") if path != file)
    choices = [row for path in files for row in load(path, Choice)]
    counted = pd.Series([row.item for row in checked(choices, pairs)], dtype=str).value_counts()
    missing = sum(max(0, config.each - counted.get(pair.id, 0)) for pair in pairs)
    if missing:
        raise Waiting(
            f"{missing} of {config.each * len(pairs)} ratings of {folder / name}.jsonl are missing. For each rater:\n"
            f"    from rlnlp import preferences; from rlnlp.widgets import annotate\n"
            f"    items = preferences.load({str(folder / f'{name}.jsonl')!r}, preferences.Pair)\n"
            f"    annotate.pairs(items, {str(folder / f'{name}_NAME.jsonl')!r}, rater='NAME')\n"
            f"Then give this command again."
        )
    return pairs, choices


def run(start: lesson.Start, config: Config, seed: int, folder: str | Path, raters: str = "simulated") -> dict:
    """The whole study for one seed; returns its numbers, flat, and leaves items, ratings and ``result.json`` in ``folder``.

    raters: "simulated" or "people". Called again it goes on from the files; a finished one is only read.
    Raises: Waiting (people have to rate), PreferenceError for a folder that holds a study of other settings.
    """
    folder = Path(folder)
    kept, said = folder / "study.json", {"config": config.model_dump(), "seed": seed, "raters": raters}
    if kept.exists() and json.loads(kept.read_text()) != said:
        raise PreferenceError(f"{folder}: holds a study of other settings; give another folder")
    atomic_json(kept, said)
    if (folder / "result.json").exists():
        return json.loads((folder / "result.json").read_text())
    policies = {BASE: start.policy}
    if not (folder / "first.jsonl").exists():
        policies[TASK] = reinforce(start, start.reward, config, seed)
        prompts = new_prompts(start, f"first {seed}", config.pairs)
        texts = {name: write(policy, prompts, start.tokenizer, name, seed) for name, policy in policies.items()}
        save(folder / "first.jsonl", pairs_of(prompts, texts, "first", seed))
    pairs, choices = rated(folder, "first", config, seed, raters)
    row: dict = {"seed": seed, "raters": raters, "pairs": len(pairs), **_first(pairs, choices, seed)}

    learned, quality, longer = learn(start, pairs, choices, config, seed)
    preference_model.save(learned, folder / "preference_model")
    row |= {"accuracy": quality.accuracy, "auc": quality.auc, "held_out_pairs": quality.n}
    row |= {"accuracy_longer": longer.accuracy}
    for name, reward in arms(start, learned, config).items():
        if name not in policies:
            policies[name] = reinforce(start, reward, config, seed)
    prompts = new_prompts(start, f"second {seed}", config.comparisons)
    for name, policy in policies.items():
        row |= {f"{name}: {what}": value for what, value in measure(start, policy, prompts, learned, seed).items()}
    rounds = {"second": TASK} | ({"control": TWICE} if config.control else {})
    for file, other in rounds.items():
        if not (folder / f"{file}.jsonl").exists():
            texts = {name: write(policies[name], prompts, start.tokenizer, name, seed) for name in (other, BOTH)}
            save(folder / f"{file}.jsonl", pairs_of(prompts, texts, file, seed))
    for file, other in rounds.items():
        row |= _second(*rated(folder, file, config, seed, raters), other, seed)
    atomic_json(folder / "result.json", row)
    return row


def _first(pairs: list[Pair], choices: list[Choice], seed: int) -> dict:
    rows = table(choices, pairs)
    found = agreement.alpha_interval(rows, value="chosen", resamples=500, seed=seed)
    return {"judgements": len(rows), "alpha": found.estimate, "alpha_low": found.low, "alpha_high": found.high}


def _second(pairs: list[Pair], choices: list[Choice], other: str, seed: int) -> dict:
    """How often BOTH was chosen over ``other``: share, its interval and p from whole raters and items, and the naive p."""
    rows = table(choices, pairs)
    if rows.attrs["systems"][1] != BOTH:
        rows["value"] = -rows["value"]
    found = agreement.compare(rows, seed=seed)
    named = {"wins": found.wins, "losses": found.losses, "ties": found.ties, "share": found.share, "low": found.low}
    named |= {"high": found.high, "p": found.p, "p_naive": found.p_naive, "alpha": agreement.alpha(rows, value="chosen")}
    return {f"over {other}: {name}": value for name, value in named.items()}


def summary(results: Sequence[dict]) -> pd.DataFrame:
    """Mean over seeds of every estimate, with its 95 % t interval (low and high empty for one seed). P-values and interval
    ends of single seeds are left out: their means say nothing."""
    out, single = {}, ("seed", "raters", "low", "high", "alpha_low", "alpha_high", "p", "p_naive")
    for name in results[0]:
        if name.rpartition(": ")[2] not in single:
            found = mean_interval([row[name] for row in results])
            out[name] = {"mean": found.estimate, "low": found.low, "high": found.high, "seeds": found.n}
    return pd.DataFrame(out).T


def picture(results: Sequence[dict]):
    """Share of judgements for task + preference, a row per seed and comparison; the label is the figure's alt text."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    from .figures import GREY, STYLE, alt_text

    others = [other for other in (TASK, TWICE) if f"over {other}: share" in results[0]]
    who = "simulated raters" if results[0]["raters"] == "simulated" else "raters"
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(4.2 * len(others), 1.4 + 0.35 * len(results)), layout="constrained")
        for axis, other in zip(figure.subplots(1, len(others), sharex=True, squeeze=False)[0], others):
            for place, row in enumerate(results):
                share, low, high = (row[f"over {other}: {name}"] for name in ("share", "low", "high"))
                axis.plot([low, high], [place, place], color="#0072B2")
                axis.plot(share, place, "o", color="#0072B2")
            axis.axvline(0.5, color=GREY, linestyle="--")
            axis.set(yticks=range(len(results)), yticklabels=[f"seed {row['seed']}" for row in results], xlim=(0, 1))
            axis.set_ylim(-0.5, len(results) - 0.5)
            axis.set(title=f"over “{other}”", xlabel=f"share of judgements for “{BOTH}”\n({who})")
    means = "; ".join(f"over {o}: {sum(r[f'over {o}: share'] for r in results) / len(results):.2f}" for o in others)
    return alt_text(figure, f"Share of {who}' judgements for {BOTH}, mean of {len(results)} seeds, {means}.")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m rlnlp.study", description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=1, help="how many, from 0")
    parser.add_argument("--raters", choices=("simulated", "people"), default="simulated")
    parser.add_argument("--reviews", type=int, default=2000, help="lesson.start: reviews the base models learn from")
    parser.add_argument("--steps", type=int, default=200, help="lesson.start: steps of language-model training")
    for name, field in Config.model_fields.items():
        parser.add_argument(f"--{name.replace('_', '-')}", help=f"{field.description} (default {field.default})")
    args = vars(parser.parse_args(argv))
    given = {name: args[name] for name in Config.model_fields if args[name] is not None}
    try:
        config = Config.model_validate(given, strict=False)
        start, results = lesson.start(args["reviews"], args["steps"]), []
        for seed in range(args["seeds"]):
            results.append(run(start, config, seed, args["folder"] / f"seed{seed}", args["raters"]))
            print(f"seed {seed} done", file=sys.stderr, flush=True)
    except Waiting as waiting:
        print(waiting)
        return 0
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    rows = summary(results)
    rows.to_csv(args["folder"] / "summary.csv", float_format="%.6g")
    pd.DataFrame(results).to_csv(args["folder"] / "per_seed.csv", index=False)
    picture(results).savefig(args["folder"] / "shares.png")
    print(f"{args['raters']} raters\n{rows.astype(float).round(3).to_string()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
