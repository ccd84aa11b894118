"""Profiles: what differs from the top-level params.yaml, in profiles/<name>/overlay.yaml.

`make pipelines` (`python -m workbook.runs.profiles ROOT`) writes beside each overlay what is made from it: params.yaml,
the resolved settings, and dvc.yaml, the copy of the pipeline that DVC needs there (it follows no link in an earlier
commit).

An overlay replaces values by name, at any depth; a list is replaced whole. `name: ~` takes an entry out, and a pattern
with `*` all entries that match and that the overlay does not name itself: `"*": ~` leaves only those that it names, in
its order, where `name: {}` stands for the entry as it is.
"""

from __future__ import annotations

import argparse
import fnmatch
import io
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from rlnlp.settings import ConfigError, nearest
from workbook.runs import checks
from workbook.runs.messages import GROUPS, dotted
from workbook.runs.params import Params
from workbook.runs.reading import read

MADE = "# Made by `make pipelines` from overlay.yaml and the top-level params.yaml: change those, not this file.\n"


def merged(base: Any, overlay: Any, place: tuple = (), lines: Mapping[tuple, int] | None = None) -> Any:
    """`base` with the values of `overlay` in it. Raises ConfigError where it takes out what is not there.

    place: the keys of both in the whole; lines: of the overlay's keys.
    """
    if not isinstance(base, dict) or not isinstance(overlay, dict):
        return overlay
    gone = [name for name, value in overlay.items() if value is None]
    patterns = [name for name in gone if "*" in str(name)]
    for name in gone:
        if not fnmatch.filter(map(str, base), str(name)) and str(name) != "*":
            line = (lines or {}).get(keys := (*place, name))
            where = f" (line {line})" if line else ""
            raise ConfigError(f"{dotted(keys)}{where}: nothing to take out{nearest(name, base)}")
    named = {name: value for name, value in overlay.items() if value is not None}
    left = [n for n in base if n not in overlay and not any(fnmatch.fnmatchcase(str(n), p) for p in patterns)]
    order = [*left, *named] if "*" in patterns else [*(n for n in base if n in left or n in named), *named]
    return {
        n: merged(base.get(n, {}), named[n], (*place, n), lines) if n in named else base[n]
        for n in dict.fromkeys(order)
    }


def written(overlay: Path) -> tuple[dict[str, Any], dict[tuple, int]]:
    """What a person wrote into an overlay, and the line of each key; of one that holds comments alone, nothing. Raises
    ConfigError."""
    try:
        text = overlay.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return read(overlay)  # says what is wrong
    return read(overlay) if any(line.partition("#")[0].strip() for line in text.splitlines()) else ({}, {})


def resolved(folder: Path, base: dict[str, Any] | None = None) -> dict[str, Any]:
    """The settings of the profile in `folder`: the top-level ones, `base` if they have been read, with its overlay.
    Raises ConfigError."""
    base, path = base or read(folder.parent.parent / "params.yaml")[0], folder / "overlay.yaml"
    overlay, lines = written(path)
    try:
        return {**merged(base, overlay, (), lines), "root": "../..", "profile": folder.name}
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def load(path: str | Path) -> Params:
    """As `checks.load`; the problems of a profile are told by the lines that a person wrote. Raises ConfigError."""
    path = Path(path)
    try:
        return checks.load(path)
    except ConfigError:
        overlay, base = path.with_name("overlay.yaml"), Path(os.path.normpath(path.parent / "../../params.yaml"))
        if overlay.is_file() and base.is_file():
            lines = {keys: f"{line} of {base}{_out(keys)}" for keys, line in read(base)[1].items()}
            checks.checked(read(path)[0], lines | written(overlay)[1], overlay)
        raise


def _out(keys: tuple) -> str:
    """How an overlay drops a value of a run, which it has kept if it says other things of that run only."""
    return f"; `{keys[-1]}: ~` in the overlay takes it out" if len(keys) == 3 and keys[0] in GROUPS else ""


def made(folder: Path, base: dict[str, Any] | None = None) -> dict[str, str]:
    """File name -> text of what is made for the profile in `folder`. base: as of `resolved`."""

    def text(representer, value: str):  # in braces DVC's reader takes the colon of `file.py:function` for a key's end
        return representer.represent_scalar("tag:yaml.org,2002:str", value, style='"' if ":" in value else None)

    yaml, out = YAML(typ="safe", pure=True), io.StringIO()
    yaml.default_flow_style, yaml.width, yaml.sort_base_mapping_type_on_output = None, 110, False
    yaml.representer.yaml_representers = {**yaml.representer.yaml_representers, str: text}
    yaml.dump(resolved(folder, base), out)
    pipeline = (folder.parent.parent / "dvc.yaml").read_text(encoding="utf-8")
    return {"params.yaml": MADE + out.getvalue(), "dvc.yaml": pipeline}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m workbook.runs.profiles",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("root", type=Path, metavar="ROOT", help="folder of the repository")
    root = parser.parse_args(arguments).root
    try:
        base = read(root / "params.yaml")[0]
        texts = {
            p.parent / name: text
            for p in sorted(root.glob("profiles/*/overlay.yaml"))
            for name, text in made(p.parent, base).items()
        }
        changed = {p: text for p, text in texts.items() if not p.is_file() or p.read_bytes() != text.encode()}
        if changed:
            checks.load(root / "params.yaml")  # what is wrong there would be in every profile
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 1
    for path, text in changed.items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
