"""What a profile would do and cost, without doing it: `make plan PROFILE=paper`, on any machine, in seconds.

Checks the settings, looks for every model and data set where a run would look, and estimates episodes, tokens, FLOPs,
memory and GPU-hours per ablation, a run that several ablations share being counted once. Loads no weights.
Exit status: 0 all is well; 1 the settings are wrong; 3 they are sound and a model or data set is missing.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rlnlp.settings import ConfigError
from workbook.runs import algorithms, checks
from workbook.runs.params import Params
from workbook.stages import costs
from workbook.stages.costs import Cost, Shape
from workbook.stages.progress import Durations
from workbook.texts import hub

FORMULA = """FLOPs: 2 N per token forward, 4 N more backward; N = all parameters; prompts and responses at their full
length.
An update of PPO: rollout, reference, value and reward model (and mask model) forward; in each epoch policy and value
forward and backward. Of TRPO: 12 N for each product with the Fisher matrix. Of DQN: a response forward and backward,
and through the target, for each token drawn from the replay. Of supervised learning: policy forward and backward, after
sampling where it imitates samples. In a world: no reward model, no human reviews.
A run is evaluated at its end on the test prompts and after half its updates on the validation prompts, with each of its
decodings: generation, then evaluator, policy and reference (the exact KL), reward model with and without the prompt.
Tokens are of responses: sampled in training; trained on, once per epoch; sampled in evaluation.
Memory: fp32 weights of all models, gradients and two Adam moments of what is trained, and the larger of a minibatch's
activations and evaluation's logits and key-value caches."""


@dataclass(frozen=True)
class Device:
    """sustained: FLOP/s; pass_seconds: what a forward pass of a small batch takes beside its arithmetic."""

    sustained: float
    pass_seconds: float
    why: str


DEVICES = {
    "cuda": Device(26.8e12, 0.010, "40 % of an H200's 67 in plain fp32, as this package computes: no TF32, no bf16"),
    "cpu": Device(60e9, 0.002, "one thread of an EPYC of 2024, measured; times `threads`"),
}


def check_claims(params: Params) -> None:
    """Raises ClaimError naming each listed claim that the runs cannot decide, and every problem of claims.yaml."""
    from workbook.ledger.checks import load
    from workbook.ledger.judge import check_listed

    known = load(params.folder / params.root / "claims.yaml")
    check_listed(known, params.claims, params.all_runs, params.profile)


# ------------------------------------------------------------------------------------------------------- what is there
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
    wanted = [("datasets", "imdb", "reviews, prompts")] if params.task.name == "imdb" else []
    if params.bring.model:
        wanted.append(("models", params.bring.model, "policy, reference, value, evaluator"))
    if params.bring.reward and not params.reward_files:
        wanted.append(("models", params.bring.reward, "reward"))
    return wanted


def look(params: Params, kind: str, name: str, use: str) -> Found:
    """Where a model or data set is: `hub.find`'s places, the hub asked too; of a model its config.json is read."""
    mirror = str(params.folder / Path(params.mirror).expanduser()) if params.mirror else ""
    here = params.folder / name
    try:
        place = hub.find(kind, str(here) if here.is_dir() else name, mirror)
    except hub.DataError as error:
        return Found(kind, name, use, "", str(error).partition("\n")[2] or str(error))
    try:
        if not isinstance(place, Path):
            _ask_the_hub(kind, name)
        if kind == "models":
            _config(place)
    except Exception as error:  # noqa: BLE001 (the hub, its network and the file formats raise what they like)
        said = (str(error).strip().splitlines() or [type(error).__name__])[0]
        if isinstance(place, Path):
            return Found(kind, name, use, "", f"{place}: {said}")
        roots = [Path(root).expanduser() for root in (mirror, os.environ.get("RLNLP_MIRROR", "")) if root]
        where = [f"{root / kind / name}: no such folder" for root in roots] or ["mirror, $RLNLP_MIRROR: not set"]
        return Found(kind, name, use, "", "\n".join([*where, f"the hub: {said}"]))
    return Found(kind, name, use, str(place) if isinstance(place, Path) else "the hub")


def _ask_the_hub(kind: str, name: str) -> None:
    """Returns if the hub has it, or had it and a run would find the copy; raises what the hub's client raises."""
    from huggingface_hub import HfApi, try_to_load_from_cache

    if kind == "models" and isinstance(try_to_load_from_cache(name, "config.json"), str):
        return
    getattr(HfApi(), {"models": "model_info", "datasets": "dataset_info"}[kind])(name, timeout=10)


def _config(place: Path | str):
    """A model's config.json, from a folder or from the hub; no weights."""
    from rlnlp import pretrained

    return pretrained.read_config(place)


# -------------------------------------------------------------------------------------------------------------- shapes
class _Tokens:
    """All that a model's shape needs of a tokenizer."""

    eos_token_id, pad_token_id = 0, 1

    def __init__(self, size: int):
        self.size = size

    def __len__(self) -> int:
        return self.size


def shapes(params: Params, found: Sequence[Found]) -> tuple[Shape, Shape | None]:
    """(policy, reward model; None for a reward function of the user's), built on torch's meta device.

    A brought model that is missing is taken to have the published one's shape: GPT-2's, DistilBERT's.
    """
    import torch
    from transformers import (
        AutoModelForCausalLM,
        AutoModelForSeq2SeqLM,
        AutoModelForSequenceClassification,
        DistilBertConfig,
        GPT2Config,
    )

    from workbook.draws.classifier import new_classifier
    from workbook.draws.language_model import new_language_model

    def brought(name: str, assumed, what: str):
        place = next(f.place for f in found if f.kind == "models" and f.name == name)
        if not place:
            return assumed, f"missing; {what}'s shape assumed"
        return _config(name if place == "the hub" else place), f"config.json of {name}"

    tokens, reward = _Tokens(vocabulary(params)), None
    with torch.device("meta"):
        if params.bring.model:
            settings, source = brought(params.bring.model, GPT2Config(), "GPT-2")
            kind = AutoModelForSeq2SeqLM if settings.is_encoder_decoder else AutoModelForCausalLM
            policy = costs.shape_of(kind.from_config(settings), source)
        else:
            policy = costs.shape_of(new_language_model(tokens, params.language_model, 0), "section language_model")
        if params.bring.reward and not params.reward_files:
            settings, source = brought(params.bring.reward, DistilBertConfig(), "DistilBERT")
            reward = costs.shape_of(AutoModelForSequenceClassification.from_config(settings), source)
        elif not params.bring.reward:
            reward = costs.shape_of(new_classifier(tokens, params.reward_model, 0), "section reward_model")
    return policy, reward


def world_shapes(params: Params) -> dict[str, Shape]:
    """The models of the worlds that params.yaml names, as its runs need them."""
    import torch

    from workbook.draws import worlds
    from workbook.draws.language_model import new_language_model

    found = {}
    settings = params.language_model.replace(context=worlds.CONTEXT)
    for name in params.worlds:
        tokens = _Tokens(len(worlds.WORLDS[name].tokenizer()))
        with torch.device("meta"):
            found[name] = costs.shape_of(new_language_model(tokens, settings, 0), f"world {name}")
    return found


def vocabulary(params: Params) -> int:
    """Tokens of the tokenizer that the profile would train."""
    from workbook.texts import language

    settings = params.language_model
    return settings.vocabulary if settings.tokenizer == "bpe" else len(language.vocabulary()) + 3  # <eos>, <pad>, <unk>


# ---------------------------------------------------------------------------------------------------------------- plan
def plan(params: Params, sustained: float, pass_seconds: float) -> dict:
    """The whole plan as plain values: what `--json` prints and `text` lays out. Rows have Cost's fields, and hours.

    sustained: FLOP/s; pass_seconds: beside its arithmetic. Raises ConfigError where prompt and response do not fit
    the model.
    """
    found = [look(params, *wanted) for wanted in named(params)]
    (policy, reward), worlds = shapes(params, found), world_shapes(params)
    need = params.task.prompt_tokens + params.sampling.max_new_tokens
    if policy.positions and need > policy.positions:
        raise ConfigError(
            f"{params.path}: task.prompt_tokens: expected prompt + response <= positions of {params.bring.model} "
            f"({policy.positions}), found {need}"
        )

    def row(name: str, cost: Cost, **more) -> dict:
        return {"name": name, **more, **dataclasses.asdict(cost), "hours": cost.hours(sustained, pass_seconds)}

    seeds = len(params.seeds)
    each = {name: costs.of_run(params, name, policy, reward, worlds).times(seeds) for name in params.all_runs}
    shown = {name: report.conditions for name, report in params.reports.items()}
    if rest := tuple(name for name in each if not any(name in conditions for conditions in shown.values())):
        shown["(no report)"] = rest
    home: dict[str, str] = {}  # condition: the report that counts it
    for report, conditions in shown.items():
        for name in conditions:
            home.setdefault(name, report)
    reports = [
        row(
            report,
            sum((each[name] for name in conditions if home[name] == report), Cost()),
            conditions=[row(name, each[name], seeds=seeds, counted_in=home[name]) for name in conditions],
            runs=seeds * sum(home[name] == report for name in conditions),
        )
        for report, conditions in shown.items()
    ]
    models = (costs.models_of_a_draw(params, policy, reward) + costs.worlds_of_a_draw(params, worlds)).times(
        len(params.draws)
    )
    searches = sum((costs.search(params, algorithm, policy, reward) for algorithm in searched(params)), Cost())
    return {
        "profile": params.profile,
        "file": str(params.path),
        "device": params.device,
        "seeds": seeds,
        "found": [dataclasses.asdict(f) for f in found],
        "missing": sum(not f.place for f in found),
        "policy": dataclasses.asdict(policy),
        "reward": dataclasses.asdict(reward) if reward else None,
        "prompt_tokens": params.task.prompt_tokens,
        "response_tokens": params.sampling.max_new_tokens,
        "before": [row("models", models), row("search", searches)],
        "reports": reports,
        "conditions": len(each),
        "runs": len(each) * seeds,
        "total": row("all", sum(each.values(), models + searches)),
        "sustained": sustained,
        "pass_seconds": pass_seconds,
        "formula": FORMULA,
        "measured": measured(params),
    }


def searched(params: Params) -> list[str]:
    """Algorithms whose learning rate is searched, for all that the runs use; none for runs in a world."""
    used = {params.run(name).algorithm for name in params.all_runs if not params.run(name).world}
    return sorted({algorithms.module(name).ABOUT.searched_as for name in used} - {""})


def measured(params: Params, jobs: int = 2) -> dict | None:
    """Minutes that `make reproduce` would take with `jobs` stages side by side, from the durations of earlier stages on
    this machine; None where none was recorded."""
    known = Durations(params.scratch / "durations.json")
    if not known.known:
        return None
    stages = [f"runs@{name}" for name in params.all_runs] + [f"tune@{algorithm}" for algorithm in searched(params)]
    stages += [f"{kind}@{draw}" for kind in ("data", "models", "variants", "worlds") for draw in params.draws]
    stages += [f"report_{name}" for name in params.reports]
    timed = sum(stage in known.known for stage in stages)
    return {"minutes": sum(map(known.guess, stages)) / 60 / jobs, "jobs": jobs, "stages": len(stages), "timed": timed}


# ---------------------------------------------------------------------------------------------------------------- text
HEAD = ("episodes", "tokens sampled", "trained on", "in evaluation", "PFLOP", "peak GiB")


def _numbers(row: dict) -> list[str]:
    tokens = [f"{row[name]:,.0f}" for name in ("episodes", "sampled", "trained", "evaluated")]
    return [*tokens, f"{row['flops'] / 1e15:,.2f}", f"{row['memory'] / 2**30:.1f}", f"{row['hours']:,.2f}"]


def _columns(rows: Sequence[Sequence[str]], sides: str) -> list[str]:
    """Aligned lines; sides: < or > for each column."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(sides))] if rows else []
    return ["  " + "  ".join(f"{c:{side}{w}}" for c, side, w in zip(row, sides, widths)).rstrip() for row in rows]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a table: the first column to the left, the others to the right."""
    first, *others = _columns([head, *rows], "<" + ">" * (len(head) - 1))
    return [first, "  " + "-" * (max(map(len, [first, *others])) - 2), *others]


def text(plan: dict) -> str:
    """The plan for a reader."""
    seeds, missing, device = plan["seeds"], plan["missing"], plan["device"].partition(":")[0]
    hours = "GPU-hours" if device == "cuda" else "CPU-hours"
    ids = "; 1 id is missing" if missing == 1 else f"; {missing} ids are missing" if missing else ""
    lengths = f"prompts of up to {plan['prompt_tokens']} tokens, responses of up to {plan['response_tokens']}"
    lines = [
        f"plan of profile {plan['profile']}: the settings are sound{ids}",
        f"{plan['conditions']} conditions x {seeds} seeds = {plan['runs']} runs on {plan['device']}; {lengths}",
        "",
        "models and data sets",
        *_sources(plan),
        "",
        "all ablations; a run that several show is counted in the first",
    ]
    rows = [(r["name"], "", "", *_numbers(r)) for r in plan["before"]]
    rows += [(r["name"], str(len(r["conditions"])), str(r["runs"]), *_numbers(r)) for r in plan["reports"]]
    rows.append(("all", str(plan["conditions"]), str(plan["runs"]), *_numbers(plan["total"])))
    lines += _table(("", "conditions", "runs", *HEAD, hours), rows)
    for report in plan["reports"]:
        lines += ["", *_report(report, seeds, hours)]
    lines += ["", "how this is estimated", *[f"  {line}" for line in plan["formula"].splitlines()]]
    lines += [
        f"  {hours}: FLOPs at {plan['sustained'] / 1e12:g} TFLOP/s (default: {DEVICES[device].why}; --tflops), and",
        f"  {1000 * plan['pass_seconds']:g} ms a forward pass, a backward one as two: small batches wait for Python "
        "(--pass-ms).",
    ]
    if m := plan["measured"]:
        lines.append(
            f"  By earlier stages on this machine: about {m['minutes']:.0f} minutes with {m['jobs']} side by side "
            f"({m['timed']} of {m['stages']} stages were timed, the others are guessed)."
        )
    return "\n".join(lines)


def _sources(plan: dict) -> list[str]:
    kinds = {"models": "model", "datasets": "data set"}
    rows = [(kinds[f["kind"]], f["name"], f["use"], f["place"] or "MISSING; looked in") for f in plan["found"]]
    lines = [] if rows else ["  nothing from outside: everything is made here"]
    for found, aligned in zip(plan["found"], _columns(rows, "<<<<")):
        lines += [aligned, *[f"      {line.strip()}" for line in found["looked"].splitlines()]]
    for name in ("policy", "reward"):
        if shape := plan[name]:
            size = f"{shape['layers']} layers of {shape['width']}, {shape['vocabulary']:,} tokens"
            lines.append(f"  {name}: {shape['parameters']:,} parameters, {size} ({shape['source']})")
    return lines


def _report(report: dict, seeds: int, hours: str) -> list[str]:
    name, conditions = report["name"], report["conditions"]
    own = [row for row in conditions if row["counted_in"] == name]
    lines = [
        f"{name}: {len(conditions)} conditions x {seeds} seeds; "
        f"counted here: {len(own)} x {seeds} = {report['runs']} runs"
    ]
    if own:
        lines += _table(
            ("condition", "seeds", *HEAD, hours), [(row["name"], str(seeds), *_numbers(row)) for row in own]
        )
    for other in dict.fromkeys(row["counted_in"] for row in conditions if row["counted_in"] != name):
        shared = ", ".join(row["name"] for row in conditions if row["counted_in"] == other)
        lines.append(textwrap.fill(f"counted in {other}: {shared}", 120, initial_indent="  ", subsequent_indent="    "))
    return lines


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m workbook.stages.plan", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "profile", nargs="?", default="mini", help="mini (top level) or the name of a folder in profiles/"
    )
    parser.add_argument("--root", type=Path, default=Path("."), help="folder of the repository")
    parser.add_argument("--tflops", type=float, help="sustained TFLOP/s (default: by device; the plan says why)")
    parser.add_argument(
        "--pass-ms", type=float, help="milliseconds of a forward pass beside its arithmetic (default: by device)"
    )
    parser.add_argument("--json", action="store_true", help="the same as JSON")
    args = parser.parse_args(argv)
    try:
        params = checks.load(args.root / ("" if args.profile == "mini" else f"profiles/{args.profile}") / "params.yaml")
        check_claims(params)
        device = DEVICES[params.device.partition(":")[0]]
        threads = params.threads if params.device == "cpu" else 1
        sustained = device.sustained * threads if args.tflops is None else 1e12 * args.tflops
        found = plan(params, sustained, device.pass_seconds if args.pass_ms is None else args.pass_ms / 1000)
    except ValueError as error:  # ConfigError, ClaimError
        print(error, file=sys.stderr)
        return 1
    print(json.dumps(found, indent=1) if args.json else text(found))
    return 3 if found["missing"] else 0


if __name__ == "__main__":
    sys.exit(main())
