"""Results whose truth is planted, and claims about them, for the tests of the ledger."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from ruamel.yaml import YAML

from workbook.ledger import checks
from workbook.ledger.claim import Claim, ClaimError
from workbook.results.results import Results

ROOT = Path(__file__).parent.parent
SHIPPED = checks.load(ROOT / "claims.yaml")
FIVE = (1, 2, 3, 4, 5)
PROSE = "the sentence is long enough"
NOISE = np.array([0.4, -0.3, 0.1, 0.5, -0.7])  # per seed, mean 0


def listed(condition: str) -> dict:
    """Its entry in a profile: x_2 is x again with other random numbers."""
    name, _, number = condition.rpartition("_")
    again = number in ("2", "3", "4")
    return {"algorithm": "ppo", **({"of": name, "replicate": int(number)} if again else {"of": condition})}


def results(values, seeds=FIVE, profile="mini", runs=None, missing=(), model="", half=None) -> Results:
    """Results of {condition: {metric: number, per-seed list, or {decoding: ...}}}; half: the same at half the
    budget."""
    rows = []
    for split, conditions in (("test", values), ("half", half if half is not None else values)):
        for condition, metrics in conditions.items():
            decodings = {d for v in metrics.values() if isinstance(v, dict) for d in v} | {"plain"}
            for decoding in sorted(decodings):
                for i, seed in enumerate(seeds):
                    row = {
                        "condition": condition,
                        "algorithm": "ppo",
                        "kl_coef": 0.0,
                        "kl_target": 0.0,
                        "updates": 5,
                        "seed": seed,
                        "split": split,
                        "decoding": decoding,
                    }
                    for metric, value in metrics.items():
                        value = value.get(decoding) if isinstance(value, dict) else value
                        row[metric] = None if value is None else float(np.broadcast_to(value, len(seeds))[i])
                    rows.append(row)
    named = {c: listed(c) for c in values} if runs is None else runs
    params = SimpleNamespace(
        seeds=list(seeds), profile=profile, all_runs=named, continued={}, claims=[], bring=SimpleNamespace(model=model)
    )
    lost = {c: f"{c}: no such file" for c in missing}
    return Results(params, pd.DataFrame(rows), pd.DataFrame(), {}, {}, {}, {}, {}, lost)


def bare(values) -> SimpleNamespace:
    """What `measure` asks of results, without their tables: for many samples."""

    def of(condition, metric, decoding="plain", split="test"):
        value = values[condition].get(metric)
        value = value.get(decoding) if isinstance(value, dict) else value
        return None if value is None else np.broadcast_to(value, len(FIVE))

    return SimpleNamespace(
        params=SimpleNamespace(all_runs=values), seeds=[*FIVE], values=of, independent=lambda metric: True
    )


def entry(*tests, **more) -> dict:
    """The entry of a claim, as claims.yaml has it."""
    return {
        "claim": PROSE,
        "source": {"paper": "a paper", "section": "1"},
        "report": "none",
        "traps": "none",
        **({"tests": list(tests), "decided_by": "all"} if tests else {}),
        **more,
    }


def contrast(first="ppo_gamma_100", second="ppo_gamma_095", **more) -> dict:
    return {
        "name": first,
        "kind": "contrast",
        "metric": "score",
        "direction": "greater",
        "effect": 0.1,
        "terms": {first: 1, second: -1},
        **more,
    }


def diverging(first: list[str], second: list[str]) -> dict:
    """A test of the share of runs that diverge."""
    more = {"metric": "diverged", "direction": "greater", "effect": 0.5, "at_least": 1}
    return {"name": "f", "kind": "fraction", **more, "first": first, "second": second}


def claim(*tests, **more) -> Claim:
    return Claim.model_validate({"id": "Z01", **entry(*tests, **more)})


def arms(effect, spread=0.02, metric="score", **more) -> dict:
    """A yardstick of 0.5, and ppo_gamma_100 that lies `effect` raw above ppo_gamma_095."""
    base = 0.3 + 0.1 * NOISE  # what draws differ by, the same in every arm
    return {
        "zero_shot": {metric: base},
        "ppo_kl_0": {metric: base + 0.5},
        "ppo_gamma_095": {metric: base},
        "ppo_gamma_100": {metric: base + effect + spread * NOISE},
        **more,
    }


def share(words, wanted) -> float:
    return sum(word in wanted for word in words) / len(words)


def write_yaml(path: Path, content: dict) -> Path:
    with open(path, "w", encoding="utf-8") as file:
        YAML().dump(content, file)
    return path


def said(path: Path) -> str:
    with pytest.raises(ClaimError) as error:
        checks.load(path)
    return str(error.value)


PROFILES = checks.profiles(ROOT)


def _cut(values, n):
    return {c: {m: v[:n] for m, v in metrics.items()} for c, metrics in values.items()}


def two(**more):
    return [contrast(), contrast("nlpo_gamma_100", "nlpo_gamma_095", name="second", **more)]


IN_NUMBERS = contrast(
    "numbers_mask_top_p_090", "numbers_mask_top_p_095", yardstick=["numbers_ppo", "numbers_zero_shot"]
)


POINTS = {0: "ppo_target_low", 1: "ppo_target_mid", 3: "ppo_target_high"}


def sweep(*levels, spread=0.01) -> dict:
    values = arms(0.0)
    base = values["zero_shot"]["score"]
    return values | {
        c: {"score": base + level + spread * np.roll(NOISE, i)}
        for i, (c, level) in enumerate(zip(POINTS.values(), levels))
    }


def points(kind, **more) -> dict:
    return {
        "name": kind,
        "kind": kind,
        "metric": "score",
        "direction": "greater",
        "effect": 0.1,
        "points": POINTS,
        **more,
    }


MASKS = {
    "kind": "matched",
    "along": "kept_mass",
    "metric": "score",
    "decoding": "own",
    "direction": "greater",
    "effect": 0.1,
}


TOP_P, TOP_K = ("mask_top_p_050", "mask_top_p_070", "mask_top_p_090"), ("mask_top_k_10", "mask_top_k")
RANKED = ("mask_top_p", "mask_typical", "mask_epsilon", "mask_eta", "mask_mirostat", "ppo_kl_default")
RANK = {
    "name": "r",
    "kind": "rank",
    "metric": "rollout_score",
    "second_metric": "score",
    "direction": "greater",
    "effect": 0.5,
    "first": RANKED,
    "second": RANKED,
}


FIFTH = {**contrast(effect=0.05, threshold=True), "terms": {"ppo_gamma_100": 1, "zero_shot": -0.8, "ppo_kl_0": -0.2}}


def _checked(test: dict, **more) -> dict:
    """Load a file with this one test, through the disk."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        return checks.load(write_yaml(Path(folder) / "claims.yaml", {"Z01": entry(test, **more)}))


ROWS = {"a": {"score": [0.6, 0.1], "n": 5}, "b": {"score": [0.5, 0.1], "n": 5}}
