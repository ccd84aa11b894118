"""What a profile takes from outside: the models and data sets that it names, and where a run would find them."""

from __future__ import annotations

import contextlib
import os
import re
import symtable
from dataclasses import dataclass
from pathlib import Path

from rlnlp.settings import ConfigError, nearest
from workbook.runs.made_here import PLAN
from workbook.runs.params import Params
from workbook.runs.reading import read
from workbook.texts import hub, tasks
from workbook.texts.tasks import csv

# A Python file with one of these may have names that no reader of its text can find.
UNTOLD = re.compile(rb"import\s*\*|\b(exec|globals)\(|\bvars\(\)|sys\.modules|\b__getattr__\b|^\s+global ", re.M)


@dataclass(frozen=True)
class Found:
    """A model or data set that a profile names. place: its folder, "the hub", "" if missing; looked: where, then."""

    kind: str
    name: str
    use: str
    place: str
    looked: str = ""


def named(params: Params) -> list[tuple[str, str, str]]:
    """(kind, hub id or folder, what for) of what a profile takes from outside. Files of the user's were checked as
    settings."""
    task = tasks.task(params.task.name)
    wanted = [("datasets", task.hub, "reviews, prompts")] if task.hub else []
    if params.bring.model:
        wanted.append(
            ("models", params.bring.model, "policy, reference, value" + ("" if task.evaluator else ", evaluator"))
        )
    if params.bring.reward and not params.reward_files:
        wanted.append(("models", params.bring.reward, "reward"))
    return wanted


def planned(params: Params) -> dict | None:
    """The section `model` of the settings by which a command makes the base model beside the profile; None where the
    profile brings another one, or none."""
    plan = params.folder / PLAN
    raw = read(plan)[0] if params.bring.model and plan.is_file() else {}
    return raw["model"] if raw.get("out") == params.bring.model else None


def look(params: Params, kind: str, name: str, use: str) -> Found:
    """Where a model or data set is: `hub.find`'s places, the hub asked too; of a model its config.json is read."""
    folder = params.folder.resolve()
    mirror = str(folder / Path(params.mirror).expanduser()) if params.mirror else ""
    try:
        with contextlib.chdir(folder):  # where a run looks, wherever this was typed
            place = hub.find(kind, name, mirror)
        place = folder / place if isinstance(place, Path) else place
    except hub.DataError as error:
        return Found(kind, name, use, "", str(error).partition("\n")[2] or str(error))
    try:
        if not isinstance(place, Path):
            ask_the_hub(kind, name)
        if kind == "models":
            config_of(place)
    except Exception as error:  # noqa: BLE001 (the hub, its network and the file formats raise what they like)
        said = first_line(error)
        if isinstance(place, Path):
            return Found(kind, name, use, "", f"{place}: {said}")
        roots = [Path(root).expanduser() for root in (mirror, os.environ.get("RLNLP_MIRROR", "")) if root]
        where = [f"{root / kind / name}: no such folder" for root in roots] or ["mirror, $RLNLP_MIRROR: not set"]
        return Found(kind, name, use, "", "\n".join([*where, f"the hub: {said}"]))
    return Found(kind, name, use, str(place) if isinstance(place, Path) else "the hub")


def check(params: Params) -> None:
    """Raises ConfigError naming all that is not there, and where it was looked for."""
    missing = [found for found in (look(params, *each) for each in named(params)) if not found.place]
    if missing:
        said = (f"{f.name} ({f.use}): expected in a mirror or on the hub\n{f.looked}" for f in missing)
        raise ConfigError(f"{params.path}: " + "\n".join(said))


def read_brought(params: Params) -> None:
    """Read the user's own files as a run would, but execute none: all of the prompts, and whether the file of a reward
    has the function's name. Raises ConfigError.

    A run's first stage calls the function too; what a plan looks at may be code that is not to be run on this machine.
    """
    if params.bring.prompts:
        try:
            csv.check(params.folder / params.bring.prompts)
        except hub.DataError as error:
            raise ConfigError(str(error)) from None
    if not params.bring.reward_file:
        return
    path, name = params.folder / params.bring.reward_file, params.bring.reward.rpartition(":")[2]
    said = (
        f"bring.reward: reward {str(params.folder / params.bring.reward)!r}"  # as `rlnlp.brought.load_function` has it
    )
    try:
        text = path.read_bytes()
        found = symtable.symtable(text, path.name, "exec").get_symbols()
    except (SyntaxError, ValueError, OSError) as error:
        raise ConfigError(f"{said}: importing {path} raised {type(error).__name__}: {error}") from None
    names = {each.get_name() for each in found if each.is_assigned() or each.is_imported() or each.is_namespace()}
    if name not in names and not UNTOLD.search(text):
        own = sorted(each.get_name() for each in found if each.is_namespace() and each.get_name()[0] != "_")
        there = f"; there is {', '.join(own[:8])}" if own else ""
        raise ConfigError(f"{said}: {path.name} has no {name!r}{nearest(name, own, 0.5) or there}")


def first_line(error: Exception) -> str:
    """What an error says first; its name where it says nothing."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def ask_the_hub(kind: str, name: str) -> None:
    """Returns if the hub has it, or had it and a run would find the copy; raises what the hub's client raises."""
    from huggingface_hub import HfApi, try_to_load_from_cache

    if kind == "models" and isinstance(try_to_load_from_cache(name, "config.json"), str):
        return
    getattr(HfApi(), {"models": "model_info", "datasets": "dataset_info"}[kind])(name, timeout=10)


def config_of(place: Path | str):
    """A model's config.json, from a folder or from the hub; no weights."""
    from rlnlp import pretrained

    return pretrained.read_config(place)
