"""The judge: each claim gets its word by one rule on the runs of a profile, with the published effect beside.

claims = load("claims.yaml")                                # of `checks`
verdict = judge(claims["P20"], results)                     # the word, every test, one computed sentence
rows = ledger(claims, results, results.params.claims)       # every claim of the file, one row each
page.write(rows, "reports/mini/claims")                     # claims.csv, claims.json, claims.md
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from scipy.stats import false_discovery_control

from rlnlp.settings import nearest
from workbook.ledger import sensitivity
from workbook.ledger.checks import shared_yardstick, world_of
from workbook.ledger.claim import Claim, ClaimError, conditions_of
from workbook.ledger.contrast import NOT_MEASURED, in_words, measure, nothing, present, seeds_needed
from workbook.ledger.made import Component
from workbook.ledger.ruling import (
    AWAITING,
    ELSEWHERE,
    WORDS,
    rule_hash,
)
from workbook.results.tables import effect, join
from workbook.statistics import paired, power
from workbook.statistics.rule import (
    AGAINST,
    FEW,
    FOR,
    OPEN,
    OPENS,
    OPPOSITE,
    combine,
    decide,
    fair,
    holm,
)


@dataclass(frozen=True)
class Verdict:
    """A claim's word, what it rests on, and one computed sentence. p: of "holds", None where it was not tested;
    lacks: what would make it testable."""

    id: str
    word: str
    components: tuple[Component, ...]
    sentence: str
    lacks: tuple[str, ...] = ()
    p: float | None = None

    @property
    def deciding(self) -> tuple[Component, ...]:
        return tuple(c for c in self.components if c.role == "decides")

    @property
    def n_needed(self) -> int | None:
        """Seeds that would settle every deciding test still open; None if none is, or if no number is known."""
        return max((c.n_needed for c in self.deciding if c.word in OPENS and c.n_needed), default=None)

    @property
    def parts_held(self) -> str:
        """ "2 of 3" deciding tests hold; "" for a claim of one."""
        words = [c.word in FOR for c in self.deciding]
        return f"{sum(words)} of {len(words)}" if len(words) > 1 else ""


def judge(claim: Claim, results, split: str = "test", alpha: float = paired.ALPHA) -> Verdict:
    """A claim's verdict on the runs of a profile.

    results: `results.Results` of the claim's conditions; split: "test" (final), or "half" (half the budget; what was
    not measured there decides nothing). A claim without tests is awaiting or not testable here. A deciding test without
    numbers
    for some seeds, or without a yardstick, leaves the claim open, and its sentence says so.
    Raises: ClaimError for a deciding test whose runs are not listed, whose listed runs have no results, or whose metric
    or decoding was not measured in any seed, unless all of them diverged.
    """
    if not claim.tests:
        word = AWAITING if claim.awaiting else ELSEWHERE
        wanted = claim.awaiting or claim.needs
        said = f"{word.capitalize()}: {'' if claim.awaiting else 'needs '}{'; '.join(wanted)}."
        return Verdict(claim.id, word, (), said, wanted)
    if lacking := lacks(claim, results.params.all_runs):
        raise ClaimError(
            f"{claim.id}: {results.params.profile} lists it and does not run what it needs: {'; '.join(lacking)}"
        )
    measured = [measure(test, claim, results, split, alpha) for test in claim.tests]
    decides = [i for i, made in enumerate(measured) if made.component.role == "decides"]
    parts = [measured[i].evidence or nothing(alpha) for i in decides]
    adjusted = dict(zip(decides, fair(parts, claim.decided_by)))
    p_holm = dict(zip(decides, _holm([measured[i].component.p_t for i in decides])))
    components = []
    for i, (component, found, _) in enumerate(measured):
        if found is not None:
            component = replace(component, word=decide(adjusted.get(i, found)), p_t_holm=p_holm.get(i))
            if component.word in OPENS and split == "test":
                component = replace(component, n_needed=seeds_needed(component))
        components.append(component)
    if gone := [f"{c.name} ({c.note})" for c, found, _ in measured if c.role == "decides" and found is None]:
        said = f"Open: not measured ({split}): {'; '.join(gone)}."  # never a word on a part of a claim
        return Verdict(claim.id, OPEN, tuple(components), said)
    whole = combine(parts, claim.decided_by)
    word, lacking = decide(whole), ()
    if word == FEW:
        word, lacking = ELSEWHERE, (f"at least {power.fewest_seeds()} seeds (here {len(results.seeds)})",)
    found = Verdict(claim.id, word, tuple(components), "", lacking, None if lacking else whole.p)
    return replace(found, sentence=_sentence(found))


def sign_changes(full: Verdict, half: Verdict) -> bool:
    """Whether a word for the claim turns into one against it or back from half the budget to the full one, in the claim
    or in a deciding test, or a deciding effect changes a sign that it was shown to have at one of them (chance turns
    every second effect of 0, and what is too small has no sign that was shown)."""
    before = {c.name: c for c in half.deciding}
    for now in full.deciding:
        then = before.get(now.name)
        if then is None or then.effect is None or now.effect is None:
            continue
        shown = bool({now.word, then.word} & {*FOR, OPPOSITE})
        if _turned(now.word, then.word) or now.direction != "equal" and then.effect * now.effect < 0 and shown:
            return True
    return _turned(full.word, half.word)


def lacks(claim: Claim, runs: Mapping[str, Any]) -> list[str]:
    """What a profile with these runs (condition: entry) would have to add for the claim's deciding tests."""
    lacking: dict[str, None] = {}
    for test in claim.deciding:
        here, said = present(test, runs)
        if said:
            lacking[said] = None
        for condition, decoding in (test.split(term) for arm in here for terms in arm for term in terms):
            if decoding not in ("plain", "top_p", "own") and decoding not in (runs[condition].get("decodings") or ()):
                lacking[f"{decoding} among the decodings of {condition}"] = None
        if test.unit == "yardsticks":
            lacking.update(dict.fromkeys(f"the run {c}" for c in test.yardstick if c not in runs))
    return list(lacking)


def ledger(
    claims: Mapping[str, Claim],
    results,
    listed: Sequence[str],
) -> list[dict[str, Any]]:
    """One row per claim of the file, in its order: word, sentence, tests, the word at half the budget.

    listed: ids that the profile decides. p: of "holds", whatever the word; q: Benjamini-Yekutieli over the claims with
    a p; assay: see `sensitivity`.
    Raises: ClaimError naming every missing run of every listed claim, an id that no claim has, or a listed claim that
    cannot be tested at all.
    """
    params = results.params
    check_listed(claims, listed, params.all_runs, params.profile)
    lost = {
        name: gone
        for name in listed
        if (gone := sorted(c for c in conditions_of(claims[name]) & set(params.all_runs) if c in results.missing))
    }
    if lost:
        said = "; ".join(f"{name} needs {join(gone)}" for name, gone in lost.items())
        raise ClaimError(
            f"{params.profile}: runs of listed claims have no results: {said}. Run them again (make reproduce)"
        )
    rows, fixed = [], rule_hash(claims)
    for name, claim in claims.items():
        half = None
        if name in listed:
            verdict, half = judge(claim, results), judge(claim, results, "half")
        elif claim.tests:
            verdict = _not_here(claim, params.all_runs)
        else:
            verdict = judge(claim, results)
        rows.append(row_of(claim, verdict, half, results, fixed))
        if rows[-1]["p"] is not None:
            made = [measure(test, claim, results, "test") for test in claim.deciding]
            found = sensitivity.assay(claim, made, [len(results.seeds)])
            rows[-1]["assay"] = found and asdict(found)
    over_the_ledger(rows)
    return rows


def over_the_ledger(rows: Sequence[dict[str, Any]]) -> None:
    """Fill in what takes all rows together: Holm over every deciding test, q over every claim that was tested."""
    family = [c for row in rows for c in row["components"] if c["role"] == "decides" and c["p_t"] is not None]
    for component, p in zip(family, _holm([c["p_t"] for c in family])):
        component["p_t_table"] = p
    if tested := [row for row in rows if row["p"] is not None]:
        shares = false_discovery_control([row["p"] for row in tested], method="by")
        for row, q in zip(tested, shares):
            row["q"] = float(q)


def runs_of(claims: Mapping[str, Claim], params) -> list[str]:
    """The conditions of the profile that its listed claims compare, in the order of its runs: what `ledger` needs."""
    wanted = {c for name in params.claims if name in claims for c in conditions_of(claims[name])}
    return [c for c in params.all_runs if c in wanted]


def check_listed(claims: Mapping[str, Claim], listed: Sequence[str], runs: Mapping[str, Any], profile: str) -> None:
    """Raises ClaimError naming each listed claim that these runs cannot decide, and what it lacks."""
    problems, worlds = [], {name: world_of(entry) for name, entry in runs.items()}
    for name in listed:
        if name not in claims:
            problems.append(f"{name}: no claim is called so{nearest(name, claims)}")
        elif not claims[name].tests:
            what = claims[name].awaiting or claims[name].needs
            problems.append(f"{name}: has no tests; it {'awaits' if claims[name].awaiting else 'needs'} {join(what)}")
        elif lacking := lacks(claims[name], runs):
            problems.append(f"{name}: needs {join(lacking)}")
        else:
            problems += [
                f"{name}: {test.name}: {said}"
                for test in claims[name].tests
                if (said := shared_yardstick(test, worlds))
            ]
    if problems:
        raise ClaimError("\n  ".join([f"{profile}: claims lists what it cannot decide", *problems]))


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """How many claims got each word, in the order of `WORDS`; words that no claim got are left out."""
    counts = {word: sum(row["word"] == word for row in rows) for word in WORDS}
    return {word: count for word, count in counts.items() if count}


# parts ---------------------------------------------------------------------------------------------------------------


def _holm(p_values: Sequence[float | None]) -> list[float | None]:
    known = [p for p in p_values if p is not None]
    stepped = iter(holm(known))
    return [None if p is None else next(stepped) for p in p_values]


def _contrary(word: str, other: str) -> bool:
    """Whether one of two words says "opposite" and the other one holds."""
    return (word in FOR and other == OPPOSITE) or (word == OPPOSITE and other in FOR)


def _turned(word: str, other: str) -> bool:
    """Whether one of two words is for the claim and the other one against it."""
    return (word in FOR and other in AGAINST) or (word in AGAINST and other in FOR)


def _sentence(verdict: Verdict) -> str:
    """The word and every deciding test, computed."""
    if verdict.lacks:
        return f"{verdict.word.capitalize()}: needs {join(verdict.lacks)}."
    parts = []
    for c in verdict.deciding:
        said = f"{c.name} {effect(c.effect, c.effect_low, c.effect_high)}" if c.effect is not None else c.name
        beside = [f"published {c.published:+.2f}"] if c.published is not None else []
        beside += [c.note] if c.note else []
        said += f" ({'; '.join(beside)})" if beside else ""
        parts.append(said if c.word in (verdict.word, NOT_MEASURED) else f"{said}: {c.word}")
    open_ = [c for c in verdict.deciding if c.word in OPENS and c.n_needed]
    more = ""
    if verdict.word in OPENS and open_:
        worst = max(open_, key=lambda c: c.n_needed)
        many = in_words(worst.n_needed, worst.n)
        said = (
            f"{many.capitalize()} seeds are needed to" if worst.n_needed == worst.n + 1 else f"About {many} seeds would"
        )
        more = f" {said} settle an effect of {worst.stated:.3g} ({worst.name})."
    beside = [
        c
        for c in verdict.components
        if c.role == "beside" and c.direction != "equal" and _contrary(c.word, verdict.word)
    ]
    against = [f"{c.name} {effect(c.effect, c.effect_low, c.effect_high)}" for c in beside]
    more += f" Beside it, but not in the word, the opposite: {'; '.join(against)}." if against else ""
    units = {c.unit for c in verdict.deciding}
    unit = f" ({units.pop()})" if len(units) == 1 else " (yardsticks, or log ratios and shares where there is none)"
    held = f"; {verdict.parts_held} parts hold" if verdict.parts_held else ""
    return f"{verdict.word.capitalize()}{unit}{held}: {'; '.join(parts)}.{more}"


def row_of(claim: Claim, verdict: Verdict, half: Verdict | None, results, fixed: str) -> dict[str, Any]:
    """A row of the ledger. fixed: the hash of the rule."""
    return {
        "id": claim.id,
        "claim": claim.claim,
        "source": str(claim.source),
        "report": claim.report,
        "word": verdict.word,
        "sentence": verdict.sentence,
        "lacks": list(verdict.lacks),
        "decided_by": claim.decided_by,
        "parts_held": verdict.parts_held,
        "p": verdict.p,
        "q": None,
        "assay": None,
        "n_needed": verdict.n_needed,
        "half_word": half and half.word,
        "half_sentence": half and half.sentence,
        "turns": bool(half) and sign_changes(verdict, half),
        "published": claim.published,
        "published_text": _published(claim),
        "traps": claim.traps,
        "components": [asdict(c) for c in verdict.components],
        "profile": results.params.profile,
        "seeds": len(results.seeds),
        "rule": fixed,
    }


def _published(claim: Claim) -> str:
    """ "T5 PPO inf: score 0.847 ± 0.039, ...; ..."."""

    def cell(value) -> str:
        return f"{value[0]:g} ± {value[1]:g}" if isinstance(value, list) else f"{value:g}"

    rows = {
        name: ", ".join(f"{k} {cell(v)}" for k, v in row.items() if k != "n") for name, row in claim.published.items()
    }
    return "; ".join(f"{name}: {said}" for name, said in rows.items()) or "no numbers"


def _not_here(claim: Claim, runs: Mapping[str, Any]) -> Verdict:
    """A claim with tests that the profile does not list, and what it would take."""
    lacking = tuple(lacks(claim, runs))
    said = f"needs {join(lacking)}" if lacking else "its runs are here; list it in `claims`"
    return Verdict(claim.id, ELSEWHERE, (), f"Not testable here: {said}.", lacking or ("its id in `claims`",))
