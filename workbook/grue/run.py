"""One task x one condition x one seed: its raw or supervised weights, its training, its numbers on the test examples.

    bench = Bench(settings.load("params.yaml"), Path(".scratch/grue"))
    part(bench, task("common_gen"), arm("sup_ppo"), seed=1)   # the folder of its files, made once, with what it needs
    collect(bench, task("common_gen"), arm("sup_ppo"), out)   # all seeds as tables

A part is kept under the content of all that decides it (settings, code, libraries, what it starts from). A kill costs
what was done since the last state; a part that is there is not made again.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from tqdm.auto import tqdm

from rlnlp import checkpoint, pretrained
from rlnlp.learners.common import Score, TrainingError
from rlnlp.scoring import scorer
from rlnlp.settings import Settings
from rlnlp.types import Prompts, take, to
from workbook.draws.tokenizer import train_tokenizer
from workbook.draws.training import keep_memory, save
from workbook.grue import real, warm_start
from workbook.grue.arms import ARMS, Arm, arm, shuffled
from workbook.grue.encoding import encode
from workbook.grue.evaluate import evaluate, spread
from workbook.grue.example import Example, Task
from workbook.grue.raw import ATTENTION, causal_tokenizer, content, t5_tokenizer, train_causal, train_t5
from workbook.grue.rows import examples
from workbook.grue.scoring import families, ready
from workbook.grue.settings import Grue
from workbook.grue.tasks import root
from workbook.grue.world import raw as world
from workbook.results.tables import short
from workbook.runs import algorithms
from workbook.store import states, tables
from workbook.store.files import atomic_json, atomic_write, file_hash, read_json, whole
from workbook.store.fingerprint import digest, fingerprint_inputs
from workbook.store.identity import here, root_of
from workbook.store.once import once
from workbook.texts import hub

WAIT_S = 7200  # for a part that another process is making
SAMPLED = ("temperature", "top_k", "top_p", "min_new_tokens")  # beside the horizon, how training samples
ROWS = 4  # rows asked for per example: no generated set has more references
PARTS = ("train", "validation", "test")


@dataclass(frozen=True)
class Read:
    """What raw models read. texts: (draw, n) -> n texts; mix: (draw, n) -> n pairs (prompt, answer)."""

    texts: Callable[[int, int], Sequence[str]] = world.texts
    mix: Callable[[int, int], Sequence[tuple[str, str]]] = world.mix


@dataclass(frozen=True)
class Bench:
    """Where the parts of one settings file are made.

    work: folder of states and finished parts; words: all that a tokenizer must know, in the order of its ids.
    """

    settings: Grue
    work: Path
    words: Sequence[str]
    read: Read = Read()
    progress: bool = False


# ------------------------------------------------------------------------------------------ raw models
def raw_inputs(bench: Bench, causal: bool, seed: int) -> dict[str, str]:
    """What decides a raw model; of one that was brought, its content (of the hub's: its id)."""
    ours = bench.settings
    if named := ours.bring.named(causal):
        return content(named)
    values = {"shape": ours.causal if causal else ours.raw, "texts": ours.raw.texts, "words": list(bench.words)}
    values |= {"seed": seed, "threads": ours.threads, "causal": causal}
    if ours.real:
        read = real.readers(ours, causal)
        values |= {"rows": [[task.name, ours.rows_of(task.name), ours.overrides[task.name].test] for task in read]}
        values |= {f"data {task.name}": real.identity(task) for task in read}
        named = [*_ours([root(task.name) for task in read]), root_of(real.texts)]
        return fingerprint_inputs(values, code=[root_of(_make_raw), *named])
    return fingerprint_inputs(values, code=[root_of(_make_raw), *_ours(map(root_of, asdict(bench.read).values()))])


def raw(bench: Bench, causal: bool, seed: int) -> Path | str:
    """The folder of a draw's raw model, with its tokenizer and loss.json; made once. Of one that was brought its
    folder, or its id where the hub is to be asked."""
    if named := bench.settings.bring.named(causal):
        return hub.find("models", named)
    make = lambda fresh, home: _make_raw(bench, causal, seed, fresh, home)
    return once(bench.work / "raw", raw_inputs(bench, causal, seed), make, WAIT_S)


def _make_raw(bench: Bench, causal: bool, seed: int, fresh: Path, home: Path) -> None:
    ours, label = bench.settings, f"raw model {seed}" if bench.progress else ""
    torch.set_num_threads(ours.threads)
    texts = real.texts(ours, causal, seed) if ours.real else bench.read.texts(seed, ours.raw.texts)
    if causal:
        words = functools.partial(train_tokenizer, texts, "bpe", ours.causal.vocabulary)
        tokenizer = words() if ours.real else causal_tokenizer(bench.words)
        model, curve = train_causal(texts, tokenizer, ours.causal, seed, home, label)
    else:
        tokenizer = t5_tokenizer(bench.words, texts, ours.raw.vocabulary)
        mix = () if ours.real else bench.read.mix(seed, ours.raw.pairs)
        model, curve = train_t5(texts, mix, tokenizer, ours.raw, seed, home, label)
    save(fresh, model, tokenizer, "A raw model of the benchmark: random weights, then text alone.")
    atomic_json(fresh / "loss.json", curve)


# ----------------------------------------------------------------------------------------------- parts
def inputs(bench: Bench, task: Task, chosen: Arm, seed: int) -> dict[str, str]:
    """What decides the numbers of a part."""
    ours, learner = bench.settings, chosen.learner
    start = inputs(bench, task, arm(chosen.start), seed) if chosen.start else raw_inputs(bench, task.causal, seed)
    values = {
        "task": task.name,
        "seed": seed,
        "start": digest(start),
        "rows": ours.rows_of(task.name),
        "prompt_tokens": ours.prompt_tokens(task),
        "horizon": ours.horizon(task),
        "decode": asdict(ours.decode(task)),
        "reward": ours.reward(task),
        "metrics": task.metrics,
        "spread": {name: getattr(ours.sampling_of(task), name) for name in SAMPLED},
        "learner": ours.learner_of(chosen, task.name, ours.horizon(task)) if learner else None,
        "imitation": ours.supervised_of(task.name) if chosen.imitates else None,
        "steps": ours.steps_of_learning(task) if chosen.imitates and chosen.start else None,
        "evaluation": ours.evaluation.model_dump(exclude={"batch_size"}),
    }
    if ours.real:
        values |= {"test": ours.overrides[task.name].test, **real.identity(task)}
    if ours.device != "cpu":
        values["device"] = ours.device
    if models := ours.models_of(task.name):
        values["models"] = {score: content(model) for score, model in models.items()}
    if chosen.reward:
        values["paid"] = dict(chosen.reward)
    code = [root_of(_make_part), root_of(chosen.pay), *(algorithms.roots(learner, here()) if learner else [])]
    return fingerprint_inputs(values, code=[*code, *families(chosen.reward), *_of_task(ours, task)])


def roots(ours: Grue, task: Task) -> list[str]:
    """The code that decides the numbers of a task's parts, whatever the arm."""
    learners = sorted({each.learner for each in ARMS.values()} - {""})
    named = [root for learner in learners for root in algorithms.roots(learner, here())]
    paid = families({name for each in ARMS.values() for name in each.reward})
    return [root_of(part), root_of(shuffled), *named, *paid, *_of_task(ours, task)]


def _of_task(ours: Grue, task: Task) -> list[str]:
    return _ours([root(task.name)]) + families({*task.metrics, *ours.reward(task), *ours.models_of(task.name)})


def part(bench: Bench, task: Task, chosen: Arm, seed: int) -> Path:
    """The folder of a finished part: row.json, each.json, samples.json, curve.json, policy/. Made once, and what it
    starts from before it. Raises ``TrainingError`` naming task, arm, seed and update where training cannot go on."""
    make = lambda fresh, home: _make_part(bench, task, chosen, seed, fresh, home)
    return once(bench.work / "parts" / task.name / chosen.name, inputs(bench, task, chosen, seed), make, WAIT_S)


def _make_part(bench: Bench, task: Task, chosen: Arm, seed: int, fresh: Path, home: Path) -> None:
    ours = bench.settings
    begin = part(bench, task, arm(chosen.start), seed) / "policy" if chosen.start else raw(bench, task.causal, seed)
    keep_memory()
    torch.set_num_threads(ours.threads)
    model, tokenizer = pretrained.load(begin, ours.device)
    if model.config.is_encoder_decoder and ours.device == "cpu":
        model.set_attn_implementation(ATTENTION)
    rows = {name: given(ours, task, seed, name) for name in PARTS}
    prompts = {name: to(encode(some, tokenizer, ours.prompt_tokens(task)), ours.device) for name, some in rows.items()}
    reads = {"models": ours.models_of(task.name), "device": ours.device}
    scoring = ready(task, ours.reward(task), rows["train"], **reads)
    paid = ready(task, chosen.reward, rows["train"], **reads).reward if chosen.reward else scoring.reward
    policy, curve = _trained(bench, task, chosen, seed, (model, tokenizer), prompts, paid, home)
    found = evaluate(
        policy,
        tokenizer,
        prompts["test"],
        rows["test"],
        task,
        ours.decode(task),
        scoring,
        f"{task.name}/{seed}",
        ours.evaluation.batch_size,
    )
    how, train = ours.evaluation, prompts["train"]
    config, sizes = ours.sampling_of(task), (how.spread_prompts, how.spread_samples)
    numbers = spread(policy, tokenizer, train, config, scoring.reward, seed, *sizes)
    about = {**said_of(ours, task), "absent": " ".join(scoring.absent) or None}
    atomic_json(fresh / "row.json", found.row | numbers | about)
    atomic_json(fresh / "each.json", {"example_id": prompts["test"].example_ids, **found.each})
    atomic_json(fresh / "samples.json", _shown(ours, rows["test"][: how.samples], found.responses, found.each))
    atomic_json(fresh / "curve.json", curve)
    save(fresh / "policy", policy, tokenizer, f"{task.title}: {chosen.label}, seed {seed}.")


def _trained(
    bench: Bench,
    task: Task,
    chosen: Arm,
    seed: int,
    start: tuple[Any, Any],
    prompts: dict[str, Prompts],
    reward: Callable,
    home: Path,
) -> tuple[Any, list[dict]]:
    """(policy, curve) of an arm, from the model and tokenizer that it starts with."""
    ours, (model, tokenizer), label = bench.settings, start, f"{task.name} {chosen.name} seed {seed}"
    horizon = ours.horizon(task)
    if chosen.imitates:
        steps = ours.steps_of_learning(task) if chosen.start else None
        some = first(prompts["train"], ours.rows_of(task.name).supervised)
        given = (some, prompts["validation"], ours.supervised_of(task.name), horizon, seed, home, steps)
        return warm_start.fine_tune(model, tokenizer, *given, progress=label if bench.progress else "")
    if not chosen.learner:
        return model, []
    config = ours.learner_of(chosen, task.name, horizon)
    given = (prompts["train"], chosen.pay(scorer(reward, tokenizer), seed), config, seed, home, label)
    return reinforce(algorithms.module(chosen.learner), model, *given, bar=bench.progress)


def reinforce(
    learner: ModuleType, model, prompts, score: Score, config: Settings, seed: int, home: Path, label: str, bar=False
) -> tuple[Any, list[dict]]:
    """(policy, metrics of each update) of a learner of the core, continued from the state in ``home`` if one is there.

    bar: whether one is shown. Raises ``TrainingError`` naming the run, ``label``, and the update.
    """
    state, curve = learner.init(model, config, seed), []
    pace = states.Pace(checkpoint.size(state))
    if saved := states.load_state(home):
        checkpoint.unpack(state, saved[0], saved[1]["numbers"])
        curve = saved[1]["curve"]
    try:
        updates = learner.train(state, prompts, score, config)
        shown = {"desc": label, "unit": "update", "disable": not bar}
        for metrics in tqdm(updates, total=config.updates, initial=state.update, **shown):
            curve.append(metrics)
            if pace.due():
                with pace.saving():
                    tensors, numbers = checkpoint.pack(state)
                    states.save_state(home, tensors, {"numbers": numbers, "curve": curve}, keep=1)
    except (TrainingError, ValueError) as error:  # RewardError and failed checks of records are ValueErrors
        raise TrainingError(f"{label}, update {state.update + 1}: {error}") from error
    return state.policy.eval(), curve


def given(ours: Grue, task: Task, seed: int, part: str) -> list[Example]:
    """The examples of a part (train, validation, test) of a seed: generated for it, or real ones."""
    if ours.real:
        return real.examples(ours, task, seed, part)
    return drawn(task, seed, part, getattr(ours.rows_of(task.name), part))


def said_of(ours: Grue, task: Task) -> dict[str, str]:
    """What a table says of the rows that its numbers are of."""
    return real.about(ours, task) if ours.real else {"split": "test"}


def drawn(task: Task, draw: int, name: str, count: int) -> list[Example]:
    """The first ``count`` examples of a part of a draw. Several rows may be one example (the references of a concept
    set) and one row several (the turns of a dialogue). Raises ``ValueError`` where so few rows make fewer."""
    for asked in (count + 1, ROWS * count):  # as a rule a row is an example, and making rows takes its time
        found = examples(task, task.rows(draw, name, asked))
        if len(found) > count:  # the rows of one example stand together: with the next one begun, it is whole
            break
    if len(found) < count:
        raise ValueError(f"{task.name}: expected {count} examples of {asked} rows ({name}), got {len(found)}")
    return found[:count]


def first(prompts: Prompts, count: int) -> Prompts:
    """The first ``count`` of them that have a reference to imitate."""
    rows = [row for row, references in enumerate(prompts.references) if references]
    return take(prompts, torch.tensor(rows[:count], dtype=torch.long))


def _shown(ours: Grue, some: Sequence[Example], responses: Sequence[str], each: dict[str, list[float]]) -> list[dict]:
    """Samples for readers: the prompt (of a real row, which is not ours, its last words), what was said, what it was
    paid, what the judge says of it. No reference."""
    judged = each.get("judge/judge", [None] * len(responses))
    return [
        {
            "example_id": one.id,
            "prompt": short(one.prompt) if ours.real else one.prompt,
            "response": said,
            "reward": paid,
            "judge": verdict,
        }
        for one, said, paid, verdict in zip(some, responses, each["reward"], judged, strict=False)
    ]


def _ours(roots) -> list[str]:
    """The roots that stand in this tree: a made-up task of a test has none."""
    return [root for root in roots if here().has(root)]


# ---------------------------------------------------------------------------------------------- tables
def collect(bench: Bench, task: Task, chosen: Arm, out: Path) -> None:
    """Every seed of a part into ``out``: per_seed.csv, curves.csv, each.json, samples.jsonl. A seed that fails does not
    keep the others from being made; then ``TrainingError`` names it and ``out`` is not written."""
    made, failed = {}, []
    for seed in bench.settings.seeds:
        try:
            made[seed] = part(bench, task, chosen, seed)
        except TrainingError as error:
            failed.append(error)
    if failed:
        said = "; ".join(map(str, failed))
        raise TrainingError(f"{len(failed)} of {len(bench.settings.seeds)} seeds failed: {said}") from failed[0]
    who = {seed: {"task": task.name, "condition": chosen.name, "seed": seed} for seed in made}
    with whole(out) as fresh:
        rows = [
            who[seed] | _checkpoint(bench, task, chosen, seed) | _json(folder, "row") for seed, folder in made.items()
        ]
        tables.write_table(fresh / "per_seed.csv", rows)
        curves = [who[seed] | entry for seed, folder in made.items() for entry in _json(folder, "curve")]
        columns = list(dict.fromkeys(name for row in curves for name in row))
        tables.write_table(fresh / "curves.csv", [dict.fromkeys(columns) | row for row in curves], columns)
        atomic_json(fresh / "each.json", {str(seed): _json(folder, "each") for seed, folder in made.items()})
        samples = [who[seed] | one for seed, folder in made.items() for one in _json(folder, "samples")]
        atomic_write(fresh / "samples.jsonl", "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in samples))


def _json(folder: Path, name: str) -> Any:
    return read_json(folder / f"{name}.json")


def _checkpoint(bench: Bench, task: Task, chosen: Arm, seed: int) -> dict[str, str]:
    """What a table prints of the weights: the first digits of the content of the raw model that they come from, or the
    name of the one that was brought."""
    if named := bench.settings.bring.named(task.causal):
        return {"checkpoint": named}
    weights = Path(raw(bench, task.causal, seed)) / "model.safetensors"
    return {"checkpoint": f"raw {file_hash(weights)[:8]}"}
