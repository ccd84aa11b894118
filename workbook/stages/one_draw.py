"""One draw of a registered design on this machine: its texts and models, a condition's rows, and what decides them.

`settle` calls these in processes of their own; they call what the pipeline's stages call.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from typing import Any

from workbook.runs import conditions
from workbook.runs.params import Params
from workbook.stages import depends
from workbook.store.fingerprint import digest, libraries
from workbook.store.identity import Code
from workbook.store.tables import read_table

BUILT = ("data", "models", "variants")  # of the reviews
WORLDS = "worlds"


def of_draw(params: Params, draw: int) -> Params:
    """The profile's settings for one draw alone."""
    return params.model_copy(update={"seeds": (draw,), "draws": (draw,)})


def build(params: Params, draw: int, names: Sequence[str]) -> None:
    """Texts and models of a draw, as the pipeline's stages make them; of generated worlds only where a run of `names`
    is about one."""
    _into(params, draw, "models")
    from workbook.draws import base, variants, worlds
    from workbook.texts import data

    texts, trained, further, others = (params.folder / name / f"draw{draw}" for name in (*BUILT, WORLDS))
    data.build(conditions.stage(params, "data"), draw, texts)
    base.build(conditions.stage(params, "models"), draw, texts, trained, params.scratch)
    variants.build(conditions.stage(params, "variants"), draw, texts, trained, further, params.scratch)
    if any(params.run(name).world for name in names):
        worlds.build(conditions.stage(params, WORLDS), draw, others, params.scratch)


def train(params: Params, draw: int, condition: str) -> list[dict[str, Any]]:
    """The rows of one condition in one draw; its policy stays where runs that start from it look for it."""
    _into(params, draw, condition)
    from workbook.runs import experiment
    from workbook.runs.train import setup

    given = conditions.condition(params, condition)
    setup(given)
    final = experiment.run_seed(given, draw, experiment.chosen(given))
    if condition in {entry.get("start") for entry in params.all_runs.values()}:
        shutil.copytree(final / "policy", _policy(params, draw, condition), dirs_exist_ok=True)
    return read_table(final / "per_seed.csv")


def clear(params: Params, draw: int) -> None:
    """Remove the models and policies of a draw whose rows are kept; the logs stay."""
    places = [params.folder / name / f"draw{draw}" for name in (*BUILT, WORLDS)]
    places += [_policy(params, draw, condition) for condition in params.runs]
    places += [path for path in params.scratch.iterdir() if path.name.endswith(f"draw{draw}")]
    places += list((params.scratch / "runs").glob(f"*/seed{draw}-*"))
    for place in places:
        shutil.rmtree(place, ignore_errors=True)


def _policy(params: Params, draw: int, condition: str):
    return params.folder / "runs" / condition / f"policy_seed{draw}"


def _into(params: Params, draw: int, name: str) -> None:
    """What this process prints goes into a file of its own."""
    log = params.scratch / "logs" / str(draw) / f"{name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "a", encoding="utf-8") as out:
        for stream in (1, 2):
            os.dup2(out.fileno(), stream)


def keys(params: Params, names: Sequence[str]) -> dict[str, str]:
    """Condition -> the key of what decides its rows in any draw: code, libraries, settings, of what it starts from too;
    no model's bytes, which differ by rounding from machine to machine."""
    code, whole = Code(depends.ROOT), params.model_dump(mode="json")
    roots, files = depends.stages(whole, code), conditions.files(params)

    def given(file: str) -> dict[str, Any]:
        return {k: v for k, v in files[f"{file}.json"].items() if k not in ("seeds", "profile", "root", "condition")}

    def said(name: str) -> dict[str, Any]:
        run = params.run(name)
        made = {n: [code.identity(*roots[n]), given(f"settings/{n}")] for n in ([WORLDS] if run.world else BUILT)}
        start = said(run.start) if run.start else None
        own = {"code": code.identity(*roots[f"runs/{name}"]), "settings": given(f"conditions/{name}")}
        return {"made": made, **own, "start": start}

    return {name: digest({"all": json.dumps(said(name), sort_keys=True), **libraries()})[:16] for name in names}
