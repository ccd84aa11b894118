"""What `rekey` runs in a checked-out commit, by that commit's own code: facts about its units, and the units.

    python -P rerun.py FACTS.json PLAN.json DONE ROOT    # in the commit's folder, which PYTHONPATH names too

ROOT: the repository's own folder, where what profiles bring may lie that git has not. Writes the facts where there are
none, waits for the plan, and runs its units: DONE/<profile>/<stage>.json has the hash of each file that a unit made.
Run by its path, because an older commit has no such file.

A unit is a stage of the pipeline on one draw, its notebook's cells run in this process; a run's rows are made as
`settle` makes them too. A finished unit is not run again, and one that was killed goes on from its last checkpoint.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from workbook.results.files import table_of
from workbook.runs import checks, conditions, experiment, roots
from workbook.runs.params import Params
from workbook.runs.settings import Run
from workbook.stages import cards, depends, one_draw, outside
from workbook.store.files import atomic_json, atomic_write, file_hash
from workbook.store.identity import Code

READS = {"models": ["data"], "variants": ["data", "models"]}
TRAIN = "workbook.stages.one_draw:train"
CUT = "rekey-"  # before the name of a profile that is cut to one draw
STEPS = 1000  # of a language model, at most: what is compared is the code of a step, which further ones run again


# facts ---------------------------------------------------------------------------------------------------------------


def committed(root: Path) -> dict[str, Path]:
    """Profile -> its folder, of those with committed rows or carried seeds."""
    folders = {"mini": root, **{path.parent.name: path.parent for path in sorted(root.glob("profiles/*/params.yaml"))}}
    return {
        name: folder
        for name, folder in folders.items()
        if (folder / "params.yaml").is_file()
        and (table_of(root / "reports" / name) or any(folder.glob("finished/*.tar.xz")))
    }


def brings(folder: Path, home: Path) -> dict[str, str]:
    """What a profile of the commit brings, `bring.model` and its like, by the whole path where it lies in the
    repository, home."""
    found = {}
    for name, said in (depends.read(folder / "params.yaml").get("bring") or {}).items():
        file, colon, function = said.partition(":")
        if file and (place := home / folder.relative_to(depends.ROOT) / file).exists():
            found[f"bring.{name}"] = f"{place}{colon}{function}"
    return found


def facts(root: Path, home: Path) -> dict[str, Any]:
    """Profile -> what it lacks to be run here ("" = nothing), its number of seeds, and its units: stage -> the features
    it shows, the units it needs, and the identity of its code, by what keeps rows under it."""
    about = Facts(root, home)
    return {name: about.profile(folder) for name, folder in committed(root).items()}


class Facts:
    def __init__(self, root: Path, home: Path):
        self.code, self.home, self.known = Code(root), home, {}

    def profile(self, folder: Path) -> dict[str, Any]:
        params = checks.load(folder / "params.yaml", **brings(folder, self.home))
        values = depends.read(folder / "params.yaml")
        missing = [f.name for f in (outside.look(params, *each) for each in outside.named(params)) if not f.place]
        lacks = f"{', '.join(missing)} is not here" if missing else ""
        units = {**self.before(params), **self.searches(params), **self.runs(params)}
        stages = depends.stages(values, self.code)
        for stage, unit in units.items():
            kind, _, key = stage.partition("@")
            named = stages[kind if kind in one_draw.MAKERS else f"{'runs' if kind == 'continued' else kind}/{key}"]
            unit["code"] = {"stage": named, **unit["code"]}
            unit["outside"] = self.outside(*named)
            unit["code"] = {what: self.identity(*given) for what, given in unit["code"].items()}
        return {"lacks": lacks, "seeds": len(params.seeds), "threads": params.threads, "units": units}

    def identity(self, start: Iterable[str], without: Iterable[str]) -> str:
        key = json.dumps([[*start], [*without]])
        if key not in self.known:
            self.known[key] = self.code.identity(*json.loads(key))
        return self.known[key]

    def outside(self, start: list[str], without: list[str]) -> dict[str, str]:
        """Definitions of a stage that rerunning it here does not call: those of the process that runs its notebook."""
        key = json.dumps(["outside", start, without])
        if key not in self.known:
            ours = self.code.reach([root for root in start if root != depends.RUNNER], without)
            self.known[key] = {n: h for n, h in self.code.reach(start, without).items() if n not in ours}
        return self.known[key]

    def before(self, params: Params) -> dict[str, Any]:
        task, bring, draw = params.task.name, params.bring, params.tune.draw
        named = {
            "data": roots.of_data(task, bool(bring.prompts)),
            "models": roots.of_models(task, bool(bring.model)),
            "variants": roots.of_variants(task),
        }
        return {
            f"{name}@{draw}": {
                "features": [f"{name}: {task}"],
                "needs": [f"{read}@{draw}" for read in READS.get(name, ())],
                "code": {"draw": ([maker, *named.get(name, ())], [])},
            }
            for name, maker in one_draw.MAKERS.items()
        }

    def searches(self, params: Params) -> dict[str, Any]:
        task = params.task.name
        return {
            f"tune@{name}": {
                "features": [f"search: {name}, {task}"],
                "needs": [f"{read}@{params.tune.draw}" for read in one_draw.BUILT],
                "code": {"seed": experiment.code_of(Run(algorithm=name), task)},
            }
            for name in params.tune.own
        }

    def runs(self, params: Params) -> dict[str, Any]:
        found = {}
        for name in params.all_runs:
            run, task = params.run(name), params.task.name
            own = roots.of_run(run.algorithm, "" if run.world else task, self.code)
            needs = [f"{read}@{params.tune.draw}" for read in ([one_draw.WORLDS] if run.world else one_draw.BUILT)]
            needs += [self.stage(params, run.start)] if run.start else []
            needs += [f"tune@{search}"] if (search := params.searched(name)) else []
            found[self.stage(params, name)] = {
                "features": features(params, name),
                "needs": needs,
                "code": {
                    "draw": ([TRAIN, *own], never_called(bool(run.world))),
                    "seed": experiment.code_of(run, task),
                },
            }
        return found

    def stage(self, params: Params, condition: str) -> str:
        return f"{'runs' if condition in params.runs else 'continued'}@{condition}"


def never_called(world: bool) -> list[str]:
    """What a run of the commit's never calls; `roots` says it since runs can be sharded."""
    return roots.unused(world, True) if hasattr(roots, "unused") else [] if world else [depends.WORLD]


def features(params: Params, condition: str) -> list[str]:
    """What a run shows, in words, sorted."""
    run, config = params.run(condition), params.learner_config(condition)
    trained = getattr(config, "updates", None) != 0  # else it shows nothing of a learner
    found = {f"{'learner' if trained else 'untrained'}: {run.algorithm}, {run.world or params.task.name}"}
    found |= {f"decoding: {name}" for name in ("plain", "own", *params.evaluation.everywhere, *run.decodings)}
    values = run.model_dump(exclude={"algorithm", "world", "decodings"}) | (config.model_dump() if trained else {})
    for name, value in values.items():
        found |= {f"{name}: {_word(each)}" for each in (value if isinstance(value, (list, tuple)) else [value])}
    return sorted(found)


def _word(value: Any) -> str:
    """0, 1 or "a number"; of all else, itself."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return f"{value:g}" if value in (0, 1) else "a number"
    return str(value)


# units ---------------------------------------------------------------------------------------------------------------


def cut(root: Path, home: Path, profile: str) -> Path:
    """A profile of one draw, that of its search, of one candidate, and of language models trained for at most `STEPS`
    steps; its folder, with what each stage is given."""
    source, folder = (root if profile == "mini" else root / "profiles" / profile), root / "profiles" / f"{CUT}{profile}"
    values = YAML(typ="safe", pure=True).load((source / "params.yaml").read_text(encoding="utf-8"))
    brought = brings(source, home)
    draw = checks.load(source / "params.yaml", **brought).tune.draw
    for part in (values, *(values.get("sizes") or {}).values()):
        part |= {name: [draw] for name in ("seeds", "draws") if name in part}
        if steps := (part.get("language_model") or {}).get("steps"):
            part["language_model"]["steps"] = min(steps, STEPS)
        search = part.get("tune") or {}
        for grid in (search, *(search.get("own") or {}).values()):
            grid |= {name: grid[name][:1] for name in ("learning_rates", "kl_coefs") if name in grid}
    values["bring"] = {**values.get("bring", {}), **{name.partition(".")[2]: at for name, at in brought.items()}}
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "params.yaml", "w", encoding="utf-8") as file:
        YAML(pure=True).dump({**values, "root": "../..", "profile": folder.name}, file)
    return folder


def unit(folder: Path, stage: str) -> Iterator[Path]:
    """Run a stage in its profile's folder, where we are; yields the files and folders that it made."""
    with cards.as_new():
        yield from _unit(folder, stage)


def _unit(folder: Path, stage: str) -> Iterator[Path]:
    kind, _, key = stage.partition("@")
    if kind in one_draw.MAKERS:
        notebook(kind, draw=int(key))
        yield folder / kind / f"draw{key}"
    elif kind not in ("runs", "continued"):
        notebook(kind, algorithm=key)
        yield folder / kind / f"{key}.json"
    else:
        notebook("run", condition=key)
        yield folder / "runs" / key
        params = checks.load(folder / "params.yaml")
        with own_output():
            rows = one_draw.train(params, params.seeds[0], key)
        atomic_json(folder / "settled" / f"{key}.json", rows)
        yield folder / "settled" / f"{key}.json"


def notebook(name: str, **given: Any) -> None:
    """Run the cells of a stage's notebook here, with these parameters."""
    from IPython.core.interactiveshell import InteractiveShell

    path = depends.ROOT / "notebooks" / f"{name}.ipynb"
    shell = InteractiveShell.instance(history_length=0)
    try:
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            if cell["cell_type"] == "code":
                shell.run_cell("".join(cell["source"])).raise_error()
                if "parameters" in cell["metadata"].get("tags", ()):
                    shell.push(given)
    finally:
        InteractiveShell.clear_instance()


@contextlib.contextmanager
def own_output() -> Iterator[None]:
    """What is sent elsewhere inside, as `one_draw.train` sends what it prints, comes here again after it."""
    kept = [os.dup(stream) for stream in (1, 2)]
    try:
        yield
    finally:
        for stream, copy in zip((1, 2), kept):
            os.dup2(copy, stream)
            os.close(copy)


def hashes(folder: Path, made: Iterable[Path]) -> dict[str, str]:
    """Path below the folder -> SHA-256 of each file."""
    files = [path for each in made for path in ([each] if each.is_file() else each.rglob("*")) if path.is_file()]
    return {path.relative_to(folder).as_posix(): file_hash(path) for path in sorted(files)}


def run(plan: Mapping[str, list[str]], done: Path, home: Path) -> None:
    """The units of a plan, profile -> stages, in order; those that are done are left."""
    for profile, stages in plan.items():
        if all((done / profile / f"{stage}.json").is_file() for stage in stages):
            continue
        folder = cut(depends.ROOT, home, profile)
        os.chdir(folder)
        if conditions.main(["params.yaml", "build"]):
            raise SystemExit(f"{folder}: its settings are refused")
        for stage in stages:
            mark = done / profile / f"{stage}.json"
            if not mark.is_file():
                print(f"{profile}: {stage}", flush=True)
                atomic_json(mark, hashes(folder, unit(folder, stage)))


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m workbook.stages.rerun",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for name in ("facts", "plan", "done", "root"):
        parser.add_argument(name, type=Path)
    asked = parser.parse_args(argv)
    known, plan, done, home = asked.facts, asked.plan, asked.done, asked.root
    if depends.ROOT != Path.cwd():
        raise SystemExit(f"expected the code of {Path.cwd()}, found that of {depends.ROOT}")
    if not known.is_file():
        atomic_write(known, json.dumps(facts(depends.ROOT, home)))  # in order: `atomic_json` sorts
    while not plan.is_file():
        time.sleep(0.1)
    run(dict(json.loads(plan.read_text(encoding="utf-8"))), done, home)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
