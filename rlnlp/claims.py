"""The ledger: each claim of claims.yaml judged by one rule on the runs of a profile, with the published effect beside.

    claims = load("claims.yaml")
    verdict = judge(claims["P20"], results)                     # the word, every test, one computed sentence
    rows = ledger(claims, results, results.params.claims)       # every claim of the file, one row each
    write(rows, "reports/mini/claims")                          # claims.csv, claims.json, claims.md

`python -m rlnlp.claims check params.yaml` tells whether a profile runs what its claims need; `python -m rlnlp.claims combine`
puts reports/*/claims/claims.json side by side in reports/claims.*, `... readme` their summary into README.md.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import io
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
from ruamel.yaml import YAML

from rlnlp import effects, stats
from rlnlp.comparisons import NOT_MEASURED, NOTHING, Component, measure, present, seeds_needed
from rlnlp.entries import Claim, ClaimError, conditions_of, load, nearest, stated
from rlnlp.runs import atomic_json, atomic_write
from rlnlp.tables import join
from rlnlp.tables import markdown as as_markdown
from rlnlp.verdicts import FAILS, FEW, HOLDS, INCONCLUSIVE, Evidence, adjusted, decide
from rlnlp.verdicts import combine as combined

AWAITING, ELSEWHERE = "awaiting", "not testable here"
REPRODUCED, NOT_REPRODUCED = "reproduced", "not reproduced"
WORDS = (HOLDS, FAILS, INCONCLUSIVE, AWAITING, ELSEWHERE, REPRODUCED, NOT_REPRODUCED)
SMALLER = "shown to be smaller than stated beforehand"
TURNS, NOT_TESTED = " (turns at half the budget)", "–"
FULL_SCALE = "paper"  # the profile whose verdicts are about reproduction
RULE = (
    "The unit is the seed. A test makes one number per seed from the conditions it names, on the test prompts at the "
    "final checkpoint. It holds here if the mean lies in the claimed direction, the two-sided t test gives p <= alpha"
    " and the exact one-sided sign-flip test too; a claim of equality holds here if two one-sided t tests put the "
    "difference within its margin. It fails here if the same is true of the opposite direction, or if a claimed "
    "equality is shown to be broken by more than the margin. Everything else is inconclusive; that an effect is shown to"
    " be smaller than the one stated beforehand (two one-sided t tests) is said beside and changes no word. Spreads are "
    "compared by Brown-Forsythe, shares of runs by Fisher's exact test, a peak by its curvature and by inner points "
    "above the first and above the last, two orders of the same conditions by Kendall's tau within each seed (its mean over"
    " seeds against 0), two sweeps at an equal measured KL or, of masks, at an equal share of probability kept. A claim with "
    "several tests, all needed: it holds here if each one holds, "
    "without adjustment (intersection-union), and fails here if one fails after Holm over the claim's own deciding "
    "tests. Where any one is enough: it holds here if one holds after Holm, and fails here if each one fails. Tests "
    "that stand beside take no part. Where so few seeds cannot reach alpha whatever they show, no test is made and "
    "the claim is not testable here. A contrast and a spread need all their conditions; trend, peak, matched, "
    "frontier, fraction and rank take those of their conditions that the profile lists, at least as many as the test says. "
    "A listed condition without results is an error; where a deciding test has no numbers for some seeds, because their "
    "runs diverged, the claim is inconclusive. Effects are in yardsticks: how far PPO without the KL penalty moves a "
    "metric from the untrained model (judges, drop and the score in training by how far it moves the score, KL while training "
    "by the KL); in a world of its own (numbers, dates), whose models and scores are others, how far PPO as it stands there "
    "moves it from that world's untrained model. "
    "Intervals in yardsticks leave out the yardstick's own uncertainty; where its own 95 % interval over seeds includes "
    "0, no test is made with it, and a claim that such a test decides is inconclusive. The same is done at half the training budget on the validation prompts;"
    " flagged are holds here turning into fails here or back, and a changed sign of a deciding effect that is not "
    "inconclusive at both. In the profile paper the words are reproduced and not reproduced. Reproduced asks in addition "
    "that no deciding effect is smaller than the one stated beforehand (half the published one where there is one). Not "
    "reproduced is also said where effects are shown to be smaller than that, whether or not they differ from 0, counted"
    " and adjusted as effects in the opposite direction are."
)
WRITTEN = (
    "The tests of P01 to P05 were written after earlier runs of these conditions had been seen (an earlier report, of the "
    "same seeds), so they are no predictions. The tests of all other claims were written before any of their own runs; the "
    "untrained model, the KL runs and PPO in its own nucleus, which some of them compare with, had been seen. Those of P38, P41 and "
    "C01 to C18 were written before any other run of their conditions on seeds 1 to 5; their learners' settings were chosen by trial on draw 0. In "
    "the world of numbers the learners without a mask or with NLPO's (PPO, also with the reward at the end, NLPO, A2C, GRPO, "
    "TRPO) had been seen on draws 1 to 5 in an earlier trial, whose code was written anew since."
)


@dataclass(frozen=True)
class Verdict:
    """A claim's word, what it rests on, and one computed sentence. lacks: what would make it testable."""

    id: str
    word: str
    components: tuple[Component, ...]
    sentence: str
    lacks: tuple[str, ...] = ()

    @property
    def deciding(self) -> tuple[Component, ...]:
        return tuple(c for c in self.components if c.role == "decides")

    @property
    def n_needed(self) -> int | None:
        """Seeds that would settle every deciding test that is still open; None if none is, or if no number is known."""
        return max((c.n_needed for c in self.deciding if c.word == INCONCLUSIVE and c.n_needed), default=None)


def rule_hash(claims: Mapping[str, Claim] | None = None) -> str:
    """SHA-256, hex, of the rule, alpha and every claim's tests with the effects they state; prose and names of tests are
    not in it. claims: default, those of ./claims.yaml or of the repository. The first 12 digits are shown."""
    known = load(_claims_file()) if claims is None else claims
    tests = {
        name: [c.decided_by, *({**t.model_dump(exclude={"name"}), "stated": stated(t, c)} for t in c.tests)]
        for name, c in known.items()
        if c.tests
    }
    fixed = json.dumps({"rule": RULE, "alpha": stats.ALPHA, "claims": tests}, sort_keys=True, default=str)
    return hashlib.sha256(fixed.encode()).hexdigest()


def judge(claim: Claim, results, split: str = "test") -> Verdict:
    """A claim's verdict on the runs of a profile.

    results: `results.Results` of the claim's conditions; split: "test" (final), or "half" (half the budget; what was not
    measured there decides nothing). A claim without tests is awaiting or not testable here. A deciding test without numbers
    for some seeds, or without a yardstick, makes the claim inconclusive and its sentence says so.
    Raises: ClaimError for a deciding test whose runs are not listed, whose listed runs have no results, or whose metric
    or decoding was not measured in any seed, unless all of them diverged.
    """
    if not claim.tests:
        word = AWAITING if claim.awaiting else ELSEWHERE
        wanted = claim.awaiting or claim.needs
        said = f"{word.capitalize()}: {'' if claim.awaiting else 'needs '}{'; '.join(wanted)}."
        return Verdict(claim.id, word, (), said, wanted)
    if lacking := lacks(claim, results.params.all_runs):
        raise ClaimError(f"{claim.id}: {results.params.profile} lists it and does not run what it needs: {'; '.join(lacking)}")
    measured = [measure(test, claim, results, split) for test in claim.tests]
    decides = [i for i, (c, _) in enumerate(measured) if c.role == "decides"]
    parts = [measured[i][1] or NOTHING for i in decides]
    fair = dict(zip(decides, adjusted(parts)))
    p_holm = dict(zip(decides, _holm([measured[i][0].p_t for i in decides])))
    components = []
    for i, (component, found) in enumerate(measured):
        if found is not None:
            if i in fair:  # the side of each part that the claim's word takes after Holm, see `verdicts.combine`
                side = "p_against" if claim.decided_by == "all" else "p_for"
                found = replace(found, **{side: getattr(fair[i], side)})
            component = replace(component, word=decide(found), p_t_holm=p_holm.get(i))
            if component.word == INCONCLUSIVE and split == "test":
                component = replace(component, n_needed=seeds_needed(component))
        components.append(component)
    if gone := [f"{c.name} ({c.note})" for c, found in measured if c.role == "decides" and found is None]:
        said = f"Inconclusive: not measured ({split}): {'; '.join(gone)}."  # never a word on a part of a claim
        return Verdict(claim.id, INCONCLUSIVE, tuple(components), said)
    word = decide(combined(parts, claim.decided_by))
    lacking: tuple[str, ...] = ()
    if word == FEW:
        word, lacking = ELSEWHERE, (f"at least {effects.fewest_seeds()} seeds (here {len(results.seeds)})",)
    elif results.params.profile == FULL_SCALE:
        if _refuted(parts, [measured[i][0].p_smaller for i in decides], claim.decided_by):
            word = NOT_REPRODUCED
        elif word == HOLDS:
            word = INCONCLUSIVE if any(map(_too_small, components)) else REPRODUCED
    found = Verdict(claim.id, word, tuple(components), "", lacking)
    return replace(found, sentence=_sentence(found))


def sign_changes(full: Verdict, half: Verdict) -> bool:
    """Whether holds here turns into fails here or back from half the budget to the full one, in the claim or in a deciding
    test, or a deciding effect changes its sign that is not inconclusive at both (chance turns every second effect of 0)."""
    before = {c.name: c for c in half.deciding}
    for now in full.deciding:
        then = before.get(now.name)
        if then is None or then.effect is None or now.effect is None:
            continue
        said = {now.word, then.word}
        if said == {HOLDS, FAILS} or now.direction != "equal" and then.effect * now.effect < 0 and said & {HOLDS, FAILS}:
            return True
    return {full.word, half.word} in ({HOLDS, FAILS}, {REPRODUCED, NOT_REPRODUCED})


def lacks(claim: Claim, runs: Mapping[str, Any]) -> list[str]:
    """What a profile with these runs (condition: entry) would have to add for the claim's deciding tests; empty: nothing."""
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
    claims: Mapping[str, Claim], results, listed: Sequence[str], elsewhere: Mapping[str, Mapping[str, Any]] | None = None
) -> list[dict[str, Any]]:
    """One row per claim of the file, in its order: word, sentence, tests, the word at half the budget and whether it turned.

    listed: ids that the profile decides; elsewhere: other profiles' runs (`profiles`), to say where a claim can be tested.
    Raises: ClaimError naming every missing run of every listed claim, an id that no claim has, or a listed claim that
    cannot be tested at all.
    """
    params = results.params
    _check_listed(claims, listed, params.all_runs, params.profile)
    lost = {
        name: gone
        for name in listed
        if (gone := sorted(c for c in conditions_of(claims[name]) & set(params.all_runs) if c in results.missing))
    }
    if lost:
        said = "; ".join(f"{name} needs {join(gone)}" for name, gone in lost.items())
        raise ClaimError(f"{params.profile}: runs of listed claims have no results: {said}. Run them again (make reproduce)")
    rows, rule = [], rule_hash(claims)
    for name, claim in claims.items():
        half = None
        if name in listed:
            verdict, half = judge(claim, results), judge(claim, results, "half")
        elif claim.tests:
            verdict = _not_here(claim, params.all_runs, elsewhere or {})
        else:
            verdict = judge(claim, results)
        rows.append(_row(claim, verdict, half, results, rule))
    family = [c for row in rows for c in row["components"] if c["role"] == "decides" and c["p_t"] is not None]
    for component, p in zip(family, _holm([c["p_t"] for c in family])):
        component["p_t_table"] = p
    return rows


def runs_of(claims: Mapping[str, Claim], params) -> list[str]:
    """The conditions of the profile that its listed claims compare, in the order of its runs: what to load for `ledger`."""
    wanted = {c for name in params.claims if name in claims for c in conditions_of(claims[name])}
    return [c for c in params.all_runs if c in wanted]


def profiles(root: str | Path = ".") -> dict[str, dict[str, Any]]:
    """Profile -> its runs (condition: entry), of params.yaml and profiles/*/params.yaml; read, not checked."""
    found = {}
    for path in [Path(root) / "params.yaml", *sorted(Path(root).glob("profiles/*/params.yaml"))]:
        if path.is_file():
            values = YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))
            found[values["profile"]] = {**values["runs"], **(values.get("continued") or {})}
    return found


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """How many claims got each word, in the order of `WORDS`; words that no claim got are left out."""
    counts = {word: sum(row["word"] == word for row in rows) for word in WORDS}
    return {word: count for word, count in counts.items() if count}


def table(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """The ledger for people: a row per claim."""
    return pd.DataFrame(
        [
            {
                "claim": f"{row['id']}: {row['claim']}",
                "source": row["source"],
                "published": row["published_text"],
                "here": row["sentence"],
                "verdict": row["word"] + TURNS * row["turns"],
            }
            for row in rows
        ]
    )


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """The ledger as Markdown: what it comes to, the table, every test, the rule with its hash."""
    tests = [
        {
            "claim": row["id"],
            "test": c["name"] + ("" if c["role"] == "decides" else " (beside)"),
            "metric": c["metric"],
            "effect": _span(c["effect"], c["effect_low"], c["effect_high"]),
            "published": _span(c["published"], c["published_low"], c["published_high"]),
            "stated": ("±" if c["direction"] == "equal" else "") + f"{c['stated']:.3g}",
            "unit": c["unit"],
            "p (t)": _p(c["p_t"]), "Holm": _p(c["p_t_holm"]), "Holm, table": _p(c["p_t_table"]), "p (exact)": _p(c["p_exact"]),
            "n": "" if c["n"] is None else f"{c['n']}",
            "n that settles it": "" if c["n_needed"] is None else f"{c['n_needed']}",
            "word": c["word"] + (f" ({'; '.join(said)})" if (said := [*filter(None, [c["note"], c["smaller"] and SMALLER])]) else ""),
        }
        for row in rows
        for c in row["components"]
    ]  # fmt: skip
    rule = rows[0]["rule"] if rows else rule_hash()
    parts = [f"# Claims, profile {rows[0]['profile']}" if rows else "# Claims", _counts(rows) + ".", as_markdown(table(rows))]
    if tests:
        parts += ["## Every test", as_markdown(pd.DataFrame(tests))]
    parts += ["## The rule", f"Hash of the rule and of every test: `{rule[:12]}`. Alpha is {stats.ALPHA:g}.", RULE, WRITTEN]
    return "\n\n".join(parts) + "\n"


def write(rows: Sequence[Mapping[str, Any]], folder: str | Path) -> None:
    """claims.json (everything), claims.csv (a line per test; one for a claim without) and claims.md; same rows, same bytes."""
    folder = Path(folder)
    atomic_json(folder / "claims.json", {"rule": RULE, "summary": summary(rows), "rows": list(rows)})
    shared = ("id", "report", "word", "half_word", "turns", "profile", "seeds", "rule")
    names = list(Component.__dataclass_fields__)
    lines = []
    for row in rows:
        for c in row["components"] or [{}]:
            lines.append([*(row[k] for k in shared), *(c.get(k) for k in names)])
    titles = [{"name": "test", "word": "test_word"}.get(n, n) for n in names]
    _write_csv(folder / "claims.csv", [*shared, *titles], lines)
    atomic_write(folder / "claims.md", markdown(rows))


def combine(sources: Mapping[str, str | Path], folder: str | Path) -> list[dict[str, Any]]:
    """The ledgers of several profiles side by side: claims.csv, claims.json and claims.md in `folder`; returns the rows.

    sources: profile -> its claims.json. Profiles judged by different rules or tests are named.
    Raises: ClaimError without a ledger, or for a file that is none.
    """
    if not sources:
        raise ClaimError("no ledger to combine: expected reports/<profile>/claims/claims.json, found none")
    ledgers: dict[str, dict[str, dict]] = {}
    for profile, path in sources.items():
        try:
            ledgers[profile] = {row["id"]: row for row in json.loads(Path(path).read_text(encoding="utf-8"))["rows"]}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ClaimError(f"{path}: expected a ledger (claims.json), found {error!r}") from None
    ids = list(dict.fromkeys(name for found in ledgers.values() for name in found))
    rows = []
    for name in ids:
        known = {profile: found[name] for profile, found in ledgers.items() if name in found}
        first = next(iter(known.values()))
        rows.append({
            **{k: first[k] for k in ("id", "claim", "source", "published_text")},
            "words": {profile: row["word"] for profile, row in known.items()},
            "sentences": {profile: row["sentence"] for profile, row in known.items()},
            "turns": {profile: row["turns"] for profile, row in known.items()},
        })  # fmt: skip
    rules = {profile: next(iter(found.values()))["rule"] for profile, found in ledgers.items() if found}
    said = [f"{profile}: {_counts(list(found.values()))}." for profile, found in ledgers.items()]
    if len(set(rules.values())) > 1:
        which = join([f"{p} `{r[:12]}`" for p, r in rules.items()])
        said.append(f"Not all were judged by the same rule and tests: {which}.")
    shown = [
        {"claim": f"{r['id']}: {r['claim']}", "published": r["published_text"],
         **{p: r["words"].get(p, "") + TURNS * r["turns"].get(p, False) for p in ledgers}}
        for r in rows
    ]  # fmt: skip
    folder = Path(folder)
    atomic_json(folder / "claims.json", {"rules": rules, "rows": rows})
    about = ("id", "claim", "source", "published_text")
    lines = [[*(r[k] for k in about), *(r["words"].get(p) for p in ledgers)] for r in rows]
    _write_csv(folder / "claims.csv", [*about, *ledgers], lines)
    page = ["# Claims, profile by profile", *said, as_markdown(pd.DataFrame(shown))]
    atomic_write(folder / "claims.md", "\n\n".join(page) + "\n")
    return rows


BEGIN, END = "<!-- ledger: python -m rlnlp.claims readme -->", "<!-- end of ledger -->"


def readme(text: str, combined: str | Path) -> str:
    """A README's text with the ledger's summary between its two marks, made from `combine`'s claims.json.

    Shown are the claims that some profile put to a test; the others are counted. Raises: ClaimError without the marks.
    """
    before, mark, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (mark and end):
        raise ClaimError(f"README: expected the lines {BEGIN} and {END}")
    rows = json.loads(Path(combined).read_text(encoding="utf-8"))["rows"]
    names = list(dict.fromkeys(p for row in rows for p in row["words"]))
    untested = (AWAITING, ELSEWHERE)
    shown = [row for row in rows if not {*row["words"].values()} <= {*untested}]
    table = pd.DataFrame(
        [
            {"claim": f"**{row['id']}** {row['claim']}"}
            | {p: NOT_TESTED if row["words"].get(p, ELSEWHERE) in untested else row["words"][p] + TURNS * row["turns"][p] for p in names}
            for row in shown
        ]
    )
    left = [row for row in rows if row not in shown]
    waiting = sum(AWAITING in row["words"].values() for row in left)
    said = [f"{waiting} wait for a learner, sampler or task"] if waiting else []
    said += [f"{len(left) - waiting} are not tested by these profiles"] if len(left) > waiting else []
    more = f"\n\n{len(left)} further claims are in the ledger: {', '.join(said)}, and it says what they need." if left else ""
    return f"{before}{BEGIN}\n{as_markdown(table)}{more}\n{END}{after}"


# words ---------------------------------------------------------------------------------------------------------------


def _holm(p_values: Sequence[float | None]) -> list[float | None]:
    known = [p for p in p_values if p is not None]
    fair = iter(stats.holm(known))
    return [None if p is None else next(fair) for p in p_values]


def _refuted(parts: Sequence[Evidence], p_smaller: Sequence[float | None], how: str) -> bool:
    """Whether the parts show the opposite, or effects smaller than stated (p_smaller: TOST p, None where none was made).

    Each p of the two is at least that of a one-sided t test of "below the stated effect", so either may be taken: a claim
    whose effects are as stated is refuted with probability <= alpha.
    """
    smaller = [e if p is None else replace(e, p_against=p, exact_against=0.0) for e, p in zip(parts, p_smaller)]
    likelier = [min(pair, key=lambda e: e.opposite.p) for pair in zip(parts, smaller)]
    ways = (parts, smaller) if how == "all" else (likelier,)
    return any(decide(combined(way, how).opposite) == HOLDS for way in ways)


def _too_small(c: Component) -> bool:
    return c.role == "decides" and c.direction != "equal" and c.effect is not None and abs(c.effect) < c.stated


def _sentence(verdict: Verdict) -> str:
    """The word and every deciding test, computed."""
    if verdict.lacks:
        return f"{verdict.word.capitalize()}: needs {join(verdict.lacks)}."
    parts = []
    for c in verdict.deciding:
        said = f"{c.name} {_span(c.effect, c.effect_low, c.effect_high)}" if c.effect is not None else c.name
        beside = [f"published {c.published:+.2f}"] if c.published is not None else []
        beside += [c.note] if c.note else []
        beside += [SMALLER] if c.smaller else []
        said += f" ({'; '.join(beside)})" if beside else ""
        parts.append(said if c.word in (verdict.word, NOT_MEASURED) else f"{said}: {c.word}")
    open_ = [c for c in verdict.deciding if c.word == INCONCLUSIVE and c.n_needed]
    more = ""
    if verdict.word == INCONCLUSIVE and open_:
        worst = max(open_, key=lambda c: c.n_needed)
        more = f" About {worst.n_needed:,} seeds would settle an effect of {worst.stated:.3g} ({worst.name})."
    other = {HOLDS: FAILS, FAILS: HOLDS, REPRODUCED: FAILS}.get(verdict.word)
    if verdict.word == NOT_REPRODUCED and any(c.word == FAILS for c in verdict.deciding):  # and not for being small
        other = HOLDS
    beside = [c for c in verdict.components if c.role == "beside" and c.word == other and c.direction != "equal"]
    against = [f"{c.name} {_span(c.effect, c.effect_low, c.effect_high)}" for c in beside]
    more += f" Beside it, but not in the word, the opposite: {'; '.join(against)}." if against else ""
    units = {c.unit for c in verdict.deciding}
    unit = f" ({units.pop()})" if len(units) == 1 else " (yardsticks, or log ratios and shares where there is none)"
    return f"{verdict.word.capitalize()}{unit}: {'; '.join(parts)}.{more}"


def _row(claim: Claim, verdict: Verdict, half: Verdict | None, results, rule: str) -> dict[str, Any]:
    return {
        "id": claim.id, "claim": claim.claim, "source": str(claim.source), "report": claim.report, "word": verdict.word,
        "sentence": verdict.sentence, "lacks": list(verdict.lacks), "decided_by": claim.decided_by,
        "n_needed": verdict.n_needed,
        "half_word": half and half.word, "half_sentence": half and half.sentence,
        "turns": bool(half) and sign_changes(verdict, half), "published": claim.published, "published_text": _published(claim),
        "traps": claim.traps, "components": [asdict(c) for c in verdict.components],
        "half_components": [asdict(c) for c in half.components] if half else [],
        "profile": results.params.profile, "seeds": len(results.seeds), "rule": rule,
    }  # fmt: skip


def _published(claim: Claim) -> str:
    """"T5 PPO inf: score 0.847 ± 0.039, ...; ..."."""
    def cell(value) -> str:
        return f"{value[0]:g} ± {value[1]:g}" if isinstance(value, list) else f"{value:g}"

    rows = {name: ", ".join(f"{k} {cell(v)}" for k, v in row.items() if k != "n") for name, row in claim.published.items()}
    return "; ".join(f"{name}: {said}" for name, said in rows.items()) or "no numbers"


def _counts(rows: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(f"{word}: {count}" for word, count in summary(rows).items())


def _not_here(claim: Claim, runs: Mapping[str, Any], elsewhere: Mapping[str, Mapping[str, Any]]) -> Verdict:
    """A claim with tests that the profile does not list: what it would take, and where that is."""
    lacking = tuple(lacks(claim, runs))
    where = [profile for profile, other in elsewhere.items() if not lacks(claim, other)]
    said = f"needs {join(lacking)}" if lacking else "its runs are here; list it in `claims`"
    said += f"; profile {join(where, ' or ')} has them" if lacking and where else ""
    return Verdict(claim.id, ELSEWHERE, (), f"Not testable here: {said}.", lacking or ("its id in `claims`",))


def _check_listed(claims: Mapping[str, Claim], listed: Sequence[str], runs: Mapping[str, Any], profile: str) -> None:
    problems = []
    for name in listed:
        if name not in claims:
            problems.append(f"{name}: no claim is called so{nearest(name, claims)}")
        elif not claims[name].tests:
            what = claims[name].awaiting or claims[name].needs
            problems.append(f"{name}: has no tests; it {'awaits' if claims[name].awaiting else 'needs'} {join(what)}")
        elif lacking := lacks(claims[name], runs):
            problems.append(f"{name}: needs {join(lacking)}")
    if problems:
        raise ClaimError("\n  ".join([f"{profile}: claims lists what it cannot decide", *problems]))


def _span(value, low, high) -> str:
    if value is None:
        return ""
    return f"{value:+.2f}" + ("" if low is None else f" [{low:+.2f}, {high:+.2f}]")


def _p(value: float | None) -> str:
    return "" if value is None else "<0.001" if value < 0.001 else f"{value:.3f}"


def _write_csv(path: Path, names: Sequence[str], lines: Sequence[Sequence[Any]]) -> None:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerows([names, *(["" if v is None else repr(v) if isinstance(v, float) else v for v in line] for line in lines)])
    atomic_write(path, out.getvalue())


def _claims_file() -> Path:
    """./claims.yaml, or the one beside the package."""
    here = Path("claims.yaml")
    return here if here.is_file() else Path(__file__).parent.parent / "claims.yaml"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m rlnlp.claims", description="Check or combine the ledger of claims.")
    commands = parser.add_subparsers(dest="command", required=True)
    check = commands.add_parser("check", help="does a profile run what its claims need?")
    check.add_argument("params", nargs="?", type=Path, default=Path("params.yaml"))
    together = commands.add_parser("combine", help="reports/*/claims/claims.json side by side, in reports/claims.*")
    together.add_argument("--reports", type=Path, default=Path("reports"))
    together.add_argument("--without", nargs="*", default=["smoke"], help="profiles that are no evidence")
    summarise = commands.add_parser("readme", help="reports/claims.json as the summary in README.md")
    summarise.add_argument("--reports", type=Path, default=Path("reports"))
    summarise.add_argument("--file", type=Path, default=Path("README.md"))
    args = parser.parse_args(argv)
    try:
        if args.command == "readme":
            atomic_write(args.file, readme(args.file.read_text(encoding="utf-8"), args.reports / "claims.json"))
            print(f"{args.file}: up to date")
        elif args.command == "combine":
            found = {path.parent.parent.name: path for path in sorted(args.reports.glob("*/claims/claims.json"))}
            rows = combine({name: path for name, path in found.items() if name not in args.without}, args.reports)
            print(f"{args.reports / 'claims.md'}: {len(rows)} claims")
        else:
            from rlnlp import config  # brings torch

            params = config.load(args.params)
            known = load((params.folder / params.root / "claims.yaml").resolve(), also=params.all_runs)
            _check_listed(known, params.claims, params.all_runs, params.profile)
            print(f"{params.profile}: {len(params.claims)} of {len(known)} claims can be decided; rule {rule_hash(known)[:12]}")
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
