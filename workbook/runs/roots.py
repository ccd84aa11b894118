"""What the stages ask for by name, which no reader of the code sees: roots of their identities."""

from __future__ import annotations

from workbook.draws import named
from workbook.runs import algorithms
from workbook.store.identity import Code
from workbook.texts import tasks
from workbook.texts.data import BROUGHT

WORLD = "workbook.runs.draw:load_world"
MEANS = [f"workbook.runs.means:{name}" for name in ("engine_of", "facts", "on_gpu", "batch_size")]
MEANS += ["rlnlp.shards:agree", "rlnlp.shards:of_first"]


def of_data(task: str, brings_prompts: bool) -> list[str]:
    """data: the task, and the one that reads prompts of the user's."""
    return [
        root for name in dict.fromkeys([task, *([BROUGHT] if brings_prompts else [])]) for root in tasks.roots(name)
    ]


def of_models(task: str, brings_model: bool) -> list[str]:
    """models: the task, and the parts that it names."""
    about = tasks.task(task)
    used = [about.judge, *([about.evaluator] if brings_model and about.evaluator else [])]
    return [*tasks.roots(task), *(root for name in used for root in _part(name))]


def of_variants(task: str) -> list[str]:
    """variants: the task, and its second judge."""
    return [*tasks.roots(task), *_part(tasks.task(task).judge_2)]


def of_run(algorithm: str, task: str, code: Code) -> list[str]:
    """A run or a search: its learner, the task's judges and metrics, and the task where it imitates texts that it cuts.

    task: "" for a run in a world.
    """
    found = algorithms.roots(algorithm, code)
    if task:
        about = tasks.task(task)
        judges = [root for name in (about.judge, about.judge_2) for root in named.roots(name, named.LOADED)]
        metrics = [root for name in about.metrics for root in named.roots(name, named.MEASURED)]
        found += [*judges, *metrics, *(tasks.roots(task) if algorithms.module(algorithm).ABOUT.imitates else [])]
    return found


def unused(world: bool, plain: bool) -> list[str]:
    """What a run or a search never calls. world: it is about one; plain: it is computed as it is written."""
    return [*([] if world else [WORLD]), *(MEANS if plain else [])]


def _part(name: str) -> list[str]:
    protocol = (*named.MADE, *named.LOADED) if hasattr(named.module(name), "load") else named.MADE
    return named.roots(name, protocol)
