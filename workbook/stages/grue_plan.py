"""What a profile of the benchmark that brings its models would take and cost, without doing it.

    python -m workbook.stages.grue_plan paper      # or: make grue-plan PROFILE=paper

Looks for every model and data set where a run would look; hours, memory and disk are estimates from the settings and
the models' shapes alone. Exit status: 0 all is there; 1 the settings are wrong; 3 something has to be downloaded.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM, GPT2Config, T5Config

from rlnlp.settings import nearest
from workbook.grue import settings as grue
from workbook.grue import tasks
from workbook.grue.arms import arm
from workbook.grue.example import Task
from workbook.grue.rows import place, places
from workbook.grue.settings import Grue
from workbook.stages.costs import BYTES, DEVICES
from workbook.stages.outside import config_of
from workbook.stages.plan_text import table
from workbook.stages.shapes import Shape, shape_of
from workbook.texts import hub

ROOT = Path(__file__).resolve().parents[2]
ASSUMED = {  # shapes of the published models, where their config.json is not at hand
    False: ("T5-base", lambda: T5Config(d_model=768, d_ff=3072, d_kv=64, num_layers=12, num_heads=12)),
    True: ("GPT-2", GPT2Config),
}
FORMULA = """FLOPs: 2 N per token forward, 4 N more backward, N all parameters; of an encoder-decoder half of that, as a
token passes one of its halves. Prompts and answers at their full length, as many examples as the settings say, of each
one reference.
PPO: rollout, reference, value (mask) model forward; in each epoch policy and value forward and backward. Evaluation:
every beam. Memory: fp32 weights of policy, reference, value and mask model, gradients and two Adam moments of what is
trained, a minibatch's activations and logits. Disk: the weights of every arm and seed, and the models that are
downloaded. {tflops:g} TFLOP/s sustained ({why}),
and {wait:g} ms a forward pass, a backward one as two."""


@dataclass(frozen=True)
class Part:
    """One seed of an arm. hours: of the device; memory: bytes at the peak."""

    task: str
    arm: str
    hours: float
    memory: float


def shape(ours: Grue, causal: bool) -> Shape:
    """Of the model that is brought, counted without its weights; assumed where its config.json is not at hand."""
    named, (what, assumed) = ours.bring.named(causal), ASSUMED[causal]
    try:
        found = hub.find("models", named)
        config, said = (config_of(found), f"config.json of {named}") if isinstance(found, Path) else (assumed(), "")
    except hub.DataError:
        config, said = assumed(), ""
    kind = AutoModelForCausalLM if causal else AutoModelForSeq2SeqLM
    with torch.device("meta"):
        return shape_of(kind.from_config(config), said or f"{what}'s shape")


def parts(ours: Grue, task: Task, model: Shape, sustained: float, wait: float) -> Iterable[Part]:
    """The arms of a task. sustained: FLOP/s; wait: seconds of a pass beside its arithmetic."""
    P, T, decode = ours.prompt_tokens(task), ours.horizon(task), ours.decode(task)
    token = 2.0 * model.parameters * (1.0 if task.causal else 0.5)
    sizes, pairs = ours.rows_of(task.name), ours.supervised_of(task.name)
    test = sizes.test * decode.beams
    for name in grue.arms_of(ours, task.name):
        chosen = arm(name)
        flops = test * (P + decode.max_new_tokens) * token  # its evaluation
        passes = math.ceil(test / ours.evaluation.batch_size) * decode.max_new_tokens
        rows, copies, trained = 0, 1, 0
        if chosen.imitates:
            own = pairs.epochs * sizes.supervised / pairs.batch_size
            steps = ours.steps_of_learning(task) if chosen.start else own
            flops += steps * pairs.batch_size * (P + T) * 3 * token
            passes += 3 * steps
            rows, copies, trained = pairs.batch_size, 2, 1
        elif chosen.learner:
            config = ours.learner_of(chosen, task.name, T)
            masked, valued = hasattr(config, "mask_top_p"), config.value == "separate"
            tokens, steps = config.episodes_per_update * (P + T), config.epochs * config.minibatches
            flops += config.updates * tokens * token * (2 + masked + valued + 3 * config.epochs * (1 + valued))
            passes += config.updates * ((1 + masked) * T + 3 + 3 * steps * (1 + valued))
            rows = math.ceil(config.episodes_per_update / config.minibatches)
            copies, trained = 2 + masked + valued, 1 + valued
        held = (copies + 3 * trained) * model.parameters  # gradients and two moments
        held += (1 + bool(rows)) * rows * ((P + T) * model.kept * model.layers * model.width + 3 * T * model.vocabulary)
        yield Part(task.name, name, (flops / sustained + passes * wait) / 3600, BYTES * held)


def looked(ours: Grue) -> tuple[list[tuple[str, str, str]], int]:
    """((kind, name, where it is or what to download), how many are not at hand)."""
    named = [ours.bring.named(causal) for causal in sorted({tasks.task(t).causal for t in ours.tasks})]
    named += [model for task in ours.tasks for model in ours.models_of(task).values()]
    found, missing = [], 0
    for name in filter(None, dict.fromkeys(named)):
        try:
            where = hub.find("models", name)
        except hub.DataError:
            where = ""
        missing += not isinstance(where, Path)
        found.append(("model", name, _said(where, f"models/{name}")))
    for task in map(tasks.task, ours.tasks):
        try:
            where = place(task)
        except hub.DataError:
            where = ""
        missing += not isinstance(where, Path)
        found.append(("data set", f"{task.hub} {task.config}".strip(), _said(where, f"datasets/{places(task)[0]}")))
    return found, missing


def _said(where: Path | str, wanted: str) -> str:
    if isinstance(where, Path):
        return f"at hand: {where}"
    return "to download: the hub" if where else f"MISSING: download it, or a mirror's {wanted} (RLNLP_MIRROR)"


def text(ours: Grue, sustained: float, wait: float) -> tuple[str, int]:
    """(the plan for a reader, how many models and data sets are not at hand)."""
    models = {causal: shape(ours, causal) for causal in {tasks.task(name).causal for name in ours.tasks}}
    made = [p for t in map(tasks.task, ours.tasks) for p in parts(ours, t, models[t.causal], sustained, wait)]
    found, missing = looked(ours)
    seeds, hours = len(ours.seeds), sum(part.hours for part in made)
    weights = sum(models[tasks.task(part.task).causal].parameters for part in made) * seeds * BYTES
    download = sum(model.parameters for model in models.values()) * BYTES
    lines = [
        f"plan of the benchmark's profile {ours.profile}: {len(made)} arms x {seeds} seeds on {ours.device}",
        *("  " + "  ".join(row) for row in found),
        *(f"  {m.parameters:,} parameters, {m.layers} layers of {m.width} ({m.source})" for m in models.values()),
        "",
        *table(
            ("", "arm", "hours a seed", f"hours, {seeds} seeds", "peak GiB"),
            [_row(p, seeds) for p in made],
        ),
        "",
        f"in all: {hours * seeds:,.0f} hours, {max(p.memory for p in made) / 2**30:.0f} GiB at the peak, "
        f"{(weights + download) / 2**30:.0f} GiB of disk ({download / 2**30:.1f} to download beside the data sets)",
        "",
        FORMULA.format(tflops=sustained / 1e12, wait=1000 * wait, why=_why(ours)),
    ]
    return "\n".join(lines), missing


def _row(part: Part, seeds: int) -> tuple[str, ...]:
    return part.task, part.arm, f"{part.hours:.2f}", f"{part.hours * seeds:.1f}", f"{part.memory / 2**30:.1f}"


def _why(ours: Grue) -> str:
    return DEVICES[ours.device.partition(":")[0]].why


def _settings(profile: str) -> Path:
    """The settings file of a profile. Raises: ValueError for one that there is not, and for generated rows."""
    found = {path.parent.name: path for path in sorted((ROOT / "grue").glob("*/params.yaml"))}
    if profile == "mini":
        brought = [name for name, path in found.items() if _brings(grue.load(path))]
        raise ValueError(
            "profile mini: generated rows and models of its own need no plan (make grue, 45 to 120 minutes); expected "
            f"PROFILE={' or '.join(brought)}"
        )
    if profile not in found:
        raise ValueError(f"profile: expected one of {', '.join(found)}, got {profile!r}{nearest(profile, found)}")
    return found[profile]


def _brings(ours: Grue) -> bool:
    return bool(ours.bring.encoder_decoder and ours.bring.causal)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m workbook.stages.grue_plan", description=__doc__.partition("\n")[0])
    parser.add_argument("profile", help="a folder of grue/ whose models are brought: paper")
    args = parser.parse_args(argv)
    try:
        ours = grue.load(_settings(args.profile))
        if not _brings(ours):
            raise ValueError(f"profile {args.profile}: trains its own models; the comment of its settings has its cost")
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    device = DEVICES[ours.device.partition(":")[0]]
    said, missing = text(ours, device.sustained, device.pass_seconds)
    print(said)
    return 3 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
