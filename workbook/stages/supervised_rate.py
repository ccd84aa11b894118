"""Supervised training of the base model of `reviews` at several rates, on the seeds and by the rule that chose PPO's.

    python -m workbook.stages.supervised_rate [FOLDER OF A PROFILE]    # profiles/reviews_pilot, if none is said

Needs no `make reproduce`: it makes texts, reward and judge as the profile does, or finds the last two. The profile's
evaluator takes an hour; in its place a 5-gram of the evaluator's reviews and tokens reads what policies write. Writes
reports/reviews_pilot/supervised_rate.csv (a row a policy and length of texts) and .md (what would be chosen).
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import mean

import numpy as np
import torch

from rlnlp import decoding, encoding, models, pretrained, rewards, rollout, scoring
from rlnlp.settings import ConfigError
from rlnlp.types import take
from workbook.draws import base, fewer_labels, judge
from workbook.draws.tokenizer import encode
from workbook.results.choosing import WORSE
from workbook.runs import conditions, profiles, train
from workbook.runs.draw import Draw
from workbook.runs.experiment import numbers_of
from workbook.runs.measure import evaluate_decoding
from workbook.runs.params import Params
from workbook.store.files import atomic_write
from workbook.store.tables import write_table
from workbook.texts import data, hub, tasks
from workbook.texts.ngram import KneserNey

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "reports" / "reviews_pilot" / "supervised_rate.csv"
RATES = (0.0, 1.25e-5, 2.5e-5, 5e-5, 1e-4, 2e-4, 5e-4)  # 0: not trained
FREE, FIXED = "may end", "as long as all others"
GUARDED = ("log_perplexity_by_5_gram", "human_log_perplexity")  # `choosing.GUARDED`, but for the reader
METRICS = ("score", "judge", *GUARDED, "distinct_2", "held_out_loss")
ABOUT = """# Supervised training at other rates than 0.0005

The base model of `reviews`, trained as there on all positive reviews of the reward's labels, but at other rates and on
the seeds of `reviews_pilot`, which no word counts; 512 test prompts, a value a seed in each cell. Texts may end, as
those of supervised runs; the pilot's untrained model writes as many tokens as are allowed, and is here both ways. A
5-gram of the evaluator's reviews and tokens reads them in the evaluator's place, and a seed's value has a standard
error of about 0.03. Perplexities are in nats a token, and so is the loss, on the beginnings of 744 positive reviews
that nothing here is trained on.

The pilot's rule: of the rates that keep both log-perplexities, as means over seeds, within 0.1 nats of the untrained
model's, the one that scores highest. [The table](supervised_rate.csv); made by
`python -m workbook.stages.supervised_rate`.
"""


def condition(params: Params, rate: float) -> conditions.Condition:
    """What supervised training is given, all else as the profile has it; at 0, to leave the model as it is."""
    entry = {"algorithm": "supervised", **({"learning_rate": rate} if rate else {"updates": 0})}
    return conditions.condition(params.model_copy(update={"runs": {**params.runs, "supervised": entry}}), "supervised")


def made(params: Params, seed: int, texts: Path) -> tuple[Draw, KneserNey]:
    """What the runs of a seed start from and are measured by; texts: the folder to write them into."""
    data.build(conditions.stage(params, "data"), seed, texts)
    make = base.maker(conditions.stage(params, "models"), seed, texts, params.scratch, "models")
    policy, tokenizer = pretrained.load(hub.find("models", params.bring.model, params.mirror))
    own, judged = params.reward_model, judge.load_judge(base.judge(make))
    said = {"include_prompt": own.include_prompt, "label": own.positive_label, "max_tokens": own.max_tokens}
    reward = rewards.classifier_reward(str(base.reward(make)), **said)
    score = scoring.scorer(reward, tokenizer)
    load = lambda split: data.load_prompts(texts, split, tokenizer, params.task.prompt_tokens)
    draw = Draw(policy, None, tokenizer, reward, reward, score, None, judged, None, texts, load)
    read = encode(tokenizer, data.load_texts(texts, "evaluator"))
    return draw, KneserNey(read, len(tokenizer), tokenizer.eos_token_id)


def held_out_loss(params: Params, draw: Draw, state) -> float:
    """Supervised training's loss on positive reviews that nothing here is trained on, cut as those that are."""
    found = [row for row in data.load_rows(draw.data, "reward_validation") if row["label"] == 1]
    cut = [tasks.task(params.task.name).cut(params, row["text"]) for row in found]
    prompts, references = [row["prompt"] for row in cut], [[" " + row["reference"]] for row in cut]
    unseen = encoding.encode_prompts(prompts, draw.tokenizer, params.task.prompt_tokens, references=references)
    batches = [take(unseen, some) for some in torch.arange(len(unseen)).split(params.evaluation.batch_size)]
    given = [rollout.from_references(batch, draw.tokenizer, state.sampling) for batch in batches]
    nats = -sum(models.score_tokens(state.policy, one).sum().item() for one in given)
    return nats / sum(int(one.mask.sum()) for one in given)


def rows(params: Params, draw: Draw, reader: KneserNey, seed: int, rate: float) -> Iterator[dict]:
    """A policy's row, decoded as its runs are, free; the untrained model's both ways."""
    given, draw = condition(params, rate), replace(draw, policy=copy.deepcopy(draw.policy))
    config, label = given.config(), f"rate {rate:g} seed {seed}"
    texts = fewer_labels.positive_prompts(given, draw.data, seed, config.data_fraction, draw.tokenizer)
    with tempfile.TemporaryDirectory() as work:
        numbers = numbers_of(given.run, seed)
        state, _ = train.ended(train.train("supervised", config, draw, numbers, Path(work), label, label, texts))
    found = {"learning_rate": rate, "seed": seed, "held_out_loss": held_out_loss(params, draw, state)}
    human = data.load_texts(draw.data, "human_reviews")
    found["human_log_perplexity"] = decoding.human_log_perplexity(state.policy, draw.tokenizer, human)
    before, T = encode(draw.tokenizer, draw.prompts("test").texts), config.max_new_tokens
    for name, least in ((FREE, 0), (FIXED, T))[: 1 if rate else 2]:
        how = decoding.Decoding(name, T, min_new_tokens=least)
        row, written, _ = evaluate_decoding(given, draw, state, seed, "test", how)
        likely = reader.token_probabilities([a + b for a, b in zip(before, encode(draw.tokenizer, written))])
        nats = -np.log(np.concatenate([p[len(one) : -1] for one, p in zip(before, likely)]))
        found |= {"texts": name, "log_perplexity_by_5_gram": float(nats.mean())}
        yield {**found, **{m: row[m] for m in ("score", "judge", "distinct_2", "length")}}


def page(table: list[dict]) -> str:
    """What the table says, as Markdown."""
    lines, own = [ABOUT, f"| rate | {' | '.join(METRICS)} |", f"|---|{'---|' * len(METRICS)}"], {}
    for row in table:
        own.setdefault((row["learning_rate"], row["texts"]), []).append(row)
    for (rate, texts), found in own.items():
        cells = [", ".join(f"{row[m]:.3f}" for row in found) for m in METRICS]
        lines.append(f"| {f'{rate:g}' if rate else f'not trained, {texts}'} | {' | '.join(cells)} |")
    means = {key: {m: mean(row[m] for row in found) for m in METRICS} for key, found in own.items()}
    trained = [key for key in means if key[0]]
    for texts in (FIXED, FREE):
        most = {m: means[0.0, texts][m] + WORSE for m in GUARDED}
        allowed = [key for key in trained if all(means[key][m] <= most[m] for m in GUARDED)]
        best = max(allowed, key=lambda key: means[key]["score"], default=["none"])
        lines.append(f"\nChosen by the rule, with limits from `not trained, {texts}`: {best[0]}.")
    lowest = min(trained, key=lambda key: means[key]["held_out_loss"])
    return "\n".join([*lines, f"\nLowest loss on held-out reviews: {lowest[0]}."]) + "\n"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m workbook.stages.supervised_rate",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    home = ROOT / "profiles" / "reviews_pilot"
    parser.add_argument("folder", nargs="?", type=Path, default=home, help="of a profile; the pilot's, if none is said")
    folder, table = parser.parse_args(argv).folder.resolve(), []
    if not (folder / "params.yaml").is_file():
        parser.error(f"{folder}: expected a profile's folder with params.yaml, which `make pipelines` writes")
    try:
        params = profiles.load(folder / "params.yaml")
        with contextlib.chdir(folder), tempfile.TemporaryDirectory() as work:  # a base model's place is relative
            train.setup(condition(params, 0.0))
            for seed in params.seeds:
                draw, reader = made(params, seed, Path(work) / f"draw{seed}")
                table += [row for rate in RATES for row in rows(params, draw, reader, seed, rate)]
    except (ConfigError, hub.DataError) as error:
        parser.error(str(error))
    write_table(OUT, table, ["learning_rate", "seed", "texts", "length", *METRICS])
    atomic_write(OUT.with_suffix(".md"), page(table))
    return 0


if __name__ == "__main__":
    sys.exit(main())
