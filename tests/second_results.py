"""Invented results of the runs that the second paper's reports list, whose truth is planted: columns as the
pipeline's."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import numpy as np
from ruamel.yaml import YAML

import workbook.runs.checks
from workbook.results import tidy
from workbook.store.files import atomic_json
from workbook.store.tables import write_table

ROOT = Path(__file__).resolve().parent.parent
NAMES = ("samplers", "dqn", "family")
PUSH = {
    "ppo": 1,
    "nlpo": 0.98,
    "masked": 1,
    "a2c": 0.8,
    "trpo": 0.9,
    "reinforce": 0.7,
    "rloo": 0.95,
    "grpo": 1.05,
    "sac": 0.2,
}
OF_TRAINING = (
    "first_ratio_error",
    "clip_fraction",
    "approx_kl",
    "gradient_norm",
    "wobble",
    "drop",
    "diverged",
    "rollout_score",
    "tokens_per_gradient_step",
)


def kept(learner: dict) -> float:
    """The planted mass that a mask keeps."""
    rule, value = learner["mask_rule"], learner["mask_value"]
    if rule in ("top_p", "typical"):
        return 0.3 + 0.7 * value
    if rule in ("epsilon", "eta", "min_p"):
        return 1 - min(0.6, 8 * value)
    return 1 - 0.4 / value**2


def truth(run: dict, learner: dict, decoding: str) -> dict[str, float | None]:
    """Mean of each metric: smooth in what the runs vary, and different for each learner."""
    algorithm, world = run["algorithm"], run["world"]
    masked, q = algorithm == "masked", algorithm == "dqn"
    mass = kept(learner) if masked and decoding == "own" else 0.95 if decoding == "own" and algorithm == "nlpo" else 1.0
    push = PUSH.get(algorithm, 0.0)
    if q:
        push = 0.8 * (learner["head"] == "logits") + 0.2 * (learner["n_step"] > 1) - 0.3 * (learner["kl_coef"] >= 0.1)
    push *= learner["updates"] > 0
    score = 0.5 + 0.28 * push * (1.5 if world else 1) + 0.05 * (decoding in ("greedy", "beam"))
    score += 0.04 * (1 - mass) - 0.02 * (learner.get("mask_rule") == "mirostat") + 0.03 * (decoding == "own") * masked
    score -= 0.25 * (world == "numbers" and run["reward"] not in ("reward", "pairs"))
    strange = 2.0 * (q and learner["head"] != "logits")
    return {
        "score": score,
        "score_response": score,
        "training_score": score,
        "judge": 0.5 + 0.2 * push,
        "judge_2": 0.5,
        "generation_log_perplexity": 1.9 + 0.3 * push + strange - 0.2 * (1 - mass),
        "human_log_perplexity": None if world else 1.95 + 0.1 * push,
        "kl": 0.4 * push,
        "kl_deployed": 0.4 * push + 0.3 * (1 - mass),
        "distinct_2": 0.5 - 0.1 * push,
        "msttr": 0.5,
        "entropy_2": 7.0,
        "length": 20.0,
        "repetition": 0.05 + 0.2 * strange,
        "terminated": 0.5,
        "kept_mass": mass,
        "kept_tokens": 700 * mass,
    }


def make(folder: Path, profile: str = "mini", seeds=(1, 2, 3, 4, 5), leave_out=(), noise: float = 1.0) -> Path:
    """Results of a profile's runs in the three reports, as the pipeline leaves them; returns the profile's params.yaml.

    leave_out: conditions whose runs are not there; noise: of the seeds (0: exactly the truth).
    """
    folder.mkdir(parents=True, exist_ok=True)
    yaml = YAML(typ="safe")
    raw = yaml.load((ROOT / ("" if profile == "mini" else f"profiles/{profile}") / "params.yaml").read_text())
    raw |= {"root": ".", "seeds": list(seeds), "draws": sorted({raw["tune"]["draw"], *seeds})}
    with open(folder / "params.yaml", "w") as file:
        yaml.dump(raw, file)
    shutil.copy(ROOT / "claims.yaml", folder / "claims.yaml")
    params = workbook.runs.checks.load(folder / "params.yaml")
    listed = dict.fromkeys(c for name in NAMES for c in params.reports[name].conditions)
    for number, condition in enumerate(c for c in listed if c not in leave_out):
        run, learner = (
            m.model_dump(mode="json") for m in (params.run(condition), params.learner_config(condition, {}))
        )
        rng, rows, curves, samples = np.random.default_rng(number), [], [], []
        facts = {
            "condition": condition,
            "algorithm": run["algorithm"],
            "updates": learner["updates"],
            **{k: learner.get(k) for k in ("kl_coef", "kl_target", "learning_rate")},
        }
        words = (
            list(map(str, range(3, 60, 4)))
            if run["world"]
            else "the film was a slow but warm story about two brothers".split()
        )
        for seed in seeds:
            own, training = noise * (0.02 * math.sin(3 * seed) + rng.normal(0, 0.004)), dict.fromkeys(OF_TRAINING)
            if learner["updates"]:
                level, off_policy = truth(run, learner, "own")["score"] + own, run["algorithm"] in ("dqn", "sac")
                training |= {
                    "gradient_norm": 1.0,
                    "wobble": 0.02 - 0.008 * bool(learner.get("mask_delay")) + noise * 0.002 * rng.uniform(),
                    "drop": 0.01 + noise * 0.01 * rng.uniform(),
                    "diverged": 0.0,
                    "rollout_score": level,
                    "tokens_per_gradient_step": 6.7 if off_policy else 320.0,
                }
                curves += [
                    {
                        "condition": condition,
                        "seed": seed,
                        "update": u,
                        "objective/score": 0.5 + (level - 0.5) * (1 - math.exp(-u / 4)),
                        "objective/kl": 0.02 * u,
                        "episodes/length": 20.0 + (seed % 2),
                        "nlpo/synced": None,
                        "dqn/gradient_steps": learner["gradient_steps"] * (u > 1)
                        if run["algorithm"] == "dqn"
                        else None,
                    }
                    for u in range(1, min(12, learner["updates"]) + 1)
                ]
            for decoding in dict.fromkeys(("plain", "top_p", "own", *run["decodings"])):
                noisy = {
                    k: v if v is None or k.startswith("kept") else v + own
                    for k, v in truth(run, learner, decoding).items()
                }
                rows.append(
                    {
                        **facts,
                        "seed": seed,
                        "split": "test",
                        "decoding": decoding,
                        "decoding_record": decoding,
                        "prompts": 256,
                        "words": 18.0,
                        **noisy,
                        **training,
                    }
                )
            prompt = "" if run["world"] else " ".join(words)
            samples += [
                {
                    "condition": condition,
                    "seed": seed,
                    "example_id": f"{run['world'] or 'test'}-{i}",
                    "prompt": prompt,
                    "response": " ".join(rng.permutation(words)[:10]),
                    "score": float(rng.uniform()),
                }
                for i in range(20 if seed == seeds[0] else 1)
            ]
        out = folder / "runs" / condition
        write_table(out / "per_seed.csv", rows)
        write_table(out / "curves.csv", curves)
        (out / "samples.jsonl").write_text("".join(json.dumps(s) + "\n" for s in samples))
        atomic_json(out / "config.json", {"condition": condition, "run": run, "learner": learner})
    for seed in seeds:
        atomic_json(folder / "models" / f"draw{seed}" / "models.json", {"policy": {"vocabulary": 710 + seed}})
    assert tidy.main([str(folder / "params.yaml")]) == 0
    return folder / "params.yaml"
