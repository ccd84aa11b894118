"""One condition, one seed: load its draw's models, train (or resume), evaluate once, and keep the result.

In: params, a condition name, a seed. Out: a folder of small files and the trained policy. A finished seed is reused and
a started one continued only under the fingerprint of everything that decides its numbers.

The road: `draw` loads, `train` drives the learner, `measure` evaluates, `facts` reads the curve; `tune` chose the
learning rate before.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from rlnlp.engine import Engine
from rlnlp.learners.common import TrainingError
from rlnlp.settings import Settings
from rlnlp.shards import Team, of_first
from rlnlp.types import stream, to
from workbook.draws import base, fewer_labels, training
from workbook.runs import algorithms, means, roots
from workbook.runs.conditions import Condition, Trained
from workbook.runs.draw import base_folder, folders_of, load_draw, world_folder
from workbook.runs.facts import training_facts
from workbook.runs.measure import decodings, evaluate_state
from workbook.runs.settings import REVERSED, Run
from workbook.runs.train import ended, episode, forget, train
from workbook.store import locks, tables
from workbook.store.files import atomic_json, atomic_write, is_sealed, seal, whole
from workbook.store.fingerprint import digest, fingerprint_inputs
from workbook.store.identity import here, root_of

READ = ("bring", "mirror", "task", "reward_model", "evaluation", "threads", "device")  # beside run and learner


def run_condition(params: Condition, out: Path) -> None:
    """Every seed into ``out``: per_seed.csv, curves.csv, samples.jsonl, config.json, episode.json and, with
    ``keep_policies``, policy_seed<k>/.

    A seed that fails does not keep the others from being trained; then ``TrainingError`` names it and ``out`` is not
    written.
    """
    run, tuned = params.run, chosen(params)
    finals, failed = {}, {}
    for seed in params.seeds:
        try:
            finals[seed] = run_seed(params, seed, tuned)
        except TrainingError as error:  # the other seeds are trained and kept
            failed[seed] = error
    if failed:
        said = "; ".join(str(error) for error in failed.values())
        raise TrainingError(f"{len(failed)} of {len(params.seeds)} seeds failed: {said}") from next(
            iter(failed.values())
        )
    with whole(out) as work:
        for name in ("per_seed.csv", "curves.csv"):
            tables.write_table(work / name, [row for f in finals.values() for row in tables.read_table(f / name)])
        samples = [line for f in finals.values() for line in json.loads((f / "samples.json").read_text())]
        atomic_write(work / "samples.jsonl", "".join(json.dumps(s, ensure_ascii=False) + "\n" for s in samples))
        learner = params.config(**tuned).model_dump(mode="json")
        about = {"condition": params.condition, "run": run.model_dump(mode="json"), "learner": learner}
        atomic_json(work / "config.json", about)
        if (shown := finals[params.seeds[0]] / "episode.json").is_file():
            atomic_write(work / "episode.json", shown.read_text())
        for seed, final in finals.items() if params.keep_policies else ():
            shutil.copytree(final / "policy", work / f"policy_seed{seed}")


def run_seed(params: Condition, seed: int, tuned: dict, team: Team | None = None) -> Path:
    """Train and evaluate one seed; returns the folder of its finished files, reused if it is there.

    team: the processes that train it, of which this one is the first (``follow`` is what the others do)."""
    return ended(updates_of(params, seed, tuned, team))


def updates_of(params: Condition, seed: int, tuned: dict, team: Team | None = None) -> Iterator[dict]:
    """``run_seed`` update by update: yields the metrics of each, of a finished seed too; returns the folder at the end.

    Evaluated are the final policy on the test prompts (split "test") and, for the verdict at half the budget, the
    policy after half the updates on the validation prompts (split "half": every decoding; those of all runs only where
    this one adds others, as they decide no other claim).
    A run that ended before (``breaks: [finite]``) is measured as it was then, in both splits.
    """
    key, folder = place(params, seed, tuned)
    final = folder / "final"
    with locks.writer_lock(folder):
        done = finished(params, final)
        if team is not None:
            of_first(team, done)
        if done:
            yield from tables.read_table(final / "curves.csv")
        else:
            yield from new_updates(params, seed, params.config(**tuned), folder, key, team)
        forget(folder)
    return final


def new_updates(
    params: Condition, seed: int, config: Settings, folder: Path, key: str, team: Team | None
) -> Iterator[dict]:
    """``updates_of`` a seed that is not finished: what it finds is then in ``folder``/final."""
    run, condition, algorithm = params.run, params.condition, params.run.algorithm
    draw, positives = load_draw(params, seed, run), None
    engine = None if means.plain(params) else means.engine_of(params, draw, team)
    if algorithms.module(algorithm).ABOUT.imitates and not params.bring.prompts:  # which bring their references
        positives = fewer_labels.positive_prompts(params, draw.data, seed, config.data_fraction, draw.tokenizer)
        positives = to(positives, draw.policy.device)
    measured = decodings(algorithm, config, params.evaluation, run.decodings)
    updates = getattr(config, "updates", 0)

    def half(state, curve: list[dict]) -> None:
        chosen = [d for d in measured if run.decodings or d.name not in params.evaluation.everywhere]
        with uncut(engine):
            rows, _ = evaluate_state(params, draw, state, seed, "validation", chosen)
        so_far = training_facts(curve, config, updates // 2)
        atomic_json(folder / "half.json", [{**row, "split": "half", **so_far} for row in rows])

    label, numbers = f"{condition} seed {seed}", numbers_of(run, seed)
    state, curve = yield from train(algorithm, config, draw, numbers, folder, label, key, positives, half, engine)
    if not (folder / "half.json").is_file():
        half(state, curve)
    who = {"condition": condition, "seed": seed}
    facts = {
        "condition": condition,
        "algorithm": algorithm,
        **{k: getattr(config, k, None) for k in ("kl_coef", "kl_target", "learning_rate")},
        "updates": updates,
        "seed": seed,
    }
    with uncut(engine), whole(folder / "final") as work:
        rows, samples = evaluate_state(params, draw, state, seed, "test", measured)
        rows = [{**row, **training_facts(curve, config, updates)} for row in rows]
        rows += json.loads((folder / "half.json").read_text())
        tables.write_table(work / "per_seed.csv", [{**facts, **row} for row in rows])
        tables.write_table(work / "curves.csv", [{**who, **metrics} for metrics in curve])
        atomic_json(work / "samples.json", [{**who, **sample} for sample in samples])
        if hasattr(state, "kl"):  # learners without token rewards have no episode to show
            atomic_json(work / "episode.json", {**who, **episode(algorithm, config, draw, state)})
        if params.keep_policies:
            about = card(params, condition, seed, config)
            training.save(work / "policy", state.policy.cpu(), draw.tokenizer, about)
        seal(work)


def uncut(engine: Engine | None) -> AbstractContextManager:
    """Within it one process works alone on whole batches."""
    return nullcontext() if engine is None else engine.uncut()


def numbers_of(run: Run, seed: int) -> int:
    """The seed of a training's random numbers."""
    return stream(seed, "replicate", run.replicate) if run.replicate else seed


def place(params: Condition, seed: int, tuned: dict) -> tuple[str, Path]:
    """(key, folder in the scratch) of a seed."""
    key = digest(inputs(params, seed, params.run, settings_of(params, seed, params.config(**tuned))))
    return key, params.scratch / "runs" / params.condition / f"seed{seed}-{key[:16]}"


def finished(params: Condition, final: Path) -> bool:
    """Whether a seed's finished files are there, its policy among them where that is kept."""
    return is_sealed(final) and ((final / "policy").is_dir() or not params.keep_policies)


def follow(params: Condition, seed: int, tuned: dict, team: Team) -> None:
    """What the other processes of a team do while the first runs a seed: train with it, and keep nothing."""
    if of_first(team, 0):  # it is finished
        return
    run, (key, folder) = params.run, place(params, seed, tuned)
    draw = load_draw(params, seed, run)
    engine, label = means.engine_of(params, draw, team), f"{params.condition} seed {seed}, process {team.rank}"
    config = params.config(**tuned)
    ended(train(run.algorithm, config, draw, numbers_of(run, seed), folder, label, key, engine=engine))


def chosen(params: Condition) -> dict:
    """The learning rate that the search on validation prompts chose for this run; nothing where none is searched."""
    if not (search := params.searched):
        return {}
    path = params.folder / "tune" / f"{search}.json"
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; run the stage tune@{search} first (make reproduce)")
    return {"learning_rate": json.loads(path.read_text())["learning_rate"]}


def settings_of(params: Condition, seed: int, config: Settings) -> dict:
    """The settings of a seed of a condition, the learner's among them."""
    return {"condition": params.condition, "seed": seed, **params.run.model_dump(), **config.model_dump()}


def inputs(params: Trained, draw: int, run: Run, settings: dict) -> dict[str, str]:
    """All that decides a run's numbers: settings read, "code" that runs, models and texts it starts from."""
    start = [Path(base_folder(params, draw, run))] if run.start else []
    files, scales = params.reward_files, {}
    code, without = code_of(run, getattr(params.task, "name", ""), means.plain(params))
    if run.world:
        files, folders = [], [world_folder(params, draw, run.world), *start]
    else:
        texts, trained, further = folders_of(params, draw)
        folders = [
            texts,
            trained,
            *(p for p in (further / "judge_2", further / run.base, further / run.reward) if p.is_dir()),
            *start,
        ]
        for part in ("policy", "evaluator", "reward"):  # a brought model is used where it is: its content counts
            place = Path(base.locate(trained, part, params.mirror))
            if place.is_dir() and trained not in (place, *place.parents):
                folders.append(place)
        if run.reward not in ("reward", REVERSED):
            known = json.loads((further / "standard.json").read_text())
            scales = {"scales": [known[run.reward], known["reward"]]}
    values = {**params.pick(*READ), **settings, **scales, "algorithm": run.algorithm}
    if not means.plain(params):
        values |= means.facts(params)
    return fingerprint_inputs(values, files=files, folders=folders, code=code, without=without)


def code_of(run: Run, task: str, plain: bool = True) -> tuple[list[str], list[str]]:
    """Roots of the code that decides a seed's numbers, and what a run of this kind never calls. task: "" in a world."""
    found = [root_of(run_seed), *roots.of_run(run.algorithm, task, here())]
    return found, roots.unused(bool(run.world), plain)


def card(params: Trained, condition: str, seed: int, config: Settings) -> str:
    """A short model card: what this policy is, how it was trained, what it is not for."""
    lines = "\n".join(f"- {k}: {v}" for k, v in config.model_dump().items())
    return (
        f"---\nlibrary_name: transformers\npipeline_tag: text-generation\n---\n# {condition}, seed {seed}\n\n"
        f"A language model fine-tuned by reinforcement learning in profile `{params.profile}` of rlnlp, for the study "
        f"of reward hacking. Not for any other use.\n\nSettings:\n{lines}\n"
    )
