"""What a run is called where people read, in figures, reports and on the site: words from what its entry in params.yaml
sets, never its id.

names(results)["ppo_kl_0"]                        # "PPO, β = 0"
called(entries)["sup_nlpo"]                       # "NLPO, after supervised"
decoded("NLPO, after supervised", "greedy")       # "NLPO, after supervised, decoded greedily"
spelled("the run ppo_kl_0", everywhere(params))   # "the run PPO, β = 0 (`ppo_kl_0`)"
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from workbook.results.results import Results, once
from workbook.results.tables import minus
from workbook.runs.algorithms import label

MOST = 3  # settings that a name says; of more, it says two and counts the others
QUIET = {"algorithm", "world", "decodings", "test_prompts", "breaks", "mask_rule", "mask_value", "mask_delay", "tau"}
QUIET |= {"explore_value", "max_value", "epsilon_start", "epsilon_end"}  # said with another, or by it
SAID = {  # setting -> what stands for a value
    "kl_coef": "β = {}", "kl_target": "KL target {}", "gamma": "γ = {}", "lam": "λ = {}", "mask_top_p": "p = {}",
    "sync_every": "refreshed every {} updates", "top_p": "top-p {}", "top_k": "top-k {}",
    "temperature": "temperature {}", "updates": "{} updates", "episodes_per_update": "{} episodes an update",
    "vocabulary": "{} tokens", "rate": "rate {}", "learning_rate": "learning rate {}", "head": "{} head",
    "n_step": "{}-step targets", "target": "{} target", "trunk": "{} trunk", "mask_min_tokens": "{} tokens at least",
    "reward": "paid by {}", "start": "after {}", "explore": "{} exploration",
}  # fmt: skip
VALUES = {  # (setting, value) -> the whole of what stands for it
    ("mask_source", "initial"): "mask never refreshed", ("mask_source", "random"): "random mask",
    ("mask_source", "lagged"): "an older copy's mask",
    ("min_new_tokens", 0): "may end",
    ("base", "policy_dropout"): "pretrained with dropout",
    ("reward", "reversed"): "paid 1 − score", ("mode", "same"): "the same parts",
    ("mode", "update_only"): "in the update only", ("mode", "independent"): "drawn anew",
    ("double", True): "double",
}  # fmt: skip
DECODED = {"plain": "decoded plainly", "own": "decoded as trained", "greedy": "decoded greedily"}


@once
def names(results: Results) -> dict[str, str]:
    """Condition -> its name, of every run of the profile."""
    return called(results.params.all_runs)


def called(entries: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Condition -> its name, of the runs of one profile; where two would be called the same, with the id beside it."""
    found = {c: name(entry, entries) for c, entry in entries.items()}
    often = Counter(found.values())
    return {c: said if often[said] == 1 else f"{said} ({c})" for c, said in found.items()}


def name(entry: Mapping[str, Any], entries: Mapping[str, Mapping[str, Any]]) -> str:
    """The name of a run: its learner, and what it sets; entries: of the profile, for runs that continue another."""
    said = {key: part for key, value in entry.items() if (part := _part(key, value, entry, entries))}
    parts = [*said.values()]
    if len(parts) > MOST:  # the penalty is not among those that are only counted
        parts = [said[key] for key in sorted(said, key=lambda key: key != "kl_coef")]
        parts = [*parts[: MOST - 1], f"{len(parts) - MOST + 1} more settings"]
    start = "untrained" if entry.get("updates") == 0 else label(entry["algorithm"])
    if "mask_rule" in entry:
        rule = entry["mask_rule"].replace("_", "-")
        start = f"PPO, {rule} mask {digits(entry['mask_value'])}" + ", delayed" * bool(entry.get("mask_delay"))
    world = f" on {entry['world']}" if entry.get("world") else ""
    return minus(", ".join([start + world, *parts]))


RUN = re.compile(r"(?<=\bthe run )\w+|\b[a-z]\w*_\w+")  # an id of one word may be a word


def spelled(text: str, known: Mapping[str, str]) -> str:
    """A sentence of the ledger, which has runs by their ids, with the name of each before its id."""

    def said(found: re.Match) -> str:
        name = known.get(found[0], "").removesuffix(f" ({found[0]})")
        return f"{name} (`{found[0]}`)" if name else found[0]

    return RUN.sub(said, text)


def everywhere(params: Any) -> dict[str, str]:
    """Condition -> its name, of every run that some profile has: what a profile lacks, it has no settings of. In the
    profile itself, else in the top-level one, else in the first that has it."""
    return {**_anywhere((params.folder / params.root).resolve()), **called(params.all_runs)}


@cache
def _anywhere(root: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    for file in (root / "params.yaml", *sorted(root.glob("profiles/*/params.yaml"))):
        values = YAML(typ="safe", pure=True).load(file.read_text(encoding="utf-8")) if file.is_file() else {}
        found = {**called({**values.get("runs", {}), **(values.get("continued") or {})}), **found}
    return found


def decoded_how(decoding: str) -> str:
    """ "decoded plainly", "decoded by top-p": how texts were drawn, in words."""
    return DECODED.get(decoding, f"decoded by {decoding.replace('_', '-')}")


def decoded(name: str, decoding: str) -> str:
    """A run's name with how its texts were drawn; plainly goes without saying."""
    how = decoded_how(decoding)
    return name if decoding == "plain" else f"{name}, {how}"


def _part(key: str, value: Any, entry: Mapping[str, Any], entries: Mapping[str, Mapping[str, Any]]) -> str:
    """One setting in words; "" where the name has it already, or it is no more than how a run is measured."""
    if key in QUIET or (key == "updates" and value == 0):
        return ""
    if (key, value) in VALUES:
        return VALUES[key, value]
    if key in ("data_fraction", "reward") and (share := _share(key, value)):
        return share
    if key == "replicate":
        return f"repetition {value + 1}" if value else ""
    if key in ("explore_rule", "max_rule"):
        what = "explores" if key == "explore_rule" else "maximum"
        return f"{what} in {value.replace('_', '-')} {digits(entry[key.replace('rule', 'value')])}"
    if key == "start":
        return f"after {name(entries[value], entries) if value in entries else value}"
    said = digits(value) if isinstance(value, float) else f"{value}".replace("_", " ")
    return SAID.get(key, key.replace("_", " ") + " {}").format(said)


def digits(value: float) -> str:
    """Up to six significant digits, never with a power of ten: 0.000025."""
    return f"{Decimal(f'{value:g}'):f}"


def _share(key: str, value: Any) -> str:
    """Of labelled reviews: those shown, or those behind a reward; "" for the reward of all, and of a world."""
    if key == "data_fraction":
        return f"{100 * value:g} % of the examples"
    percent = str(value).removeprefix("reward_")
    return f"reward of {percent} % of the labels" if percent != value and percent.isdigit() else ""
