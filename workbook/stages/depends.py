"""What each stage depends on of the code, and what a change would make again.

    python -m workbook.stages.depends code params.yaml build/code    # runs/ppo_kl_0.json, ..., claims.json
    python -m workbook.stages.depends why [PROFILE]                  # runs nothing

A stage depends on one small file that holds the identity of the code it runs and the versions of the libraries, and no
name: so what is moved, renamed or reworded leaves it byte for byte. Which definitions it was is kept beside the scratch
files, by the hash of that file, for `why`: no stage depends on it.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from rlnlp.settings import ConfigError
from workbook.runs import checks, conditions, profiles, roots
from workbook.store import rekeyed
from workbook.store.files import atomic_json, read_json
from workbook.store.fingerprint import libraries
from workbook.store.identity import Code, differences

ROOT = Path(__file__).resolve().parents[2]
RUNNER, PAGE = "workbook.stages.nb:run", "workbook.stages.page:to_html"
Roots = tuple[list[str], list[str]]  # roots of an identity, and what is known not to run


def stages(values: Mapping[str, Any], code: Code) -> dict[str, Roots]:
    """Name of a file in build/code -> the code that its stage runs. values: params.yaml."""
    from workbook.runs import means  # and torch with it, for which no `--help` should wait

    def notebook(name: str, *further: str, page: bool = False, without: Iterable[str] = ()) -> Roots:
        return [f"notebooks/{name}.ipynb", RUNNER, *further], [*without, *([] if page else [PAGE])]

    task, bring = values["task"]["name"], values.get("bring") or {}
    plain = all(values.get(name, as_written) == as_written for name, as_written in means.AS_WRITTEN.items())
    found = {
        "data": notebook("data", *roots.of_data(task, bool(bring.get("prompts")))),
        "models": notebook("models", *roots.of_models(task, bool(bring.get("model")))),
        "variants": notebook("variants", *roots.of_variants(task)),
        "worlds": notebook("worlds"),
    }
    for algorithm in values["tune"].get("own") or ():
        found[f"tune/{algorithm}"] = notebook(
            "tune", *roots.of_run(algorithm, task, code), without=roots.unused(False, plain)
        )
    for condition, run in {**values["runs"], **(values.get("continued") or {})}.items():
        world = bool(run.get("world"))
        own = roots.of_run(run["algorithm"], "" if world else task, code)
        found[f"runs/{condition}"] = notebook("run", *own, without=roots.unused(world, plain))
    for name in values["reports"]:
        found[f"report/{name}"] = notebook("ablation", f"workbook.reports.{name}", page=True)
    found["claims"] = notebook("claims", page=True)
    found["digests"] = ["workbook.stages.digests:main"], []
    found["tidy"] = ["workbook.results.tidy:main"], []
    return found


def write(values: Mapping[str, Any], out: Path, record: Path, root: Path = ROOT) -> None:
    """A file for each stage into ``out``, and by its hash the definitions it stands for into ``record``. Code that was
    edited without changing a digit has the name that DVC's lock files know it by.

    Files of stages that are no more are removed.
    """
    code, known, versions, names = Code(root), {}, libraries(), rekeyed.names(root)
    wanted = stages(values, code)
    for name, (start, without) in wanted.items():
        key = json.dumps([start, without])
        if key not in known:
            now = code.identity(start, without)
            known[key] = names.get(now, now)
        atomic_json(out / f"{name}.json", {"code": known[key], **versions})
        place = record / f"{content_hash(out / f'{name}.json')}.json"
        if not place.is_file():
            atomic_json(place, code.reach(start, without))
    for path in out.rglob("*.json"):
        if path.relative_to(out).with_suffix("").as_posix() not in wanted:
            path.unlink()


def content_hash(path: Path) -> str:
    """As DVC names a file in its lock and its cache."""
    return hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()


def record_of(folder: Path, values: Mapping[str, Any]) -> Path:
    return folder / values["root"] / ".scratch" / values["profile"] / "definitions"


def read(path: Path) -> dict[str, Any]:
    return YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))


# what a change would make again --------------------------------------------------------------------------------------


def why(folder: Path, root: Path = ROOT) -> tuple[dict[str, list[str]], set[str]]:
    """(stage -> why it would run, stages that follow if what those make comes out different).

    folder: of the profile. Compared with dvc.lock, that is with the last time that each stage ran; nothing is run.
    What the lock knows of stages that the pipeline no longer has is left out. Raises FileNotFoundError without a
    dvc.lock.
    """
    lock, values = read(folder / "dvc.lock")["stages"], read(folder / "params.yaml")
    made_by = pipeline(read(folder / "dvc.yaml")["stages"], values)
    lock = {name: stage for name, stage in lock.items() if name in made_by}
    with tempfile.TemporaryDirectory() as temporary:
        now = Path(temporary) / "build"
        write(values, now / "code", Path(temporary) / "definitions", root)
        for name, value in conditions.files(checks.load(folder / "params.yaml")).items():
            atomic_json(now / name, value)
        found = {name: list(_changes(stage, folder, values, now)) for name, stage in lock.items()}
    found = {name: lines for name, lines in found.items() if lines}
    found |= {name: [NEW] for name in made_by if name not in lock}
    found = {name: lines for name, lines in found.items() if name.partition("@")[0] not in _LIGHT}
    outs = {out["path"]: name for name, stage in lock.items() for out in stage.get("outs", ())}
    outs |= {out: name for name in found.keys() - lock.keys() for out in made_by[name]}
    after, todo = set(), set(found)
    while todo:
        made = {out for out, name in outs.items() if name in todo}
        todo = {name for name, stage in lock.items() if any(map(made.__contains__, _inside(stage, outs)))} - after
        todo = {name for name in todo - found.keys() if name.partition("@")[0] not in _LIGHT}
        after |= todo
    return found, after


_LIGHT = ("check", "nb", "code")  # they run whenever anything was edited, and take a moment
NEW = "it has not run yet"


def pipeline(stages: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, list[str]]:
    """Name of every stage that dvc.yaml makes of the settings -> its outputs that are in DVC's cache.

    stages: those of dvc.yaml; values: params.yaml.
    """
    found = {}
    for name, spec in stages.items():
        each = spec.get("foreach", next(iter(spec.get("matrix", {}).values()), None))
        if isinstance(each, str):  # ${draws}, ${tune.own}
            each = functools.reduce(lambda at, part: at[part], each.strip("${}").split("."), values)
        outs = [out for out in spec.get("do", spec).get("outs", ()) if isinstance(out, str)]
        for key in [None] if each is None else each:
            made = [re.sub(r"\$\{(key|item\.\w+)\}", str(key), out) for out in outs]
            found[name if key is None else f"{name}@{key}"] = made
    return found


def _inside(stage: Mapping[str, Any], outs: Iterable[str]) -> Iterator[str]:
    """The outputs of stages that a stage depends on: itself, a folder around it, or a file in it."""
    for dep in stage.get("deps", ()):
        for out in outs:
            if out == dep["path"] or out.startswith(dep["path"] + "/") or dep["path"].startswith(out + "/"):
                yield out


def _changes(stage: Mapping[str, Any], folder: Path, values: Mapping[str, Any], now: Path) -> Iterator[str]:
    for dep in stage.get("deps", ()):
        kind, _, name = dep["path"].removeprefix("build/").partition("/")
        new = now / kind / name
        if kind not in ("code", "settings", "conditions") or (new.is_file() and content_hash(new) == dep["md5"]):
            continue
        if not new.is_file():
            yield f"it depends on other files now, not on {dep['path']}"
        elif kind != "code":
            old = _cached(folder, values, dep["path"], dep["md5"])
            yield from _values(old, read_json(new)) if old is not None else ["settings changed (their record is gone)"]
        else:
            yield from _definitions(folder, values, dep, new, now)
    for name, old in stage.get("params", {}).get("params.yaml", {}).items():
        new = values
        for part in name.split("."):
            new = new.get(part) if isinstance(new, Mapping) else None
        yield from _values({name: old}, {name: new})


def _definitions(folder: Path, values: Mapping[str, Any], dep: Mapping, new: Path, now: Path) -> Iterator[str]:
    known = read_json(record_of(folder, values) / f"{dep['md5']}.json")
    before, after = _cached(folder, values, dep["path"], dep["md5"]), read_json(new)
    if before is not None:
        yield from _values({**before, "code": ""}, {**after, "code": ""})
        if before["code"] == after["code"]:
            return
    if known is None:
        yield "code changed (which definitions is not known: it ran on another machine, or with older code)"
    else:
        latest = read_json(now.parent / "definitions" / f"{content_hash(new)}.json")
        yield from differences(known, latest) or ["definitions refer to each other in another way"]


def _cached(folder: Path, values: Mapping[str, Any], path: str, md5: str) -> Any:
    """What a file held when its stage ran, from the folder or from DVC's cache; None if it is in neither."""
    cache = folder / values["root"] / ".dvc" / "cache" / "files" / "md5" / md5[:2] / md5[2:]
    for place in (folder / path, cache):
        if place.is_file() and content_hash(place) == md5:
            return read_json(place)
    return None


def _values(old: Any, new: Any, place: str = "") -> Iterator[str]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for name in [*old, *(name for name in new if name not in old)]:
            yield from _values(old.get(name), new.get(name), f"{place}.{name}" if place else str(name))
    elif old != new:
        yield f"{place}: {_short(old)} -> {_short(new)}"


def _short(value: Any) -> str:
    text = "none" if value is None else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."


def told(found: Mapping[str, list[str]], after: Iterable[str]) -> Iterator[str]:
    """In words: stages with the same reasons together."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, lines in found.items():
        groups.setdefault(tuple(lines), []).append(name)
    if not groups:
        yield "nothing: all that has run is as the code and the settings say"
    for lines, names in groups.items():
        yield f"{_listed(names)} would run{'' if lines == (NEW,) else ' again'}:"
        yield from (f"    {line}" for line in lines[:20])
        if len(lines) > 20:
            yield f"    and {len(lines) - 20} more"
    if after := sorted(after):
        yield f"after them, if what they make comes out different: {_listed(after)}"


def _listed(names: list[str]) -> str:
    return ", ".join(names) if len(names) <= 6 else f"{', '.join(names[:5])} and {len(names) - 5} others"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m workbook.stages.depends", description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("code", help="write what each stage depends on of the code")
    command.add_argument("params", type=Path)
    command.add_argument("out", type=Path)
    command = commands.add_parser("why", help="what would run again, and why; runs nothing")
    command.add_argument("profile", nargs="?", default="mini")
    args = parser.parse_args(argv)
    if args.command == "code":
        values = read(args.params)
        try:
            write(values, args.out, record_of(args.params.resolve().parent, values))
        except ConfigError as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
        return 0
    folder = ROOT if args.profile == "mini" else ROOT / "profiles" / args.profile
    try:
        profiles.load(folder / "params.yaml")
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if not (folder / "dvc.lock").is_file():
        print(f"{args.profile}: nothing has run yet (no dvc.lock in {folder})")
        return 0
    print("\n".join(told(*why(folder))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
