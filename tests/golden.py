"""Golden runs: digests of short trainings of every learner, to show that a restructuring changed no number.

    python -m tests.golden old.json                       train every case and write its digests: a minute and a half
    python -m tests.golden old.json new.json --compare    name what differs; ends with 1 if anything does

A processor and a library decide how sums are rounded, so digests are made with the old code and with the new on one
machine, and never committed. A case's settings are all written out here: a default that changes is no changed number.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import importlib
import importlib.util
import inspect
import json
import sys
from pathlib import Path

import torch
from torch import Tensor, nn

from rlnlp import checkpoint
from tests import tiny

HOMES = ("rlnlp.learners", "workbook.arms")  # where a learner can live, whatever has been moved
UPDATES, SHORT, VOCABULARY, SEED = 20, 6, 16, 5  # SHORT: updates of a case that is a variant of another

# Every setting of every learner; a case takes those that its learner has.
SETTINGS = {
    # sampling
    "episodes_per_update": 12,
    "max_new_tokens": 6,
    "min_new_tokens": 0,
    "temperature": 1.0,
    "top_k": 0,
    "top_p": 1.0,
    "samples_per_prompt": 3,
    "n": 3,
    # rewards and advantages
    "gamma": 0.95,
    "lam": 0.9,
    "kl_coef": 0.05,
    "kl_target": 0.0,
    "kl_gain": 0.1,
    "kl_estimator": "k1",
    "alpha": 0.1,
    "whiten_advantages": True,
    "group": 4,
    "normalise": True,
    # gradient steps
    "epochs": 2,
    "minibatches": 2,
    "gradient_steps": 2,
    "learning_rate": 3e-3,
    "value_learning_rate": 0.0,
    "critic_learning_rate": 2e-3,
    "max_grad_norm": 0.5,
    "clip": 0.2,
    "value_clip": 0.0,
    "value_coef": 0.5,
    "entropy_coef": 0.0,
    "value": "separate",
    "breaks": (),
    "data_fraction": 1.0,
    # trpo
    "kl_bound": 0.01,
    "damping": 0.1,
    "cg_steps": 4,
    "fisher_episodes": 6,
    "backtracks": 6,
    "shrink": 0.8,
    "value_epochs": 2,
    # masks and dropout
    "mask_top_p": 0.8,
    "mask_min_tokens": 2,
    "sync_every": 3,
    "mask_source": "lagged",
    "mask_rule": "top_p",
    "mask_value": 0.8,
    "mask_delay": 0,
    "rate": 0.2,
    "mode": "same",
    # replay, Q
    "batch_size": 16,
    "batch_episodes": 6,
    "buffer": 150,
    "warm_up": 80,
    "n_step": 1,
    "double": False,
    "head": "mlp",
    "scale": 0.2,
    "trunk": "trained",
    "target": "hard",
    "target_every": 5,
    "tau": 0.05,
    "explore": "greedy",
    "explore_rule": "none",
    "explore_value": 0.0,
    "max_rule": "none",
    "max_value": 0.0,
    "epsilon_start": 1.0,
    "epsilon_end": 0.1,
    "epsilon_updates": 4,
}
RULES = {
    "none": 0,
    "top_k": 5,
    "top_p": 0.8,
    "min_p": 0.1,
    "typical": 0.8,
    "epsilon": 0.02,
    "eta": 0.1,
    "mirostat": 2.5,
}

TRUNCATED = {"temperature": 0.8, "min_new_tokens": 2, "top_k": 9, "top_p": 0.9}
ADAPTIVE = {"kl_target": 0.02, "kl_gain": 0.5}
ONE_STEP = {"epochs": 1, "minibatches": 1}
ONE_ACTION = {"gamma": 1.0, "lam": 1.0}
BY_TOKEN = {"paid": "by token"}  # no setting: the score then pays each token
CASES = {  # "learner" or "learner: which path of it" -> what differs from SETTINGS
    "supervised": {},
    "ppo": {},
    "ppo: adaptive KL": ADAPTIVE,
    "ppo: shared value": {"value": "shared"},
    "ppo: k2": {"kl_estimator": "k2"},
    "ppo: k3": {"kl_estimator": "k3"},
    "ppo: value clip": {"value_clip": 0.05, "value_learning_rate": 6e-3},
    "ppo: not whitened": {"whiten_advantages": False},
    "ppo: entropy": {"entropy_coef": 0.05},
    "ppo: truncated": TRUNCATED,
    "ppo: paid by token": BY_TOKEN,
    "nlpo": {},
    "nlpo: initial": {"mask_source": "initial", "top_p": 0.9},
    "nlpo: random": {"mask_source": "random"},
    "masked": {"mask_delay": 3, "top_k": 9},
    **{f"masked: {rule}": {"mask_rule": rule, "mask_value": value} for rule, value in RULES.items()},
    "masked: delayed mirostat": {"mask_delay": 4, "mask_rule": "mirostat", "mask_value": 2.5},
    "bandit": ONE_ACTION,
    "bandit: not whitened": {**ONE_ACTION, "whiten_advantages": False, **ADAPTIVE},
    "dropout": {},
    "dropout: independent": {"mode": "independent", "breaks": ("ratio",)},
    "dropout: update only": {"mode": "update_only", "breaks": ("ratio",)},
    "mismatch": {"breaks": ("scoring",), "top_p": 0.8},
    "filtered": {},
    "filtered: truncated": TRUNCATED,
    "best_of_n": {"updates": 0},
    "best_of_n: truncated": {"updates": 0, **TRUNCATED},
    "a2c": ONE_STEP,
    "a2c: shared value, entropy": {**ONE_STEP, "value": "shared", "entropy_coef": 0.05},
    "reinforce": {},
    "reinforce: k3, truncated": {"kl_estimator": "k3", **TRUNCATED},
    "rloo": {"gamma": 1.0},
    "rloo: paid by token": {"gamma": 1.0, "group": 2, **BY_TOKEN},
    "grpo": {},
    "grpo: not normalised, truncated": {"normalise": False, **TRUNCATED},
    "grpo: paid by token": BY_TOKEN,
    "trpo": {},
    "trpo: adaptive KL, few tries": {
        **ADAPTIVE,
        "damping": 0.02,
        "backtracks": 3,
        "kl_bound": 0.02,
        "whiten_advantages": False,
    },
    "dqn": {},
    "dqn: logits, n steps, rules": {
        "head": "logits",
        "n_step": 3,
        "explore_rule": "top_p",
        "explore_value": 0.9,
        "max_rule": "mirostat",
        "max_value": 2.5,
        "kl_coef": 0.1,
        "min_new_tokens": 2,
    },
    "dqn: linear, frozen, double": {
        "head": "linear",
        "trunk": "frozen",
        "double": True,
        "target": "polyak",
        "explore": "softmax",
        "max_rule": "top_k",
        "max_value": 5,
    },
    "sac": {"head": "logits"},
    "sac: mlp, one step": {"lam": 0.0, "min_new_tokens": 2, "gamma": 1.0},
}


def learner(name: str):
    """The module of a learner, in the first of ``HOMES`` that has it."""
    for home in HOMES:
        if importlib.util.find_spec(home.partition(".")[0]) and importlib.util.find_spec(f"{home}.{name}"):
            return importlib.import_module(f"{home}.{name}")
    raise ModuleNotFoundError(f"learner {name}: in none of {', '.join(HOMES)}")


def policy(architecture: str):
    """A tiny model whose dropout modules would drop something: a learner that leaves evaluation mode shows."""
    model = tiny.MAKE[architecture](vocabulary=VOCABULARY, seed=SEED, width=16, layers=1)
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.1
    return model


def examples():
    """More prompts than an update takes, so that updates cross from one pass over them to the next; with references."""
    made = tiny.prompts(rows=20, vocabulary=VOCABULARY, seed=SEED)
    return dataclasses.replace(made, references=[[name] for name in made.example_ids])


def tokenizer(text: str, add_special_tokens: bool) -> dict[str, list[int]]:
    """A reference of 2 to 7 tokens, longer than the horizon now and then."""
    number = int(text.removeprefix("example-"))
    return {"input_ids": [2 + (7 * number + 3 * i) % (VOCABULARY - 2) for i in range(2 + number % 6)]}


def paid_at_the_end(rollout) -> tuple[Tensor, dict[str, Tensor]]:
    """What each token is worth, averaged over a response; an end is worth much, so that lengths vary and change."""
    worth = paid_by_token(rollout)[0].sum(1) / rollout.mask.sum(1)
    return worth, {"worth": worth}


def paid_by_token(rollout) -> tuple[Tensor, dict[str, Tensor]]:
    values = torch.tensor([(5 * token) % VOCABULARY / VOCABULARY for token in range(VOCABULARY)])
    values[tiny.EOS] = 0.8
    return values[rollout.responses] * rollout.mask, {}


def digest(*parts: str | Tensor) -> str:
    """SHA-256 of texts and of the bytes of tensors, in that order."""
    found = hashlib.sha256()
    for part in parts:
        found.update(part.encode() if isinstance(part, str) else part.detach().contiguous().numpy().tobytes())
    return found.hexdigest()


def collected(module, state, config, score) -> list[dict]:
    """In the place of metrics, for a learner that is never updated: what ``collect`` gathers, again and again."""
    seen = []
    for state.update in range(SHORT):
        kept = module.collect(state, examples(), score, config)
        drawn = (kept.rollout.responses, kept.rollout.behavior_logprobs, kept.rollout.logprobs, kept.scores, kept.kl)
        seen.append({str(i): tensor.tolist() for i, tensor in enumerate(drawn)})
    return seen


def run(case: str, architecture: str, **changes) -> dict[str, str]:
    """Digests of one training: of all metrics of all updates, of the last policy and of all that a checkpoint keeps.

    ``changes`` are settings on top of the case's.
    """
    module = learner(case.partition(":")[0])
    given = {**CASES[case], **changes}
    score = paid_by_token if given.pop("paid", "at the end") == "by token" else paid_at_the_end
    length = {"updates": SHORT if ":" in case else UPDATES}
    base = {name: value for name, value in (SETTINGS | length).items() if name in module.Config.model_fields}
    config = module.Config(**base | given)
    model, extra = policy(architecture), {}
    if "tokenizer" in inspect.signature(module.init).parameters:
        extra["tokenizer"] = tokenizer
    state = module.init(model, config, SEED, **extra)
    metrics = list(module.train(state, examples(), score, config)) or collected(module, state, config, score)
    tensors, numbers = checkpoint.pack(state)
    return {
        "metrics": digest(repr([sorted(seen.items()) for seen in metrics])),
        "policy": digest(*state.policy.state_dict().values()),
        "state": digest(*(part for named in sorted(tensors.items()) for part in named), repr(sorted(numbers.items()))),
    }


def differing(old: dict[str, str], new: dict[str, str]) -> list[str]:
    """Names whose digests differ, those that only one side has included."""
    return [name for name in sorted(old | new) if old.get(name) != new.get(name)]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--compare", action="store_true", help="compare two files that were written before")
    given = parser.parse_args(arguments)
    if len(given.files) != 1 + given.compare:
        parser.error("expected one file to write, or two files with --compare")
    if given.compare:
        old, new = (json.loads(file.read_text(encoding="utf-8")) for file in given.files)
        names = differing(old, new)
        print(*names, f"{len(names)} differ of {len(old | new)}", sep="\n")
        return 1 if names else 0
    torch.set_num_threads(1)
    found = {}
    for case in CASES:
        for architecture in tiny.MAKE:
            found |= {f"{case} | {architecture} | {what}": value for what, value in run(case, architecture).items()}
    given.files[0].write_text(json.dumps(found, indent=0) + "\n", encoding="utf-8")
    print(f"{len(found)} digests of {len(CASES)} cases x {len(tiny.MAKE)} architectures in {given.files[0]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
