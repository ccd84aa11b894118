"""Runs of TRL 1.12.0's PPOTrainer on a profile's own draws, listed for ``python -m workbook.ledger.trl``.

    python -m bench.trl_runs profiles/follow_up --out trl           # after `make reproduce` of that profile
    python -m workbook.ledger.trl trl/runs.csv --score score --out mine.csv
    python -m workbook.ledger submit mine.csv --params profiles/follow_up/params.yaml

Each run starts from its draw's policy and is paid by its draw's reward; test prompts, judges and decoding are the
workbook's, so that a row of TRL's stands beside one of ours. In <condition>/seed<k>: trainer/ (the output_dir, with
checkpoint-<step>/trainer_state.json), held_out.jsonl (prompt, response, score of every test prompt) and run.json
(settings, measures, CPU seconds), after which the run is not done again.

Settings are the profile's: updates, episodes, epochs, minibatches, learning rate (constant), clip, gamma, lambda, beta,
AdamW's epsilon, value network (the policy's trunk copied, a head that starts at zero). TRL differs in this:
- no gradient is clipped (PPOTrainer does not read ``max_grad_norm``; ours clips at 0.5), and random numbers are others;
- its scoring does not know the sampler's rules. So where EOS is blocked (a fixed length) it is taken here from the
  logits of policy and reference in all passes; ours blocks it in sampling and ratio, and pays the unblocked KL;
- where a response may end, the score is paid one step behind EOS.
Conditions with settings that PPOTrainer does not have (top-k, an adaptive beta) are refused.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import torch
from torch import nn

from bench import run as bench_run
from rlnlp import metrics
from rlnlp.decoding import Decoding, human_log_perplexity
from rlnlp.models import frozen_copy
from rlnlp.scoring import evaluate_reward
from rlnlp.settings import ConfigError, nearest
from rlnlp.types import take
from workbook.ledger.claim import METRICS
from workbook.runs import checks, conditions, experiment, measure, train
from workbook.runs.draw import Draw, load_draw
from workbook.store.files import atomic_json, atomic_write
from workbook.texts import data

ONLY = {"kl_target": (0,), "entropy_coef": (0,), "top_k": (0,), "top_p": (1,), "kl_estimator": ("k1", "k3")}
ONLY |= {"value": ("separate",), "whiten_advantages": (True,)}
NAMED = ["zero_shot", "ppo_kl_default", "ppo_kl_0"]
OFF, BLOCKED = 1e6, -1e9  # a value clip that clips nothing; the logit of a token that cannot be drawn
MADE = {"score", *metrics.diversity(["a"])}  # by the converter, of held_out.jsonl


def checked(given: conditions.Condition) -> conditions.Condition:
    """The condition, if PPOTrainer can train it. Raises: ConfigError naming the setting."""
    if (run := given.run).algorithm != "ppo" or run.world:
        raise ConfigError(f"{given.condition}: expected PPO on reviews, found {run.algorithm} {run.world}".rstrip())
    config = given.config(**experiment.chosen(given))
    known = ONLY | {"min_new_tokens": (0, config.max_new_tokens), "value_learning_rate": (0, config.learning_rate)}
    wrong = [f"{k} {getattr(config, k)} (expected {v})" for k, v in known.items() if getattr(config, k) not in v]
    if wrong:
        raise ConfigError(f"{given.condition}: TRL's PPOTrainer has no such setting: {', '.join(wrong)}")
    return given


def rewarding(draw: Draw, context: int) -> nn.Module:
    """The draw's reward, dressed as the reward model that TRL asks for: its "hidden states" are scores."""
    prompts, pad = draw.prompts("train"), draw.tokenizer.pad_token_id
    rows = {tuple(ids): i for i, ids in enumerate(prompts.ids.masked_fill(~prompts.mask, pad).tolist())}

    class Backbone(nn.Module):
        def forward(self, input_ids, attention_mask, **unused):
            ids = input_ids.masked_fill(~attention_mask, pad)
            asked = take(prompts, torch.tensor([rows[tuple(row)] for row in ids[:, :context].tolist()]))
            kept = [row[real].tolist() for row, real in zip(ids[:, context:], attention_mask[:, context:])]
            texts = draw.tokenizer.batch_decode(kept, skip_special_tokens=True)
            scores = evaluate_reward(draw.training_reward, asked, texts)[0]
            return SimpleNamespace(hidden_states=[scores[:, None, None].expand(*input_ids.shape, 1)])

    reward = nn.Module()
    reward.base_model_prefix, reward.backbone, reward.score = "backbone", Backbone(), nn.Identity()
    return reward


def without_eos(model: nn.Module, eos: int) -> Callable[[], None]:
    """Take EOS from a model's logits in every pass; returns what puts it back."""

    def block(module, given, output):
        output.logits = output.logits.index_fill(-1, torch.tensor([eos]), BLOCKED)
        return output

    return model.register_forward_hook(block).remove


def trained(draw: Draw, config: Any, seed: int, folder: Path) -> None:
    """Train the draw's policy in place by PPOTrainer, whose output_dir is ``folder``."""
    from datasets import Dataset
    from transformers import AutoModelForSequenceClassification, PrinterCallback
    from trl.experimental.ppo import PPOConfig, PPOTrainer

    policy, reference, prompts = draw.policy, frozen_copy(draw.policy), draw.prompts("train")
    pad = draw.tokenizer.pad_token_id
    policy.requires_grad_(True).config.num_labels = 1
    value = AutoModelForSequenceClassification.from_config(policy.config)
    value.base_model.load_state_dict(policy.base_model.state_dict())
    nn.init.zeros_(value.score.weight)
    restore = [without_eos(m, draw.tokenizer.eos_token_id) for m in (policy, reference) if config.min_new_tokens]
    settings = PPOConfig(
        output_dir=str(folder), seed=seed, use_cpu=True, bf16=False, report_to=[], disable_tqdm=True,
        total_episodes=config.updates * config.episodes_per_update, gradient_accumulation_steps=1,
        per_device_train_batch_size=config.episodes_per_update, num_mini_batches=config.minibatches,
        num_ppo_epochs=config.epochs, response_length=config.max_new_tokens, stop_token="eos",
        temperature=config.temperature, learning_rate=config.learning_rate, lr_scheduler_type="constant",
        adam_epsilon=1e-5, weight_decay=0.0, gamma=config.gamma, lam=config.lam, cliprange=config.clip,
        cliprange_value=config.value_clip or OFF, vf_coef=2 * config.value_coef,  # TRL halves the squared error
        kl_coef=config.kl_coef, kl_estimator=config.kl_estimator, gradient_checkpointing=False,
        num_sample_generations=0, logging_steps=1, save_strategy="steps", save_steps=config.updates,
        save_only_model=True,
    )  # fmt: skip
    starts = Dataset.from_dict({"input_ids": prompts.ids.masked_fill(~prompts.mask, pad).tolist()})
    trainer = PPOTrainer(
        args=settings, processing_class=draw.tokenizer, model=policy, ref_model=reference, value_model=value,
        reward_model=rewarding(draw, prompts.ids.shape[1]), train_dataset=starts,
    )  # fmt: skip
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    for put_back in [*restore, policy.eval]:
        put_back()


def one(given: conditions.Condition, seed: int, folder: Path) -> None:
    """Train and measure a seed into ``folder``, unless that is done. Raises: ConfigError: done with other settings."""
    config, place = given.config(**experiment.chosen(given)), folder / "run.json"
    about = {"learner": config.model_dump(mode="json"), "run": given.run.model_dump(mode="json")}
    if place.is_file():
        if json.loads(place.read_text())["settings"] != about:
            raise ConfigError(f"{place}: of other settings; expected another --out, or no such file")
        return
    draw, began = load_draw(given, seed, given.run), time.process_time()
    reference = frozen_copy(draw.policy)
    if config.updates:
        trained(draw, config, experiment.numbers_of(given.run, seed) % 2**32, folder / "trainer")
    took, state = time.process_time() - began, SimpleNamespace(policy=draw.policy, reference=reference)
    plain = Decoding("plain", max_new_tokens=config.max_new_tokens, min_new_tokens=config.min_new_tokens)
    row, responses, scores = measure.evaluate_decoding(given, draw, state, seed, "test", plain)
    human = data.load_texts(draw.data, "human_reviews")
    row["human_log_perplexity"] = human_log_perplexity(draw.policy, draw.tokenizer, human)
    shown = zip(draw.prompts("test").texts, responses, scores.tolist())
    lines = [json.dumps(dict(zip(("prompt", "response", "score"), line)), ensure_ascii=False) for line in shown]
    atomic_write(folder / "held_out.jsonl", "\n".join(lines) + "\n")
    found = {"condition": given.condition, "seed": seed, "settings": about, "row": row}
    atomic_json(place, {**found, "seconds": {"training": took, "all": time.process_time() - began}})


def listed(out: Path) -> pd.DataFrame:
    """runs.csv: every finished run, with what was measured beside its texts, whose measures the converter makes."""
    rows = []
    for path in sorted(out.glob("*/seed*/run.json")):
        found, place = json.loads(path.read_text()), path.parent.relative_to(out)
        rows.append({"condition": found["condition"], "seed": found["seed"], "folder": f"{place}/trainer"})
        rows[-1] |= {"texts": f"{place}/held_out.jsonl"}
        rows[-1] |= {k: v for k, v in found["row"].items() if k in METRICS and k not in MADE}
    return pd.DataFrame(rows)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.trl_runs", description=__doc__.partition("\n")[0])
    parser.add_argument("profile", type=Path, help="folder of a profile whose models are made (make reproduce)")
    parser.add_argument("--out", type=Path, required=True, help="folder of the runs and of runs.csv")
    parser.add_argument("--conditions", nargs="+", default=NAMED, help="PPO runs (default: %(default)s)")
    parser.add_argument("--draws", nargs="+", type=int, help="default: all whose models are there")
    args = parser.parse_args(argv)
    try:
        params = checks.load(args.profile / "params.yaml")
        there = sorted(int(p.name[4:]) for p in (args.profile / "models").glob("draw*") if p.name[4:].isdigit())
        if unknown := [f"{c!r}{nearest(c, params.all_runs)}" for c in args.conditions if c not in params.all_runs]:
            raise ConfigError(f"{params.path}: no run is called {'; '.join(unknown)}")
        if not there or not {*there} >= {*(args.draws or ())}:
            raise ConfigError(f"{args.profile / 'models'}: expected draw<k> of {args.draws or 'any k'}, found {there}")
        chosen = [checked(conditions.condition(params, name)) for name in args.conditions]
        if importlib.util.find_spec("trl") is None:
            bench_run.install_peer()
            sys.path.append(str(bench_run.PRIVATE / "site"))
        for given in chosen:
            train.setup(given)
            for seed in args.draws or there:
                one(given, seed, args.out / given.condition / f"seed{seed}")
                print(f"{given.condition}, draw {seed}", flush=True)
    except (ValueError, OSError, RuntimeError) as error:
        print(error, file=sys.stderr)
        return 1
    table = listed(args.out)
    table.to_csv(args.out / "runs.csv", index=False, lineterminator="\n")
    print(f"{args.out / 'runs.csv'}: {len(table)} runs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
