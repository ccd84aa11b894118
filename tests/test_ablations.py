"""The ablation reports on synthetic results whose truth is planted: is what they say computed, and is all of it there?"""

import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
from ruamel.yaml import YAML

import rlnlp.config
from rlnlp import ablations, stats
from rlnlp.results import ReportError
from rlnlp.runs import atomic_json, write_table

ROOT = Path(__file__).resolve().parent.parent
WORDS = "the film was a slow but warm story about two brothers and i liked the music more than the plot".split()
LEFT_OUT = ("task", "language_model", "reward_model", "bring")  # what the truth below does not depend on


def truth(run, learner, decoding: str) -> dict[str, float]:
    """Mean of each metric for a run as it is configured: smooth in what the ablations vary, and different for each."""
    trained = learner.get("updates", 0) > 0 or run["algorithm"] == "best_of_n"
    beta, gamma = learner.get("kl_coef", 0.05), learner.get("gamma", 0.99)
    p = learner.get("mask_top_p", learner.get("top_p", 1.0))
    push = trained * (0.3 if run["algorithm"] in ("supervised", "filtered") else 1.0) * (0.5 + gamma / 2)
    kl = push * {0.0: 2.5, 0.02: 0.7, 0.05: 0.4, 0.2: 0.12}[beta]
    rate = learner.get("rate", 0.0)
    sharp = {"plain": 0.0, "top_p": 0.02, "own": 0.03 * (p < 1), "greedy": 0.05, "beam": 0.04, "top_k": 0.01, "temperature": 0.02}[decoding]
    data = {"reward": 1.0, "reward_50": 0.9, "reward_10": 0.6, "reward_0": 0.0}[run["reward"]] * learner.get("data_fraction", 1.0) ** 0.2
    start = 0.5 - 0.1 * (run["vocabulary"] > 0)
    score = start + 0.3 * data * (1 - math.exp(-2 * kl)) + sharp - 0.05 * (p < 0.5) - rate / 4 + 0.05 * bool(run["start"])
    return {
        "score": score, "score_response": score, "training_score": score, "judge": 0.5 + 0.3 * data * kl * math.exp(-kl) + sharp,
        "judge_2": 0.5 + 0.25 * data * kl * math.exp(-kl), "generation_log_perplexity": 1.9 + 0.9 * max(0, kl - 0.5) - 4 * sharp,
        "human_log_perplexity": 1.95 + 0.3 * kl, "kl": kl, "kl_deployed": kl, "distinct_2": 0.5 - 0.1 * kl, "msttr": 0.5, "entropy_2": 7.0,
        "length": 20.0, "repetition": 0.05, "terminated": 0.5,
    }  # fmt: skip


def of_training(run, learner, rng) -> dict[str, float | None]:
    rate = learner.get("rate", 0.0)
    if not learner.get("updates") or run["algorithm"] in ("supervised", "filtered"):
        return dict.fromkeys(("first_ratio_error", "clip_fraction", "approx_kl", "gradient_norm", "wobble", "drop", "diverged"))
    error = rate * 3 * (learner["mode"] != "same") if rate else 0.0
    return {
        "first_ratio_error": (error or 2e-6) * float(rng.lognormal(0, 0.2)), "clip_fraction": 0.06 + rate + rng.normal(0, 0.003),
        "approx_kl": 0.01 + rate / 10, "gradient_norm": 0.9 + 0.001 * (run["vocabulary"] or 700) + rng.normal(0, 0.05),
        "wobble": 0.02 + 0.01 * rng.uniform() + 0.02 * (run["vocabulary"] == 0), "drop": 0.01 + 0.01 * rng.uniform(),
        "diverged": float(rate >= 0.2 and rng.uniform() < 0.4),
    }  # fmt: skip


def curve(run, learner, score: float, rng) -> list[dict]:
    rows, rate = [], learner.get("rate", 0.0)
    source, every = learner.get("mask_source"), learner.get("sync_every", 10**6)
    for update in range(1, min(25, learner.get("updates", 0)) + 1):
        synced = source not in (None, "initial") and (update - 1) % every == 0
        value = 0.5 + (score - 0.5) * (1 - math.exp(-update / 6)) - 0.06 * (synced and update > 1) + rng.normal(0, 0.01)
        rows.append({"update": update, "objective/score": value, "objective/kl": 0.02 * update, "nlpo/synced": float(synced) if source else None,
                     "policy/first_ratio_error": (rate * 3 or 2e-6) * float(rng.lognormal(0, 0.3))})  # fmt: skip
    return rows


def make(folder: Path, profile: str = "full", seeds=(1, 2, 3, 4, 5), shift=None, leave_out=()) -> Path:
    """A profile's folder with results of every run in the pipeline's schema; returns its params.yaml.

    shift: {(condition, metric): what is added to the truth}; leave_out: conditions whose runs are not there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    yaml = YAML(typ="safe")
    raw = yaml.load((ROOT / ("" if profile == "mini" else f"profiles/{profile}") / "params.yaml").read_text())
    raw |= {"root": ".", "seeds": list(seeds), "draws": sorted({raw["tune"]["draw"], *seeds})}
    with open(folder / "params.yaml", "w") as file:
        yaml.dump(raw, file)
    shutil.copy(ROOT / "claims.yaml", folder / "claims.yaml")
    params, shift = rlnlp.config.load(folder / "params.yaml"), shift or {}
    assert params.folder == folder.resolve()
    for number, condition in enumerate(c for c in params.all_runs if c not in leave_out):
        run, learner = (m.model_dump(mode="json") for m in (params.run(condition), params.learner_config(condition, {})))
        rng, rows, curves, samples = np.random.default_rng(number), [], [], []
        facts = {"condition": condition, "algorithm": run["algorithm"], **{k: learner.get(k) for k in ("kl_coef", "kl_target", "learning_rate")}}
        for seed in seeds:
            own, training = 0.02 * math.sin(3 * seed) + rng.normal(0, 0.008), of_training(run, learner, rng)
            for split in ("test", "half"):
                for decoding in ("plain", "top_p", "own", *run["decodings"]):
                    level = {k: v + shift.get((condition, k), 0.0) for k, v in truth(run, learner, decoding).items()}
                    noisy = {k: v + (own + rng.normal(0, 0.004)) * (v != 0) for k, v in level.items()}
                    rows.append({**facts, "updates": learner.get("updates", 0), "seed": seed, "split": split, "decoding": decoding,
                                 "decoding_record": decoding, "prompts": 256, "words": 18.0, **noisy, **training})  # fmt: skip
            curves += [{"condition": condition, "seed": seed, **row} for row in curve(run, learner, truth(run, learner, "plain")["score"], rng)]
            for i in range(20):
                words = list(rng.permutation(WORDS)) * 2
                samples.append({"condition": condition, "seed": seed, "example_id": f"test-{i}", "prompt": " ".join(words),
                                "response": " ".join(words[:12]), "score": float(rng.uniform())})  # fmt: skip
        out = folder / "runs" / condition
        write_table(out / "per_seed.csv", rows)
        write_table(out / "curves.csv", curves)
        (out / "samples.jsonl").write_text("".join(json.dumps(s) + "\n" for s in samples))
        atomic_json(out / "config.json", {"condition": condition, "run": run, "learner": learner})
    for seed in seeds:
        atomic_json(folder / "models" / f"draw{seed}" / "models.json", {"policy": {"vocabulary": 710 + seed}})
        rewards = {"reward_0": 0.0, "reward_10": 0.1, "reward_50": 0.5, "reward": 1.0}
        facts = {k: {"fraction": f, "validation_accuracy": 0.5 + 0.3 * f**0.3 + 0.005 * seed} for k, f in rewards.items()}
        atomic_json(folder / "variants" / f"draw{seed}" / "variants.json", {"draw": seed, **facts, "judge_2": {"validation_accuracy": 0.8}})
    return folder / "params.yaml"


def change(path: Path, section: str, **changes) -> None:
    yaml = YAML(typ="safe")
    raw = yaml.load(path.read_text())
    raw[section] = {**raw[section], **changes}
    with open(path, "w") as file:
        yaml.dump(raw, file)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return rlnlp.config.load(make(tmp_path_factory.mktemp("full")))
