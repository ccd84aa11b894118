"""Profiles: what differs from the top-level params.yaml, in profiles/<name>/overlay.yaml.

`make pipelines` (`python -m workbook.runs.profiles ROOT`) writes beside each overlay what is made from it: params.yaml,
the resolved settings, and dvc.yaml, the copy of the pipeline that DVC needs there (it follows no link in an earlier
commit).

An overlay replaces values by name, at any depth; a list is replaced whole. `name: ~` takes an entry out, and a pattern
with `*` all entries that match and that the overlay does not name itself: `"*": ~` leaves only those that it names, in
its order, where `name: {}` stands for the entry as it is.
"""

from __future__ import annotations

import fnmatch
import io
import sys
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from rlnlp.settings import ConfigError, nearest

MADE = "# Made by `make pipelines` from overlay.yaml and the top-level params.yaml: change those, not this file.\n"


def merged(base: Any, overlay: Any, place: str = "") -> Any:
    """`base` with the values of `overlay` in it. Raises ConfigError where it takes out what is not there."""
    if not isinstance(base, dict) or not isinstance(overlay, dict):
        return overlay
    gone = [name for name, value in overlay.items() if value is None]
    patterns = [name for name in gone if "*" in str(name)]
    for name in gone:
        if not fnmatch.filter(map(str, base), str(name)) and str(name) != "*":
            raise ConfigError(f"{place or 'overlay'}: {name}: nothing to take out{nearest(name, base)}")
    named = {name: value for name, value in overlay.items() if value is not None}
    left = [n for n in base if n not in overlay and not any(fnmatch.fnmatchcase(str(n), p) for p in patterns)]
    order = [*left, *named] if "*" in patterns else [*(n for n in base if n in left or n in named), *named]
    dotted = f"{place}." if place else ""
    return {
        n: merged(base.get(n, {}), named[n], f"{dotted}{n}") if n in named else base[n] for n in dict.fromkeys(order)
    }


def resolved(folder: Path) -> dict[str, Any]:
    """The settings of the profile in `folder`: the top-level ones with its overlay. Raises ConfigError."""
    yaml, root = YAML(typ="safe", pure=True), folder.parent.parent
    base = yaml.load((root / "params.yaml").read_text(encoding="utf-8"))
    path = folder / "overlay.yaml"
    try:
        overlay = yaml.load(path.read_text(encoding="utf-8")) or {}
        if not isinstance(overlay, dict):
            raise ConfigError("expected lines of `name: value`")
        return {**merged(base, overlay), "root": "../..", "profile": folder.name}
    except (YAMLError, ConfigError) as error:
        raise ConfigError(f"{path}: {error}") from None


def made(folder: Path) -> dict[str, str]:
    """File name -> text of what is made for the profile in `folder`."""
    yaml, out = YAML(typ="safe", pure=True), io.StringIO()
    yaml.default_flow_style, yaml.width, yaml.sort_base_mapping_type_on_output = None, 110, False
    yaml.dump(resolved(folder), out)
    pipeline = (folder.parent.parent / "dvc.yaml").read_text(encoding="utf-8")
    return {"params.yaml": MADE + out.getvalue(), "dvc.yaml": pipeline}


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print("usage: python -m workbook.runs.profiles ROOT", file=sys.stderr)
        return 2
    try:
        texts = {
            p.parent / name: text
            for p in sorted(Path(arguments[0]).glob("profiles/*/overlay.yaml"))
            for name, text in made(p.parent).items()
        }
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 1
    for path, text in texts.items():
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
