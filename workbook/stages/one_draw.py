"""One draw of a registered design on this machine: its texts and models, a condition's rows, and what decides them.

`settle` calls these in processes of their own; they call what the pipeline's stages call.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from rlnlp.learners.common import Diverged, TrainingError
from workbook.runs import conditions, experiment, means, measure, roots
from workbook.runs.params import Params
from workbook.stages import depends
from workbook.store import rekeyed
from workbook.store.fingerprint import digest, libraries
from workbook.store.identity import Code
from workbook.store.locks import LockError
from workbook.store.tables import read_table

BUILT = ("data", "models", "variants")  # of the reviews
WORLDS = "worlds"
# a full disk, a missing file: no fault of a draw
OF_THE_MACHINE = (OSError, ImportError, MemoryError, torch.OutOfMemoryError, LockError)
MAKERS = {
    "data": "workbook.texts.data:build",
    "models": "workbook.draws.base:build",
    "variants": "workbook.draws.variants:build",
    WORLDS: "workbook.draws.worlds:build",
}


@dataclass(frozen=True)
class Failed:
    """A job that raised: the condition, or "models", and the last line of its error."""

    condition: str
    error: str


def of_draw(params: Params, draw: int) -> Params:
    """The profile's settings for one draw alone."""
    return params.model_copy(update={"seeds": (draw,), "draws": (draw,)})


def build(params: Params, draw: int, names: Sequence[str]) -> None:
    """Texts and models of a draw, as the pipeline's stages make them; of generated worlds only where a run of `names`
    is about one."""
    _into(params, draw, "models")
    from workbook.draws import base, variants, worlds
    from workbook.texts import data

    texts, trained, further, others = (params.folder / name / f"draw{draw}" for name in MAKERS)
    data.build(conditions.stage(params, "data"), draw, texts)
    base.build(conditions.stage(params, "models"), draw, texts, trained, params.scratch)
    variants.build(conditions.stage(params, "variants"), draw, texts, trained, further, params.scratch)
    if any(params.run(name).world for name in names):
        worlds.build(conditions.stage(params, WORLDS), draw, others, params.scratch)


def train(params: Params, draw: int, condition: str) -> list[dict[str, Any]]:
    """The rows of one condition in one draw; its policy stays where runs that start from it look for it.

    A run that diverged is a result: it has the rows that the settings ask for (`breaks: [finite]`), else rows without
    numbers, `diverged` 1. Only where others start from its policy, and it has none, does it raise `TrainingError`.
    """
    _into(params, draw, condition)
    from workbook.runs.train import setup

    given = conditions.condition(params, condition)
    followed = condition in {entry.get("start") for entry in params.all_runs.values()}
    setup(given)
    try:
        final = experiment.run_seed(given, draw, experiment.chosen(given))
    except TrainingError as error:
        if followed or not isinstance(error.__cause__, Diverged):
            raise
        traceback.print_exc()
        return _without_numbers(given, draw)
    if followed:
        shutil.copytree(final / "policy", _policy(params, draw, condition), dirs_exist_ok=True)
    return read_table(final / "per_seed.csv")


def _without_numbers(given: conditions.Condition, draw: int) -> list[dict[str, Any]]:
    config, run = given.config(**experiment.chosen(given)), given.run
    names = [d.name for d in measure.decodings(run.algorithm, config, given.evaluation, run.decodings)]
    about = {"condition": given.condition, "algorithm": run.algorithm, "seed": draw, "diverged": 1.0}
    about |= {k: getattr(config, k, None) for k in ("kl_coef", "kl_target", "updates")}
    return [{**about, "split": split, "decoding": name} for split in ("test", "half") for name in names]


def tried(job: Callable, params: Params, draw: int, given: Any) -> Any:
    """What `build` or `train` returns, or what it failed by. What the machine lacks is no failure of the draw: that is
    raised."""
    try:
        return job(params, draw, given)
    except OF_THE_MACHINE:
        raise
    except Exception as error:
        if isinstance(error, RuntimeError) and "allocate memory" in str(error):  # as torch says it on a CPU
            raise
        traceback.print_exc()
        sys.stderr.flush()
        line = " ".join("".join(traceback.format_exception_only(error)).split())
        return Failed(given if isinstance(given, str) else "models", line[:300])


def clear(params: Params, draw: int) -> None:
    """Remove the models and policies of a draw whose rows are kept; the logs stay."""
    places = [params.folder / name / f"draw{draw}" for name in MAKERS]
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
    """Condition -> the key of what decides its rows in any draw: code as the files are now (by the name that committed
    rows know it by), libraries, settings, of what it starts from too; no model's bytes, which differ by rounding from
    machine to machine."""
    code, files, task = Code(depends.ROOT), conditions.files(params), params.task.name
    known = rekeyed.names(depends.ROOT)
    by_name = {  # what is imported by its name, which no reader of the code sees
        "data": roots.of_data(task, bool(params.bring.prompts)),
        "models": roots.of_models(task, bool(params.bring.model)),
        "variants": roots.of_variants(task),
    }

    @cache
    def identity(definitions: tuple[str, ...], without: tuple[str, ...] = ()) -> str:
        now = code.identity(definitions, without)
        return known.get(now, now)

    def given(file: str) -> dict[str, Any]:
        return {k: v for k, v in files[f"{file}.json"].items() if k not in ("seeds", "profile", "root", "condition")}

    def said(name: str) -> dict[str, Any]:
        run = params.run(name)
        named = roots.of_run(run.algorithm, "" if run.world else task, code)
        trained = identity(
            ("workbook.stages.one_draw:train", *named), tuple(roots.unused(bool(run.world), means.plain(params)))
        )
        of = [WORLDS] if run.world else BUILT
        made = {n: [identity((MAKERS[n], *by_name.get(n, ()))), given(f"settings/{n}")] for n in of}
        tuned = experiment.chosen(conditions.condition(params, name))
        own = {"code": trained, "settings": given(f"conditions/{name}"), "tuned": tuned}
        return {**own, "made": made, "brought": files["brought.json"], "start": said(run.start) if run.start else None}

    def key(name: str) -> str:  # a letter first: a table reads 12e45678 back as a number
        return "k" + digest({"all": json.dumps(said(name), sort_keys=True), **libraries()})[:16]

    return {name: key(name) for name in names}
