"""What a run is called on the site: its learner and what it sets, in words; its id is for commands only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workbook.runs.algorithms import label

SAID = {  # setting of a run: how it is said; another one is said by its own name
    "kl_coef": "β {}",
    "kl_target": "β steered to a KL of {}",
    "gamma": "γ {}",
    "lam": "λ {}",
    "top_p": "sampled by top-p {}",
    "top_k": "sampled by top-k {}",
    "temperature": "sampled at temperature {}",
    "mask_top_p": "mask of p {}",
    "sync_every": "mask refreshed every {} updates",
    "mask_source": "mask of the {} policy",
    "mask_rule": "{}",
    "mask_value": "at {}",
    "mask_delay": "refreshed every {} updates",
    "mask_min_tokens": "at least {} tokens kept",
    "rate": "rate {}",
    "mode": "{}",
    "vocabulary": "{} words",
    "start": "started from {}",
    "base": "base {}",
    "world": "task {}",
    "reward": "paid by {}",
    "data_fraction": "{} of the reviews",
    "n_step": "{}-step returns",
    "head": "head {}",
    "updates": "{} updates",
}
FIXED = {  # setting and value: what that says
    ("kl_coef", 0.0): "no penalty",
    ("mask_source", "random"): "a random mask",
    ("min_new_tokens", 0): "texts may end",
    ("reward", "reversed"): "paid for negative reviews",
    ("reward", "reward_0"): "paid by a reward that saw no label",
    ("reward", "reward_10"): "paid by a reward of a tenth of the labels",
    ("reward", "reward_50"): "paid by a reward of half the labels",
    ("mode", "update_only"): "in the update only",
    ("mode", "independent"): "independent masks",
    ("mode", "same"): "the same mask",
}
DECODED = {"own": "decoded as trained", "greedy": "decoded greedily"}
UNSAID = ("algorithm", "breaks", "decodings", "test_prompts")  # which learner; how it is measured and checked
MOST = 3  # settings that a name has room for


def run(entry: Mapping[str, Any]) -> str:
    """ "PPO, β 0.2" for a run's entry of params.yaml; "untrained" for one without an update."""
    first = label(entry["algorithm"])
    if str(entry.get("updates")) == "0":
        first, entry = "untrained", {name: value for name, value in entry.items() if name != "updates"}
    said = [setting(name, value) for name, value in entry.items() if name not in UNSAID]
    rest = [f"and {len(said) - MOST} more settings"] * (len(said) > MOST + 1)
    return ", ".join([first, *(said[:MOST] if rest else said), *rest])


def setting(name: str, value: Any) -> str:
    """ "γ 0.5": one setting and its value."""
    if name == "replicate":
        return f"repetition {value + 1}"
    shown = f"{value:g}" if isinstance(value, int | float) else str(value).replace("_", " ")
    if (known := FIXED.get((name, value))) is not None:
        return known
    return SAID.get(name, f"{name.replace('_', ' ')} {{}}").format(shown)


def decoded(name: str, decoding: str) -> str:
    """A run's name with how its texts were drawn; plainly goes without saying."""
    how = DECODED.get(decoding, f"decoded by {decoding.replace('_', '-')}")
    return name if decoding == "plain" else f"{name}, {how}"
