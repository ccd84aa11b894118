"""A claim's page: what was said, what was published, what was found in every profile, by what runs, and how to run
just these again."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from workbook.ledger import beside, further, one_model
from workbook.ledger.contrast import in_words
from workbook.results.measures import MEASURES
from workbook.results.tables import markdown
from workbook.runs import algorithms
from workbook.site import benchmark, charts, cite, claim_runs, effects, opening, texts, vega
from workbook.site.blocks import UNSEARCHED, folded
from workbook.site.committed import Committed, deciding, tested
from workbook.synthesis import closer

MAY_END = (
    "The texts of supervised policies may end here, where those of all others have as many tokens as are allowed; "
    "[what that changes](/docs/differences.md#two-settings-that-are-not-what-they-should-be), and which words could "
    "turn by it, was measured afterwards."
)


REFUSED = (
    "Supervised training has a rate in `reviews` that the rule which chose PPO's would have refused, and most of what "
    "it loses there in language [is that rate's doing](/docs/findings/real_reviews.md)."
)
UNCHOSEN = "reviews"  # the profile whose supervised rate was not chosen on its own model

PAID = ("C09", "C11", "C13", "C14")  # about a DQN
KL_PAID = (
    "The DQN of these tests is paid a KL reward, which the report's is not; "
    "[what is known without it](/docs/differences.md#two-settings-that-are-not-what-they-should-be)."
)


def page(found: Committed, claim: str, drawn: Sequence[str] = ()) -> str:
    """Markdown of claims/<claim>/. drawn: names of the charts that it shows, of `charts.of_claim`.

    Raises: KeyError for a claim that claims.yaml does not have.
    """
    about, rows = found.claims[claim], found.rows(claim)
    parts = [
        f"# {claim}. {' '.join(about['claim'].split())}",
        opening.of(found, claim, rows),
        "## What was published",
        published(about),
    ]
    if any(supervised(found, profile, row) for profile, row in rows.items()):
        parts.insert(2, MAY_END)
    if UNCHOSEN in rows and supervised(found, UNCHOSEN, rows[UNCHOSEN]):
        parts.insert(3, REFUSED)
    if claim in PAID and rows:
        parts.insert(2, KL_PAID)
    if rows:
        forest = [vega.place(name) for name in drawn if name == f"{claim}-{charts.EFFECTS}"]
        every = [vega.place(name) for name in drawn if name != f"{claim}-{charts.EFFECTS}"]
        parts += ["## What was found", KEY, *tests(found, claim, "decides")]
        parts += ["### All tests on one axis", of_draws(found, rows), *forest] if forest else []
        if aside := tests(found, claim, "beside"):
            parts.append(folded(f"{len(aside) // 2} tests that stand beside and decide nothing", "\n\n".join(aside)))
        if later := afterwards(found, claim):
            parts.append(folded("Looked at afterwards, where other profiles have runs that the design has not", later))
        if closely := closer.of_claim(found.root, claim):
            parts += ["### A closer look", closely]
        parts += ["## What would change our mind", changes(rows)]
        shown = figure(found, claim, rows)
        parts += ["## The figures"] * bool(every or shown) + [points(found, rows)] * bool(every)
        parts += [*every, *([shown] if shown else [])]
        parts += ["## The runs and their settings", claim_runs.conditions(found, claim, rows)]
        parts += ["## What they wrote", texts.section(found, rows)]
        parts += ["## Run just this again", claim_runs.again(found, rows)]
    elif claim not in found.benchmark:
        parts += ["## What would change our mind", untested(found, claim)]
    if claim in found.benchmark:
        parts += ["## On the benchmark", benchmark.section(found.root, claim, found.benchmark[claim])]
    parts += ["## What makes it hard to say", traps(about), f"## Cite this {UNSEARCHED}", cite.claim(found.root, claim)]
    return "\n\n".join(parts) + "\n"


PICTURED = "In the picture, an open diamond is the published effect, a point with its interval ours, the line 0. "
KEY = (
    "Differences are in the metric's own unit, with their intervals over seeds or draws (95 %; of `settle` at the "
    "[level of its look](/docs/sure/design.md)); then in *yardsticks*, one of which is how far PPO without the KL "
    "penalty moves the metric from the untrained model (of human text: the published "
    f"{MEASURES['human_log_perplexity'].yardstick:g} nats). {PICTURED}A word against a part is given "
    "after Holm's correction over all deciding parts, the interval without it: where an interval leaves 0 or the "
    "margin out, the word may still be "
    "*open*."
)


def supervised(found: Committed, profile: str, row: Mapping[str, Any]) -> bool:
    """Whether a deciding test compares a policy that imitated."""
    named = {term.split("@")[0] for test in deciding(row) for term in test["conditions"].split()}
    learners = {found.runs[profile].get(name, {}).get("algorithm") for name in named} - {None}
    return any(algorithms.module(learner).ABOUT.imitates for learner in learners)


def traps(about: Mapping[str, Any]) -> str:
    """What `claims.yaml` says of a claim's difficulties, without the codes of our notes."""
    return re.sub(r"\s*\(X\d\d\)", "", " ".join(about["traps"].split()))


def published(about: Mapping[str, Any]) -> str:
    """The published numbers, a row each, mean ± standard deviation over seeds."""
    rows = about.get("published") or {}
    if not rows:
        return "No number was published for this claim."
    columns = list(dict.fromkeys(name for row in rows.values() for name in row if name != "n"))
    cells = [
        {
            "table and row": re.sub(r"^T(\d+) ", r"table \1: ", name),  # "T5 PPO" reads like the model T5
            **{c: " ± ".join(map(str, v if isinstance(v := row.get(c, "–"), list) else [v])) for c in columns},
            "seeds": row.get("n", "–"),
        }
        for name, row in rows.items()
    ]
    return markdown(pd.DataFrame(cells))


def tests(found: Committed, claim: str, role: str, drawn: bool = True) -> list[str]:
    """A heading and a table for each test that some profile measured: a row per profile. drawn: with its row of the
    forest, which only the site can show."""
    named: dict[str, dict[str, Mapping[str, Any]]] = {}
    rows = found.rows(claim)
    for profile, row in rows.items():
        for test in row["components"]:
            if test["role"] == role and test["effect"] is not None:
                named.setdefault(test["name"], {})[profile] = test
    parts = []
    for name, measured in named.items():
        first, far, table = next(iter(measured.values())), effects.reach(list(measured.values())), []
        for profile, test in measured.items():
            row = rows[profile]
            table.append(
                {
                    "profile": f"{profile}, {test['n']} {one_model.units([row])}",
                    "word": effects.verdict(test["word"]) if tested(row) else "–",
                    f"difference, {effects.unit(test)}".rstrip(", "): effects.raw(test),
                    "published": effects.raw_published(test) or "–",
                    "in yardsticks": effects.yardsticks(test),
                    **({"forest row": effects.row(test, far)} if drawn else {}),
                }
            )
        size, way = effects.stated(first), first["direction"]
        asked = f"within ±{size}" if way == "equal" else f"at least {size}, {way}"
        label = " ".join((MEASURES[first["metric"]].label or first["metric"]).split())
        peak = f" {PEAK}" * (first["kind"] == "peak")
        apart = {profile: effects.another_margin(test) for profile, test in measured.items() if tested(rows[profile])}
        notes = "".join(f"\n\nThe interval of `{profile}` {note}" for profile, note in apart.items() if note)
        runs = f" of {compared}" if (compared := opening.taken(found, claim, name, next(iter(measured)))) else ""
        parts += [
            f"### {name}" if role == "decides" else f"**{name}**",
            f"*{label}*{runs}; asked beforehand: {asked}.{peak}\n\n{markdown(pd.DataFrame(table))}{notes}",
        ]
    return parts


PEAK = (
    "The number is how far a parabola through all values rises in the middle above its ends; the word asks for more "
    "than it: that some value inside the range beats the first and some the last (*holds*), and *opposite* is said "
    "where one end is shown to beat every value inside, whatever the parabola does."
)


def afterwards(found: Committed, claim: str) -> str:
    """The claim's tests that only other profiles can make, or make with more points, as a table; "" for none."""
    made = [row for row in further.read(found.root / "reports") if row["claim"] == claim and row["effect"] is not None]
    table = [
        {
            "test": row["name"] + " (decides)" * (row["role"] == "decides"),
            "profile": f"{row['profile']}, {row['n']} draws",
            "difference": f"{effects.raw(row)} {effects.unit(row)}",
            "published": effects.raw_published(row) or "–",
            "in yardsticks": effects.yardsticks(row),
            "word of this test": effects.verdict(row["word"]),
            "in the design": row["in_design"],
        }
        for row in made
    ]
    return f"{LATER}\n\n{markdown(pd.DataFrame(table))}" if made else ""


LATER = (
    "Each at 5 %, looked at after the design's words were known: no word of the claim is taken from them. "
    "[All such tests](/reports/further.md)."
)


def draws_needed(test: Mapping[str, Any]) -> str:
    if not (needed := test["n_needed"]):
        return "–"
    return said if (said := in_words(needed, test["n"])).startswith("more") else f"about {said}"


def changes(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """Of the profile that speaks first, what would turn each deciding test, and how many draws an open one needs."""
    profile, row = next(iter(rows.items()))
    lines = [
        {
            "test": test["name"],
            "word": effects.verdict(test["word"]),
            "would turn it": effects.turning(test),
            "draws that would settle it": draws_needed(test),
        }
        for test in deciding(row)
        if test["effect"] is not None
    ]
    if not lines:
        return "Any run of its conditions: no profile has a number for a deciding test yet."
    how = "all of these together" if row["decided_by"] == "all" else "any one of these"
    return (
        f"By the rule, of `{profile}`, where {how} decide:\n\n{markdown(pd.DataFrame(lines))}\n\nAnd the same runs on "
        "a larger model: these are of models that a laptop trains. `make plan PROFILE=paper` says what the published "
        "ones would take."
    )


STUDIES = {"P29": "/reports/study/verdict.md"}  # of claims about people: the same design, with raters that are programs


def untested(found: Committed, claim: str) -> str:
    """What a claim that nothing here tests would need, why the benchmark does not test it, and what stands beside."""
    parts = ["Nothing here puts it to a test, so any would. It takes:"]
    parts.append("\n".join(f"- {lack}" for lack in opening.needed(found.claims[claim])))
    if rule := benchmark.plan(found.root).contrasts.get(claim):
        beside_it = " [Its numbers beside the benchmark's claims](/reports/grue/claims.md)." * bool(rule.tests)
        parts.append(f"{' '.join(rule.said.split())}{beside_it}")
    if study := STUDIES.get(claim):
        parts.append(f"[The same design with simulated raters]({study}), which says nothing of people.")
    return "\n\n".join(parts)


def points(found: Committed, rows: Mapping[str, Mapping[str, Any]]) -> str:
    """How to read the charts of runs, which are of the first profile."""
    unit = charts.replicate(found, next(iter(rows)))
    return (
        f"Each point is one training on one {unit}: a run that was repeated on a {unit} has a point for each "
        "repetition. The line is the mean of a row's points. Hover over a point, or tap it, for the setting and a "
        "text, decoded plainly; a click opens all its texts, where they are here."
    )


def of_draws(found: Committed, rows: Mapping[str, Mapping[str, Any]]) -> str:
    """How to read the forest of the first profile."""
    unit = charts.replicate(found, next(iter(rows)))
    return (
        f"Of `{next(iter(rows))}`, in yardsticks, which all share: small points are single {unit}s (of tests of two "
        "runs), the large one their mean with its interval, the diamond what was published. Hover over any of them, or "
        f"tap it, for its numbers; a click on a {unit} opens the texts of its first run, where they are here."
    )


def figure(found: Committed, claim: str, rows: Mapping[str, Mapping[str, Any]]) -> str:
    """Every way in which the claim's question was asked, where the synthesis drew it; then the first figure of its
    report, in the first profile that has one."""
    parts, report = [], found.claims[claim].get("report")
    file = f"reports/synthesis/{claim}_specifications.svg"
    if (found.root / file).is_file():
        every = json.loads((found.root / "reports/synthesis/alt.json").read_text(encoding="utf-8"))
        parts.append(f"![{every[Path(file).stem]}](/{file})")
    for profile in rows:
        page = found.root / "reports" / profile / f"{report}" / "verdict.md"
        shown = (
            re.search(r"^!\[(.+)\]\((\w+\.svg)\)$", page.read_text("utf-8"), re.MULTILINE) if page.is_file() else None
        )
        if shown:
            place = f"/reports/{profile}/{report}"
            parts.append(f"![{shown[1]}]({place}/{shown[2]})")
            parts.append(f"From [the report]({place}/verdict.md) of `{profile}`, which says how to read it.")
            break
    return "\n\n".join(parts)


def index(found: Committed, ids: Sequence[str]) -> str:
    """Findings' table: a row per claim, its word in each profile, its page."""
    profiles = [p for p in found.profiles if any(tested(row) for row in found.ledgers[p].values())]
    table = [
        {
            "claim": f"[{name}](/claims/{name}/index.md) {' '.join(found.claims[name]['claim'].split())}",
            **{p: word_in(found, p, name) for p in profiles},
            **({benchmark.NAME: benchmark.word(found.benchmark, name)} if found.benchmark else {}),
        }
        for name in ids
    ]
    return markdown(pd.DataFrame(table))


def word_in(found: Committed, profile: str, claim: str) -> str:
    """The word of a claim in a profile, or a dash."""
    row = found.ledgers[profile].get(claim)
    return effects.verdict(row["word"]) + beside.doubts(row) if row and tested(row) else "–"
