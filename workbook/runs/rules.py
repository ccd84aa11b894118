"""Rules of settings that no single section can check: what runs name, what fits into models, what lies on the disk.

Each yields (keys of the value, what was expected and found).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

from rlnlp.settings import nearest
from workbook.runs import algorithms, resolve
from workbook.runs.messages import show
from workbook.runs.params import Params
from workbook.runs.settings import Run
from workbook.texts import tasks

WEIGHTS = ("*.safetensors", "pytorch_model*.bin")  # of a model's folder

BESIDE = ("replicate", "decodings", "test_prompts")  # what a repetition may say otherwise


def runs(p: Params) -> Iterator[tuple[tuple, str]]:
    """What runs name is there."""
    used: dict[str, list[str]] = {}  # search: the runs that need it
    for group, entries in (("runs", p.runs), ("continued", p.continued)):
        for name, entry in entries.items():
            run, place = p.run(name), (group, name)
            about = algorithms.module(run.algorithm).ABOUT
            if group == "runs" and run.start:
                yield (*place, "start"), "expected no start here: runs that continue another stand in `continued`"
            if group == "continued" and run.start not in p.runs:
                hint = nearest(run.start, p.runs)
                yield (*place, "start"), f"expected a name in runs, found {show(run.start)}{hint}"
            elif group == "continued" and p.runs[run.start].get("world", "") != run.world:
                text = f"expected a run of the same world ({run.world or 'none'}), found {run.start!r}"
                yield (*place, "start"), text
            if run.test_prompts > p.task.test_prompts:
                text = f"expected at most task.test_prompts ({p.task.test_prompts}), found {run.test_prompts}"
                yield (*place, "test_prompts"), text
            if run.world:
                yield from _world_run(place, run, about)
                continue
            if about.searched_as and (entry.get("updates") != 0 or "learning_rate" not in entry):
                used.setdefault(about.searched_as, []).append(name)
            if run.reward not in p.variants.rewards:
                text = f"expected one of {p.variants.rewards} (variants.label_fractions), found {run.reward!r}"
                yield (*place, "reward"), text + nearest(run.reward, p.variants.rewards)
            if run.base == "policy_dropout" and not p.variants.dropout:
                yield (*place, "base"), "policy_dropout is not made: variants.dropout is 0"
            if run.vocabulary and not about.explores:
                text = f"expected 0 for {run.algorithm}: the texts it imitates use all tokens"
                yield (*place, "vocabulary"), text
    yield from _repetitions(p)
    yield from _means(p)
    if p.evaluation.test_prompts > p.task.test_prompts:
        text = f"expected at most task.test_prompts ({p.task.test_prompts}), found {p.evaluation.test_prompts}"
        yield ("evaluation", "test_prompts"), text
    for search in used.keys() - p.tune.own.keys() if p.tune.own else ():  # all are searched, or none
        text = f"expected an entry `{search}: {{}}`, a learning rate that these runs use: {', '.join(used[search])}"
        yield ("tune", "own"), text
    for setting, own in (("reward", "reward"), ("model", "base")):  # variants are made of models that are trained here
        plain, runs = Run.model_fields[own].default, p.all_runs.items()
        lost = [name for name, entry in runs if entry.get(own, plain) != plain and not entry.get("world")]
        if getattr(p.bring, setting) and lost:
            text = f"these runs need a {own} that is made here; take them out of runs and reports: {', '.join(lost)}"
            yield ("bring", setting), text


def _means(p: Params) -> Iterator[tuple[tuple, str]]:
    """Every run can be computed at the precision, and its batches cut into the shards, that the settings ask for."""
    for group, entries in (("runs", p.runs), ("continued", p.continued)):
        for name in entries:
            algorithm, config = p.run(name).algorithm, p.learner_config(name)
            about = algorithms.module(algorithm).ABOUT
            if about.fp32 and p.precision != "fp32":
                text = f"expected a learner that can be trained in {p.precision}, found {about.label}, which needs fp32"
                yield (group, name, "algorithm"), text
            size = getattr(config, "episodes_per_update", 0)
            if not algorithms.uncut(algorithm, config) and size % p.shards:
                text = f"expected episodes_per_update that {p.shards} shards divide, found {size} in {group}.{name}"
                yield ("shards",), text


def _repetitions(p: Params) -> Iterator[tuple[tuple, str]]:
    """A run with `replicate` says, word for word, what another says, and no two that do so have one number."""
    first = {name: run for name, run in p.all_runs.items() if not run.get("replicate")}
    taken: dict[tuple, str] = {}
    for group, entries in (("runs", p.runs), ("continued", p.continued)):
        for name, run in entries.items():
            if not (number := run.get("replicate")):
                continue
            differ = {c: _differing(run, other) for c, other in first.items()}
            near = min(differ, key=lambda c: (len(differ[c]), -SequenceMatcher(None, name, c).ratio()), default="")
            if not near or differ[near]:
                hint = f"; the nearest, {near!r}, differs in {', '.join(differ[near])}" if near else ""
                text = f"expected a run that says the same but for {', '.join(BESIDE)}, found none{hint}"
                yield (group, name, "replicate"), text
            elif (other := taken.setdefault((near, number), name)) != name:
                text = f"expected another number than that of {other!r}, which repeats {near!r} too"
                yield (group, name, "replicate"), text


def _differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    return [k for k in {**one, **other} if k not in BESIDE and (k in one, one.get(k)) != (k in other, other.get(k))]


def _world_run(place: tuple, run: Run, about) -> Iterator[tuple[tuple, str]]:
    """What a run in a world may say: it has a reward of that world, and no texts, variants or labels to choose from."""
    from workbook.draws import worlds

    rewards = ["reward", *worlds.REWARDS[run.world]]
    if run.reward not in rewards:
        text = f"expected one of {rewards} in the world {run.world}, found {run.reward!r}{nearest(run.reward, rewards)}"
        yield (*place, "reward"), text
    if not about.explores:
        text = f"expected none for {run.algorithm}: in a world there are only rewards to learn from"
        yield (*place, "world"), text
    for name, why in (("base", "a world has one model"), ("vocabulary", "its tokens are few")):
        if getattr(run, name) != Run.model_fields[name].default:
            yield (*place, name), f"expected nothing in the world {run.world}: {why}"


def lengths(p: Params, path: Path) -> Iterator[tuple[tuple, str]]:
    """Prompt and response of every run and every search fit into the models."""
    from workbook.draws import worlds

    values = p.model_dump()
    longest: dict[str, list[tuple[int, tuple]]] = {"": [(p.sampling.max_new_tokens, ("task", "prompt_tokens"))]}
    for algorithm in p.tune.own:
        place, tokens = resolve.given(algorithm, "", values)["max_new_tokens"]
        longest[""].append((tokens, ("task", "prompt_tokens") if place[0] == "sampling" else place))
    for group, entries in (("runs", p.runs), ("continued", p.continued)):
        for name, entry in entries.items():
            run, found = p.run(name), p.learner_config(name).max_new_tokens
            sections = resolve.given(run.algorithm, run.world, values)
            place = (group, name) if "max_new_tokens" in entry else sections["max_new_tokens"][0]
            shared = place[0] == "sampling" or (place == (group, name) and not run.world)
            place = ("task", "prompt_tokens") if shared else (group, name, "world") if run.world else place
            longest.setdefault(run.world, []).append((found, place))
    room = worlds.CONTEXT - worlds.PROMPT
    for tokens, place in dict.fromkeys(x for world, found in longest.items() if world for x in found):
        if tokens > room:
            yield place, f"expected max_new_tokens <= {room} (its model's positions), found {tokens}"
    tokens, place = max(longest[""], key=lambda found: found[0])
    need = p.task.prompt_tokens + tokens
    parts = f"task.prompt_tokens {p.task.prompt_tokens} + max_new_tokens {tokens} = {need}"
    context, name = p.language_model.context, "language_model.context"
    if p.bring.model:
        if tasks.task(p.task.name).evaluator and need > context:
            text = f"expected >= prompt + response, {parts}, as it is the evaluator's; found {context}"
            yield ("language_model", "context"), text
        context, name = _positions(path.resolve().parent / p.bring.model), f"positions of {p.bring.model}"
    if context is not None and need > context:
        yield place, f"expected prompt + response <= {name} ({context}), found {parts}"
    if not p.bring.reward and p.reward_model.include_prompt and need > p.reward_model.max_tokens:
        text = f"expected >= prompt + response, {parts}; found {p.reward_model.max_tokens}"
        yield ("reward_model", "max_tokens"), text


def _positions(folder: Path) -> int | None:
    """Longest input of a saved model, tokens; None if unknown or not bounded by position."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        if config.get("is_encoder_decoder"):
            return None
        names = ("n_positions", "max_position_embeddings")
        return next((config[k] for k in names if isinstance(config.get(k), int)), None)
    except (OSError, ValueError, AttributeError):
        return None


def places(p: Params, path: Path) -> Iterator[tuple[tuple, str]]:
    """Folders and files that the settings name are there (a hub id is looked for by the stage that needs it)."""
    here = path.resolve().parent
    inside = here.parent.name == "profiles"
    if p.root == "../.." and not inside:
        yield ("root",), f"expected '.', this folder: only profiles/<name> lies in a repository; found {p.root!r}"
    if inside and p.profile != here.name:
        yield ("profile",), f"expected {here.name!r}, the name of this file's folder, found {p.profile!r}"
    if p.bring.prompts and not (here / p.bring.prompts).is_file():
        yield ("bring", "prompts"), f"expected a CSV file, relative to {path}; found none at {p.bring.prompts!r}"
    file, _, function = p.bring.reward.rpartition(":")
    if p.bring.reward.endswith(".py"):
        yield ("bring", "reward"), f'expected "{p.bring.reward}:function", found no function name'
    elif file.endswith(".py"):
        if not (here / file).is_file():
            yield ("bring", "reward"), f"expected a Python file, relative to {path}; found none at {file!r}"
        elif not function.isidentifier():
            yield ("bring", "reward"), f"expected the name of a function after the colon, found {function!r}"
    for name in ("model", "reward"):
        value = getattr(p.bring, name)
        if not value or (name == "reward" and (value.endswith(".py") or file.endswith(".py"))):
            continue
        if re.fullmatch(r"[\w-][\w.-]*(/[\w-][\w.-]*)?", value) and not (here / value).exists():
            continue  # a hub id
        if not (here / value / "config.json").is_file():
            yield ("bring", name), f"expected a model's folder, relative to {path}, with config.json; found {value!r}"
        elif not any(any((here / value).glob(kind)) for kind in WEIGHTS):
            yield (
                ("bring", name),
                f"expected weights ({' or '.join(WEIGHTS)}) beside config.json, none in {value!r}",
            )
    claims = here / p.root / "claims.yaml"
    if p.claims:
        known = re.findall(r"^([A-Z]\d+):", claims.read_text(encoding="utf-8"), re.M) if claims.is_file() else []
        for i, name in enumerate(p.claims):
            if known and name not in known:
                yield ("claims", i), f"expected an entry of claims.yaml, found {name!r}{nearest(name, known)}"
