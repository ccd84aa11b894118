"""The file that fixes a design: written once, of draws that no profile has seen, and held against what is there now."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from ruamel.yaml import YAML

from workbook.ledger import listed, looks
from workbook.ledger.claim import Claim, ClaimError
from workbook.ledger.judge import lacks
from workbook.ledger.looks import Design, fixed_by
from workbook.runs.params import Params
from workbook.stages import depends
from workbook.stages.one_draw import keys
from workbook.store.files import atomic_write
from workbook.store.identity import Code, CodeError

REGISTERED = "registered.yaml"


def register(
    params: Params, claims: Mapping[str, Claim], draws: Sequence[int], at: Sequence[int], replacements: Sequence[int]
) -> Path:
    """Write the design: the profile's claims, the hash of the rule and tests, the key of each condition that they need,
    draws and looks.

    Raises: ClaimError where one is there; where the profile does not run what a claim needs; where a profile or another
    design has one of its draws, without exception: a profile that is to show draws of the design lists them once the
    design is registered, and by then they can choose nothing in it.
    """
    path = params.folder / REGISTERED
    if path.exists():
        raise ClaimError(
            f"{path}: is registered already; a new design is a new profile, with draws that no one has seen"
        )
    for name in params.claims:
        if name not in claims:
            continue
        if lacking := [*lacks(claims[name], params.all_runs), *listed.unrepeated(claims[name], params.all_runs)]:
            raise ClaimError(f"{name}: {params.profile} does not run what it needs: {'; '.join(lacking)}")
    known = seen(params)
    if met := sorted({*draws, *replacements} & known.keys()):
        places = ", ".join(sorted({known[draw] for draw in met}))
        raise ClaimError(f"draws {met} of the design were seen: they are in {places}")
    values = {
        "rule": fixed_by(params.claims, claims),
        "claims": params.claims,
        "keys": keys(params, looks.needed(params.claims, claims, params)),
        "judging": judging(),
        "draws": tuple(draws),
        "replacements": tuple(replacements),
        "looks": tuple(at),
    }
    try:
        design = Design.model_validate(values)
    except ValidationError as error:
        raise ClaimError("; ".join(e["msg"] for e in error.errors())) from None
    design.check(claims)
    text = "# A registered design: committed before its first draw, and not changed after it.\n"
    atomic_write(path, text + json.dumps(design.model_dump(mode="json"), indent=1) + "\n")  # JSON is YAML
    return path


def judging() -> str:
    """Identity of the code by which rows become words. A design does not refuse another one, as a fault in it must be
    mended before the last look; it says so."""
    return Code(depends.ROOT).identity(["workbook.ledger.looks:ledger"])


def seen(params: Params) -> dict[int, str]:
    """Draw -> the file that has it: in seeds, draws or the search of any profile, or in a registered design."""
    root = (params.folder / params.root).resolve()
    folders = [params.folder.resolve(), root, *sorted((root / "profiles").glob("*/"))]
    files = [folder / name for folder in folders for name in ("params.yaml", REGISTERED)]
    return {draw: f"{path.relative_to(root)}" for path in files if path.is_file() for draw in _draws(_read(path))}


def _draws(values: Mapping[str, Any]) -> Iterator[int]:
    for part in (values, *(values.get("sizes") or {}).values()):
        for name in ("seeds", "draws", "replacements"):
            yield from part.get(name) or ()
        if "draw" in (search := part.get("tune") or {}):
            yield search["draw"]


def load_design(params: Params, claims: Mapping[str, Claim]) -> Design:
    """The profile's design, checked against today's rule; its keys are not looked at. Raises ClaimError."""
    path = params.folder / REGISTERED
    try:
        design = Design.model_validate(_read(path))
    except (OSError, ValidationError) as error:
        raise ClaimError(f"{path}: expected a registered design (settle register), found {error}") from None
    design.check(claims)
    return design


def changed(design: Design, claims: Mapping[str, Claim], params: Params) -> str:
    """In words, the conditions whose settings, code or libraries are others now, as the files stand; "" if none is."""
    try:
        now = keys(params, looks.needed(design.claims, claims, params))
    except (CodeError, SyntaxError):  # a file in the middle of an edit
        now = {}
    names = [name for name in {**design.keys, **now} if now.get(name) != design.keys.get(name)]
    more = f" and {len(names) - 8} others" if len(names) > 8 else ""
    said = f"settings, code or libraries of {', '.join(names[:8])}{more} differ from the registered ones"
    return f"{said}; a change takes a new registration and draws that no one has seen" if names else ""


def _read(path: Path) -> Any:
    return YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))
