"""Where a data set or a model is: a folder, the mirror, or the hub."""

from __future__ import annotations

import os
from pathlib import Path

from rlnlp.settings import nearest


class DataError(ValueError):
    """Data that is missing, empty or not what was asked for; the message names the place."""


def find(kind: str, hub_id: str, mirror: str | Path = "") -> Path | str:
    """Where a data set or model is: a folder, or the hub id itself where the hub is to be asked.

    kind: "datasets" or "models"; hub_id: as on the hub, or a folder; mirror: the config key, may be empty.
    Looked for, in this order: the folder ``hub_id``; ``<mirror>/<kind>/<hub_id>``; ``$RLNLP_MIRROR/<kind>/<hub_id>``;
    the hub, unless HF_HUB_OFFLINE is set.

    Raises: DataError saying what was looked for and where.
    Limiting cases: no mirror and no HF_HUB_OFFLINE: always ``hub_id``; an empty folder counts as absent.
    """
    if kind not in ("datasets", "models"):
        raise ValueError(f"find: expected kind 'datasets' or 'models', got {kind!r}")
    if not hub_id.strip():
        raise DataError(f"find: no name of the {kind[:-1]} was given")
    looks_local = hub_id.startswith((".", "/", "~")) or hub_id.count("/") > 1
    places = [("as a folder", Path(hub_id).expanduser())] if kind == "models" or looks_local else []
    for source, root in (("mirror", str(mirror)), ("$RLNLP_MIRROR", os.environ.get("RLNLP_MIRROR", ""))):
        if root and not looks_local:
            places.append((source, Path(root).expanduser() / kind / hub_id))
    for _, place in places:
        if place.is_dir() and any(place.iterdir()):
            return place
    if not looks_local and os.environ.get("HF_HUB_OFFLINE", "").lower() not in ("1", "true", "yes", "on"):
        return hub_id
    raise DataError(_not_found(kind, hub_id, places, looks_local))


def _not_found(kind: str, hub_id: str, places: list, looks_local: bool) -> str:
    lines = [f"{kind[:-1]} {hub_id!r} was not found. Looked for:"]
    lines += [f"  {place} ({source}): {_state(place)}" for source, place in places]
    if not looks_local:
        named = [source for source, _ in places]
        lines += [f"  {s}: not set" for s in ("mirror", "$RLNLP_MIRROR") if s not in named]
        lines.append("  the hub: not asked, because HF_HUB_OFFLINE is set")
        lines.append(f"Set RLNLP_MIRROR (or `mirror` in params.yaml) to a folder that holds {kind}/{hub_id}.")
    return "\n".join(lines)


def _state(place: Path) -> str:
    if place.is_dir():
        return "an empty folder"
    if place.exists():
        return "a file, not a folder"
    if not place.parent.is_dir():
        return "no such folder"
    return "no such folder" + nearest(place.name, sorted(p.name for p in place.parent.iterdir()))


def load_dataset(source: Path | str):
    """A ``datasets.DatasetDict`` from a folder (``<split>.parquet``, or as on the hub) or from the hub.

    Raises: DataError that says which and why.
    """
    import datasets

    files = {path.stem: str(path) for path in sorted(source.glob("*.parquet"))} if isinstance(source, Path) else {}
    datasets.disable_progress_bars()
    try:
        return datasets.load_dataset("parquet", data_files=files) if files else datasets.load_dataset(str(source))
    except Exception as error:  # the hub, a cache and the file formats raise what they like
        hint = "" if isinstance(source, Path) else "; set RLNLP_MIRROR to a folder that holds datasets/" + str(source)
        place = f"folder {source}" if isinstance(source, Path) else f"hub id {source!r}"
        first = str(error).strip().splitlines() or [""]
        raise DataError(f"{place} could not be read as a data set: {type(error).__name__}: {first[0]}{hint}") from error
    finally:
        datasets.enable_progress_bars()


def beside(params, path: str) -> Path | str:
    """A path of the params file, relative to that file."""
    return Path(getattr(params, "folder", ".")) / path if path else ""
