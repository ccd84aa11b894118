"""What a profile would do and cost, without doing it: `make plan PROFILE=paper`, on any machine, in seconds.

Checks the settings and reads the user's own files (executing none of them), looks for every model and data set where a
run would look, and estimates episodes, tokens, FLOPs,
memory and GPU-hours per ablation, a run that several ablations share being counted once; then disk, hours on one GPU
and on eight (at rates that `bench.gpu --report` measured, where it did), and what to fetch first. Loads no weights.
Exit status: 0 all is well; 1 the settings are wrong; 3 they are sound and a model or data set is missing.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from rlnlp.settings import ConfigError, nearest
from workbook.runs import profiles
from workbook.runs.params import Params
from workbook.runs.reading import read
from workbook.stages import costs, reach, roofline
from workbook.stages.costs import Cost
from workbook.stages.outside import Found, look, named, read_brought
from workbook.stages.plan_text import text
from workbook.stages.progress import Durations
from workbook.stages.shapes import shapes, world_shapes

RATES = "reports/bench/gpu.json"  # written by `python -m bench.gpu --report`, where a GPU was at hand
PRINTED = "printed.yaml"  # beside params.yaml, if a profile has it: rows that the paper's tables print -> run


def plan(
    params: Params,
    sustained: float,
    pass_seconds: float,
    rates: roofline.Rates,
    why: tuple[str, str] = ("--tflops", "--pass-ms"),
) -> dict:
    """The whole plan as plain values: what `--json` prints and `plan_text.text` lays out. Rows have Cost's fields, and
    hours.

    sustained: FLOP/s; pass_seconds: beside its arithmetic; why: where these two are from; rates: of fixed shapes.
    Raises ConfigError where prompt and response do not fit the model.
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
        ways = {"hours": cost.hours(sustained, pass_seconds), "fixed_hours": cost.fixed_hours(rates)}
        return {"name": name, **more, **dataclasses.asdict(cost), **ways}

    seeds = len(params.seeds)
    one = {name: costs.of_run(params, name, policy, reward, worlds) for name in params.all_runs}
    each = {name: cost.times(seeds) for name, cost in one.items()}
    models = costs.models_of_a_draw(params, policy, reward) + costs.worlds_of_a_draw(params, worlds)
    searches = [costs.search(params, algorithm, policy, reward) for algorithm in searched(params)]
    before = {"models": models.times(len(params.draws)), "search": total(searches)}
    units = reach.phases(params, models, searches, one)
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
        "before": [row(name, cost) for name, cost in before.items()],
        "reports": by_report(params, each, row),
        "conditions": len(each),
        "runs": len(each) * seeds,
        "printed": [row("printed", total(each[name] for name in of), conditions=of) for of in [printed(params)] if of],
        "total": row("all", total([*before.values(), *each.values()])),
        "sustained": sustained,
        "pass_seconds": pass_seconds,
        "sustained_why": why[0],
        "pass_why": why[1],
        "ways": reach.ways(units, rates, sustained, pass_seconds, params.device != "cpu"),
        "rates": rates.why,
        "fetch": reach.to_fetch(params, found, policy, reward),
        "formula": costs.FORMULA,
        "measured": measured(params),
    }


def printed(params: Params) -> list[str]:
    """The conditions whose rows the paper prints, none where the profile does not say. Raises ConfigError naming one
    that is no run of it."""
    path = params.folder / PRINTED
    names = list(dict.fromkeys(read(path)[0].values())) if path.is_file() else []
    for name in names:
        if name not in params.all_runs:
            raise ConfigError(f"{path}: expected names of runs, found {name!r}{nearest(name, params.all_runs)}")
    return names


def printed_hours(params: Params, rates: roofline.Rates) -> tuple[int, float]:
    """(conditions whose rows the paper prints, hours of all their seeds on one GPU with recorded steps), of models of
    the published shapes; nothing is looked for."""
    policy, reward = shapes(params, [Found(*wanted, "") for wanted in named(params)])
    names, worlds = printed(params), world_shapes(params)
    cost = total(costs.of_run(params, name, policy, reward, worlds) for name in names).times(len(params.seeds))
    return len(names), cost.fixed_hours(rates)


def total(each: Iterable[Cost]) -> Cost:
    return sum(each, Cost())


def by_report(params: Params, each: Mapping[str, Cost], row: Callable[..., dict]) -> list[dict]:
    """A row for each report, and one for the runs that none shows; a run that several show is counted in the first.

    each: condition -> what it costs with all its seeds; row: (name, cost, further values) -> a row.
    """
    seeds = len(params.seeds)
    shown = {name: report.conditions for name, report in params.reports.items()}
    if rest := tuple(name for name in each if not any(name in conditions for conditions in shown.values())):
        shown["(no report)"] = rest
    home: dict[str, str] = {}  # condition: the report that counts it
    for report, conditions in shown.items():
        for name in conditions:
            home.setdefault(name, report)
    return [
        row(
            report,
            total(each[name] for name in conditions if home[name] == report),
            conditions=[row(name, each[name], seeds=seeds, counted_in=home[name]) for name in conditions],
            runs=seeds * sum(home[name] == report for name in conditions),
        )
        for report, conditions in shown.items()
    ]


def searched(params: Params) -> list[str]:
    """Algorithms whose learning rate is searched."""
    return sorted({params.searched(name) for name in params.all_runs} - {""})


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


def _speed(params: Params, rates: roofline.Rates) -> tuple[float, float, str, str]:
    """(FLOP/s, seconds of a forward pass beside its arithmetic, where the first is from, and the second), of steps that
    are not recorded, in fp32."""
    known = costs.DEVICES[params.device.partition(":")[0]]
    sustained, step_s, why = known.sustained * params.threads, known.pass_seconds, [known.why, "assumed"]
    if params.device != "cpu":
        measured = f"measured in fp32: {RATES}"
        if rates.sustained:
            sustained, why[0] = rates.sustained, measured
        if rates.step_s:
            step_s, why[1] = rates.step_s, measured
    return sustained, step_s, f"{why[0]}; --tflops", f"{why[1]}; --pass-ms"


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
    if args.tflops is not None and not 0 < args.tflops < math.inf:
        parser.error(f"argument --tflops: expected a number > 0, found {args.tflops:g}")
    if args.pass_ms is not None and not 0 <= args.pass_ms < math.inf:
        parser.error(f"argument --pass-ms: expected a number >= 0, found {args.pass_ms:g}")
    from workbook.ledger import profile  # it brings the statistics

    try:
        params = profiles.load(
            args.root / ("" if args.profile == "mini" else f"profiles/{args.profile}") / "params.yaml"
        )
        profile.check(params)
        read_brought(params)
        rates = roofline.rates(args.root / RATES)
        sustained, step_s, *why = _speed(params, rates)
        if args.tflops is not None:
            sustained, why[0] = 1e12 * args.tflops, "--tflops"
        if args.pass_ms is not None:
            step_s, why[1] = args.pass_ms / 1000, "--pass-ms"
        found = plan(params, sustained, step_s, rates, tuple(why))
    except ValueError as error:  # ConfigError, ClaimError
        print(error, file=sys.stderr)
        return 1
    print(json.dumps(found, indent=1) if args.json else text(found))
    return 3 if found["missing"] else 0


if __name__ == "__main__":
    sys.exit(main())
