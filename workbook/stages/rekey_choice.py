"""Which units `rekey` reruns: a smallest set that shows each kind of code, sampler and decoding once.

A unit shows features, plain texts. Of a run (`rerun.features`): the learner with its task, each decoding, each setting
that is a word, and of one that is a number whether it is 0, 1 or another, as that is where code branches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from workbook.store.identity import differences

SAID = 3  # features that are named
STAGE = "stage"  # of the identities of a unit, the one that DVC sees
Facts = Mapping[str, Any]  # of `rerun.facts`


class Chosen(NamedTuple):
    """why: what no other unit shows, or what asks for it; seconds: of one draw or seed, at one commit."""

    profile: str
    stage: str
    why: str
    seconds: float = 0.0


def choose(before: Facts, after: Facts) -> list[Chosen]:
    """Of the profiles in this order, each for what those before lack; in the order in which they can run. A unit whose
    code says what it said is left out, as its rows count anyway.

    before, after: `rerun.facts` of the old commit and of the new one.
    """
    seen: set[str] = set()
    found = []
    for profile, about in after.items():
        old = before.get(profile, {"lacks": "", "units": {}})
        if about["lacks"] or old["lacks"]:
            continue
        units = {stage: unit for stage, unit in about["units"].items() if stage in old["units"]}
        changed = [stage for stage, unit in units.items() if unit["code"] != old["units"][stage]["code"]]
        shown = {stage: set(units[stage]["features"]) - seen for stage in changed}
        wanted = cover(shown)
        seen = seen.union(*(shown[stage] for stage in wanted))
        found += [Chosen(profile, stage, why) for stage, why in _with_needs(units, shown, wanted)]
    return found


def cover(shown: Mapping[str, Collection[str]]) -> list[str]:
    """Units that together show all that any shows, and none of which could be left out; in the mapping's order.

    The one that shows most of what is missing comes next, of equals the first; then those that later ones made
    superfluous go.
    """
    missing, picked = set().union(*shown.values()), []
    while missing:
        best = max(shown, key=lambda unit: len(missing & set(shown[unit])))
        picked.append(best)
        missing -= set(shown[best])
    for unit in list(picked):
        others = set().union(*(shown[other] for other in picked if other != unit))
        if set(shown[unit]) <= others:
            picked.remove(unit)
    return [unit for unit in shown if unit in picked]


def _with_needs(
    units: Mapping[str, Any], shown: Mapping[str, Collection[str]], wanted: Collection[str]
) -> Iterator[tuple[str, str]]:
    """The units with what they need first, and why each is there: what no other of them shows, rare things first."""
    count, often = (Counter(f for stage in stages for f in shown[stage]) for stages in (wanted, shown))
    needed: dict[str, str] = {}
    for stage in reversed(units):  # what is needed stands before
        if stage in wanted or stage in needed:
            needed = {need: stage for need in units[stage]["needs"]} | needed
    for stage in units:
        if stage in wanted:
            own = sorted((f for f in shown[stage] if count[f] == 1), key=lambda f: (often[f], f))
            yield stage, "; ".join(own[:SAID]) + (f" and {len(own) - SAID} others" if len(own) > SAID else "")
        elif stage in needed:
            yield stage, f"{needed[stage]} needs it"


def paired(before: Facts, after: Facts, plan: Iterable[Chosen]) -> dict[str, list[list[str]]]:
    """What a record says of the units of a plan: what keeps rows -> (identity before, after) of code that changed."""
    found: dict[str, set[tuple[str, str]]] = {}
    for chosen in plan:
        old, new = (side[chosen.profile]["units"][chosen.stage] for side in (before, after))
        for what, identity in new["code"].items():
            if identity != old["code"][what] and not (what == STAGE and differences(old["outside"], new["outside"])):
                found.setdefault(what, set()).add((old["code"][what], identity))
    return {what: sorted(map(list, pairs)) for what, pairs in found.items()}


def again(before: Facts, after: Facts, names: Mapping[str, str]) -> Iterator[str]:
    """What will run again, a line for each profile and reason: its code changed, and no record says what it was.

    names: `rekeyed.names`.
    """
    for profile, about in after.items():
        groups: dict[str, list[str]] = {}
        for stage, new in about["units"].items():
            old = before.get(profile, {"units": {}})["units"].get(stage)
            if old and any(
                names.get(old["code"][k], old["code"][k]) != names.get(i, i) for k, i in new["code"].items()
            ):
                others = differences(old["outside"], new["outside"])
                groups.setdefault(about["lacks"] or "; ".join(others[:3]) or "its code changed", []).append(stage)
        for why, stages in groups.items():
            more = f" and {len(stages) - 4} others" if len(stages) > 4 else ""
            yield f"{profile}: {', '.join(stages[:4])}{more} will run again: {why}"
