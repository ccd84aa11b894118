"""Code that was edited without changing a digit: what committed results know it by.

workbook/rekeyed.json holds one record for each such edit, written by `stages.rekey`, which ran the code before it and
after it and found all bytes equal. A record pairs identities of code (`identity.Code.identity`), nothing else:
settings, libraries and the bytes of models stay in a result's key as they are, so that a result counts only where these
are equal too. Code that no record ends with is known by its own name.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlnlp.settings import ConfigError
from workbook.store.files import atomic_json

RECORD = Path("workbook") / "rekeyed.json"  # where DVC looks for edits of the code
Pairs = Mapping[str, Sequence[Sequence[str]]]  # kind of unit -> (identity before, identity after) of its code


def names(root: str | Path) -> dict[str, str]:
    """Identity of edited code -> the one that committed results know it by, over any number of edits after each other.

    root: folder of the repository. Raises ConfigError where the record is not as it was written.
    """
    back = {new: old for each in records(root) for pairs in each["code"].values() for old, new in pairs}
    return {new: _first(new, back) for new in back}


def others(root: str | Path, identity: str) -> list[str]:
    """All identities, of older and of newer code, that are known by the same name as this one."""
    known = names(root)
    first = known.get(identity, identity)
    return sorted({first, *(now for now, then in known.items() if then == first)} - {identity})


def _first(identity: str, back: Mapping[str, str]) -> str:
    for _ in back:  # as many steps as there can be
        identity = back.get(identity, identity)
    return identity


def records(root: str | Path) -> list[dict[str, Any]]:
    """The records, oldest first; each is signed over what it says and over the one before. Raises as `names`."""
    path, before = Path(root) / RECORD, ""
    if not path.is_file():
        return []
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        for number, each in enumerate(found, 1):
            if each["digest"] != (own := _digest(each, before)):
                raise ConfigError(
                    f"{path}: record {number} is not as it was written (its digest is {own[:12]}, the file says "
                    f"{each['digest'][:12]}); take the file from git, or `python -m workbook.stages.rekey` again"
                )
            before = own
    except (ValueError, TypeError, LookupError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"{path}: expected records of workbook.stages.rekey, found {error!r}") from error
    return found


def unknown(root: str | Path, code: Pairs) -> dict[str, list[list[str]]]:
    """The pairs that say something new. Raises ConfigError where code has another name already: two sets of results
    would be known by one."""
    known, found = dict(names(root)), {}
    for kind, pairs in code.items():
        for old, new in sorted(map(tuple, pairs)):
            first = known.get(old, old)
            if known.get(new, new) == first:
                continue
            if new in known:
                raise ConfigError(
                    f"{kind}: code {new[:12]} is that of results known by {known[new][:12]} already, so it cannot be "
                    f"that of {first[:12]} too"
                )
            known[new] = first
            found.setdefault(kind, []).append([old, new])
    return found


def add(root: str | Path, record: Mapping[str, Any]) -> Path:
    """Sign a record and put it behind the others, in one step; returns the file."""
    path, known = Path(root) / RECORD, records(root)
    signed = {**record, "digest": _digest(record, known[-1]["digest"] if known else "")}
    atomic_json(path, [*known, signed])
    return path


def _digest(record: Mapping[str, Any], before: str) -> str:
    said = {name: value for name, value in record.items() if name != "digest"}
    return hashlib.sha256(json.dumps([before, said], sort_keys=True).encode()).hexdigest()
