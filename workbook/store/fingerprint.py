"""Fingerprints of what decides a result: values, files, folders, code and versions of the libraries that compute."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from workbook.store import identity
from workbook.store.files import atomic_json, file_hash, folder_hash, plain, read_json

LIBRARIES = (
    "torch",
    "transformers",
    "tokenizers",
    "numpy",
    "scipy",
    "scikit-learn",
    "pandas",
    "datasets",
    "safetensors",
)


def fingerprint_inputs(
    settings: Mapping[str, Any] = {},
    files: Iterable[str | Path] = (),
    folders: Iterable[str | Path] = (),
    code: Iterable[str] = (),
    without: Iterable[str] = (),
) -> dict[str, str]:
    """Everything that decides a result, name -> value or content hash.

    settings: values read, by dotted name (`Params.pick`), JSON-able; files, folders: hashed by content (an absolute
    path is named by its last part, so that a moved checkout changes nothing); code, without: roots of `Code.identity`.
    The versions of Python and of the libraries that compute are added.
    """
    inputs = {f"setting {k}": json.dumps(v, sort_keys=True, default=plain) for k, v in settings.items()}
    for kind, paths, digest in (("file", files, file_hash), ("folder", folders, folder_hash)):
        for path in map(Path, paths):
            label = path.name if path.is_absolute() else path.as_posix()
            base, n = label, 2
            while f"{kind} {label}" in inputs:
                label, n = f"{base} ({n})", n + 1
            inputs[f"{kind} {label}"] = digest(path)
    if code := list(code):
        inputs["code"] = identity.here().identity(code, without)
    return inputs | {f"library {name}": version for name, version in libraries().items()}


def libraries() -> dict[str, str]:
    """Version of Python and of each library that computes."""
    found = {"python": ".".join(map(str, sys.version_info[:2]))}
    for name in LIBRARIES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            pass
    return found


def digest(inputs: Mapping[str, str]) -> str:
    """SHA-256 of fingerprint inputs, hex."""
    return hashlib.sha256(json.dumps(dict(inputs), sort_keys=True).encode()).hexdigest()


def changed(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """What differs between two fingerprints' inputs, one line each."""
    lines = []
    for name in sorted(old.keys() | new.keys()):
        before, after = old.get(name, "none"), new.get(name, "none")
        if before != after:
            lines.append(
                f"{name}: {before[:12]} -> {after[:12]}" if name.startswith("f") else f"{name}: {before} -> {after}"
            )
    return lines


def keyed_folder(parent: str | Path, inputs: Mapping[str, str]) -> Path:
    """The folder of a result: parent/<first 16 digits of the fingerprint>, made if missing, with inputs.json in it.

    Raises: RuntimeError if the folder there was made from other inputs (two fingerprints with equal beginnings).
    """
    folder = Path(parent) / digest(inputs)[:16]
    folder.mkdir(parents=True, exist_ok=True)
    record = folder / "inputs.json"
    if (known := read_json(record)) is None:
        atomic_json(record, dict(inputs))
    elif known != dict(inputs):
        raise RuntimeError(f"{folder}: made from other inputs: {'; '.join(changed(known, inputs))}")
    return folder
