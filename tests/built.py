"""Tiny data and models of every kind, built once, and a condition run on them: what tests of runs begin with."""

from __future__ import annotations

from pathlib import Path

from workbook.draws import base, variants, worlds
from workbook.runs import checks, conditions, experiment
from workbook.runs.params import Params
from workbook.store import files
from workbook.texts import data

REPOSITORY = Path(__file__).parent.parent


SMALL = {
    "root": ".",
    "profile": "tests",
    "draws": [1, 2],
    "seeds": [1],
    "task": {
        "language_model_reviews": 60,
        "language_model_validation_reviews": 8,
        "evaluator_reviews": 60,
        "reward_reviews": 40,
        "reward_validation_reviews": 10,
        "judge_reviews": 10,
        "train_prompts": 24,
        "validation_prompts": 8,
        "test_prompts": 8,
    },
    "language_model": {"steps": 3, "width": 16},
    "reward_model": {"width": 16},
    "learner": {"updates": 12, "episodes_per_update": 8},
    "sampling": {"max_new_tokens": 6},
    "tune": {"draw": 1},
}


def write_params(folder: Path, **changes) -> Path:
    """The smoke profile's values, made smaller still."""
    from ruamel.yaml import YAML

    yaml = YAML()
    values = yaml.load((REPOSITORY / "profiles" / "smoke" / "params.yaml").read_text())
    for source in (SMALL, changes):
        for key, value in source.items():
            whole = (
                (key in WITHOUT_VARIANTS and not key.startswith("world")) or not value or not isinstance(value, dict)
            )
            values[key] = value if whole else {**values[key], **value}
    path = folder / "params.yaml"
    with open(path, "w") as file:
        yaml.dump(values, file)
    return path


WITHOUT_VARIANTS = {  # what is left where a reward is brought: no run on fewer labels
    "runs": {
        "zero_shot": {"algorithm": "ppo", "updates": 0},
        "ppo_kl_0": {"algorithm": "ppo", "kl_coef": 0.0},
        "ppo_kl_default": {"algorithm": "ppo"},
        "supervised": {"algorithm": "supervised"},
    },
    "reports": {"kl": {"conditions": ["ppo_kl_0", "ppo_kl_default"]}},
    "continued": {},
    "claims": [],
    "worlds": {},
}


def build(folder: Path) -> Params:
    params = checks.load(folder / "params.yaml")
    for draw in params.draws:
        texts, trained, further = (folder / kind / f"draw{draw}" for kind in ("data", "models", "variants"))
        data.build(params, draw, texts)
        base.build(params, draw, texts, trained, params.scratch)
        variants.build(params, draw, texts, trained, further, params.scratch)
        worlds.build(params, draw, folder / "worlds" / f"draw{draw}", params.scratch)
    for algorithm in ("ppo", "nlpo", "a2c", "reinforce", "grpo"):
        files.atomic_json(folder / "tune" / f"{algorithm}.json", {"learning_rate": 3e-3})
    return params


def given(folder: Path, condition: str, **overrides) -> conditions.Condition:
    """What the run of a condition is given."""
    return conditions.condition(checks.load(folder / "params.yaml", **overrides), condition)


def run(folder: Path, condition: str = "ppo_kl_default", seed: int = 1) -> Path:
    params = given(folder, condition)
    return experiment.run_seed(params, seed, experiment.chosen(params))


def change_data(folder):
    path = folder / "data" / "draw1" / "prompts_train.jsonl"
    path.write_text(path.read_text().replace("the", "a", 1))


def change_weights(part):
    def change(folder):
        from safetensors.torch import load_file, save_file

        path = folder / "models" / "draw1" / part / "model.safetensors"
        weights = load_file(path)
        name = max(weights, key=lambda n: weights[n].numel())
        weights[name] = weights[name] * 1.01
        save_file(weights, path, metadata={"format": "pt"})

    return change
