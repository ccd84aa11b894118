"""What a claim's page opens with: its word, linked to what words mean, and the number that gave it, by one rule for
profiles and for the benchmark; then where the claim stands, and its word in every profile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from workbook.ledger import beside, one_model
from workbook.results.measures import MEASURES
from workbook.results.tables import PLURAL, join, markdown, signed
from workbook.site import benchmark, effects, sums
from workbook.site.committed import ABOUT, Committed, deciding, tested

RULE = "/docs/sure/design.md#the-rule"
OF_A_PEAK = "how far a parabola's middle rises above its ends (the word asks for more, below)"


def of(found: Committed, claim: str, rows: Mapping[str, Mapping[str, Any]]) -> str:
    """The word of every profile in a table behind the sentence, and where the claim stands."""
    about = found.claims[claim]
    if not rows and claim not in found.benchmark:
        return f"**Not tested here.** {source(about)} It would take: {join(needed(about))}."
    table = [
        {
            "profile": f"`{profile}`: {ABOUT.get(profile, 'settings of its own')}",
            "word": word(row),
            "at half the budget": row["half_word"] if tested(row) and row["half_word"] else "–",
            "draws": row["seeds"] if not one_model.marked([row]) else f"{row['seeds']} {one_model.units([row])}",
        }
        for profile, row in rows.items()
    ]
    if claim in found.benchmark:
        told = {"profile": f"`{benchmark.NAME}`: {benchmark.ABOUT}", "word": benchmark.word(found.benchmark, claim)}
        table.append(told | {"at half the budget": "–", "draws": benchmark.seeds(found.benchmark, claim)})
    said = in_profile(found, claim) or in_benchmark(found, claim)
    return f"{said}{source(about)}\n\n{markdown(pd.DataFrame(table))}"


def needed(about: Mapping[str, Any]) -> list[str]:
    """What a claim that nothing here tests would take, by `claims.yaml`."""
    lacks = about.get("awaiting") or about.get("needs") or "runs that no committed profile has"
    return [lacks] if isinstance(lacks, str) else [str(lack) for lack in lacks]


def word(row: Mapping[str, Any]) -> str:
    """The row's own word, or the registered design's."""
    if tested(row):
        return effects.verdict(row["word"]) + beside.unsettled(row)
    return beside.word(row) or "too few draws for a word"


def taken(found: Committed, claim: str, test: str, profile: str) -> str:
    """ "NLPO − PPO": what the claim's test of this name compares, by the profile's names of runs; or ""."""
    said = next(each for each in found.claims[claim]["tests"] if each["name"] == test)
    return sums.of(said, found.names[profile])


def leading(tests: Iterable[Mapping[str, Any]], claims_word: str) -> Mapping[str, Any] | None:
    """The test with a number that a page opens with: the first that has the claim's own word, so that the number is one
    of those that gave it; differences of runs go before other kinds."""
    measured = [test for test in tests if test["difference"] is not None]
    return min(measured, key=lambda test: (test["word"] != claims_word, test["kind"] != "contrast"), default=None)


def in_profile(found: Committed, claim: str) -> str:
    """The word in the first profile that has words, the leading test's difference, of what and in the metric's own
    unit, beside the published; the words of all deciding tests. "" where no profile has words."""
    rows = found.rows(claim)
    profile, row = next(((name, row) for name, row in rows.items() if tested(row)), ("", None))
    if row is None:
        return ""
    start, first = f"[*{row['word']}*]({RULE}) in `{profile}`{beside.doubts(row)}", leading(deciding(row), row["word"])
    how = counted([test["word"] for test in deciding(row)], row["decided_by"])
    if first is None:
        return f"**{start}.** {how}"
    label = " ".join((MEASURES[first["metric"]].label or first["metric"]).split())
    beside_it = f", published {effects.raw_published(first)}" if effects.raw_published(first) else ""
    unit = effects.unit(first)
    label += f" ({unit})" * unit[:1].isdigit()  # "0 to 1" is a scale, which no number stands before
    number = effects.raw(first) if unit in label else f"{effects.raw(first)} {unit}".strip()
    what = taken(found, claim, first["name"], profile) or OF_A_PEAK * (first["kind"] == "peak")
    said = f"*{first['name']}*{f': {what}' * bool(what)}, in {label}"
    smaller = effects.smaller_by_its_yardstick(first)
    return f"**{start}: {number}{beside_it}.** The number is of {said}. {smaller}{how}"


def in_benchmark(found: Committed, claim: str) -> str:
    """The same on the benchmark, whose scores run from 0 to 1."""
    measured, asked = found.benchmark[claim], benchmark.plan(found.root).tests(claim)
    rows = [benchmark.told(row, asked[row["name"]]) for row in measured.to_dict("records") if row["role"] == "decides"]
    claims_word = measured.word.iloc[0]
    first = leading([row | {"kind": "contrast"} for row in rows if row["n"] > 0], claims_word)
    start, how = f"[*{claims_word}*]({RULE}) on the benchmark", counted([row["word"] for row in rows], "all")
    if first is None:
        return f"**{start}.** {how}"
    unit = "" if first["unit"] == benchmark.SCALE else f" {first['unit']}"
    printed = "what was published is below" if found.claims[claim].get("published") else "no number was published"
    return (
        f"**{start}: {signed(first['effect'], first['effect_low'], first['effect_high'])}{unit}; {printed}.** "
        f"The number is of *{first['name']}*: {benchmark.compared(asked[first['name']])}. {how}"
    )


def counted(words: Sequence[str], decided_by: str) -> str:
    """How many of the deciding tests have which word; "" of a single one."""
    if len(words) < 2:
        return ""
    kinds = [f"{n} {PLURAL.get(word, word) if n > 1 else word}" for word, n in Counter(words).most_common()]
    how = "all must hold" if decided_by == "all" else "one is enough"
    return f"Of its {len(words)} deciding tests ({how}): {'; '.join(kinds)}. "


def source(about: Mapping[str, Any]) -> str:
    """Where the claim stands, in a sentence."""
    where = about["source"]
    parts = [f"{name} {where[name]}" for name in ("section", "table", "figure") if where.get(name, "none") != "none"]
    return f"Source: {join([where['paper'], *parts], ', ')}."
