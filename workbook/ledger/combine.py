"""The ledgers of several profiles side by side, and their summary on one page."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from workbook.ledger import beside, one_model, ruling
from workbook.ledger.checks import load
from workbook.ledger.claim import ClaimError
from workbook.ledger.looks import fixed_by
from workbook.ledger.page import counts, write_csv
from workbook.ledger.ruling import AWAITING, ELSEWHERE, RULE, rule_hash
from workbook.results.files import FURTHER
from workbook.results.tables import join, markdown
from workbook.statistics import paired
from workbook.store.files import atomic_json, atomic_write

NOT_TESTED = "–"
FURTHER_LINK = "[Tests of the registered design's claims that only other profiles can make](further.md)."
BEGIN, END = "<!-- ledger: python -m workbook.ledger readme -->", "<!-- end of ledger -->"
COMBINE = "python -m workbook.ledger combine"
BENCHMARK, LEDGER = "../../reports/grue/claims.md", "../../reports/{}/claims/claims.md"  # from the page
WRITTEN = "../../claims.yaml"  # where a claim stands that has no word
NO_EVIDENCE = ("smoke",)  # profiles whose numbers mean nothing


def find_ledgers(reports: Path, without: Collection[str] = NO_EVIDENCE) -> dict[str, Path]:
    """Profile -> its claims.json, of those below `reports` that have one."""
    found = {path.parent.parent.name: path for path in sorted(reports.glob("*/claims/claims.json"))}
    return {profile: path for profile, path in found.items() if profile not in without}


def combine(sources: Mapping[str, str | Path], folder: str | Path) -> list[dict[str, Any]]:
    """The ledgers of several profiles side by side: claims.csv, claims.json, claims.md in `folder`; returns the rows.

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
    judging = {p: found for p, found in ledgers.items() if any(row["word"] != ELSEWHERE for row in found.values())}
    ledgers = judging or ledgers  # a profile that judges nothing (the pilot) has no column
    ids = list(dict.fromkeys(name for found in ledgers.values() for name in found))
    rows = []
    for name in ids:
        known = {profile: found[name] for profile, found in ledgers.items() if name in found}
        first = next(iter(known.values()))
        rows.append(
            {
                **{k: first[k] for k in ("id", "claim", "source", "published_text")},
                "words": {profile: row["word"] for profile, row in known.items()},
                "sentences": {profile: row["sentence"] for profile, row in known.items()},
                "turns": {profile: row["turns"] for profile, row in known.items()},
                "open": [profile for profile, row in known.items() if row.get("settled") is False],
            }
        )
    single = [profile for profile, found in ledgers.items() if one_model.marked(list(found.values()))]
    rules = {profile: next(iter(found.values()))["rule"] for profile, found in ledgers.items() if found}
    said = [f"{profile}: {counts(list(found.values()))}." for profile, found in ledgers.items()]
    said += [f"{profile}: {one_model.SAID}" for profile in single]
    if len(set(rules.values())) > 1:
        said.append(_apart(rules, ledgers, Path(folder).parent / "claims.yaml"))
    if on_benchmark := _on_benchmark(Path(folder)):
        said.append(f"{len(on_benchmark)} have words [on the benchmark](grue/claims.md), which is no column here.")
    shown = [
        {
            "claim": f"{r['id']}: {r['claim']}",
            "published": r["published_text"],
            **{_head(p, single): _cell(r, p) if p in r["words"] else "" for p in ledgers},
        }
        for r in rows
    ]
    folder = Path(folder)
    atomic_json(folder / "claims.json", {"rules": rules, **({"one_model": single} if single else {}), "rows": rows})
    about = ("id", "claim", "source", "published_text")
    lines = [[*(r[k] for k in about), *(r["words"].get(p) for p in ledgers)] for r in rows]
    write_csv(folder / "claims.csv", [*about, *ledgers], lines)
    page = ["# Claims, profile by profile", *said, markdown(pd.DataFrame(shown)), "[The rule](rule.md)."]
    page += [FURTHER_LINK] * (folder / FURTHER).is_file()
    atomic_write(folder / "claims.md", "\n\n".join(page) + "\n")
    atomic_write(folder / "rule.md", rule_page([*rules.values()]))
    return rows


SEVERAL = (
    "Of several hashes one is of the tests of all claims; that of a registered design is of the same rule and of the "
    "tests of its own claims only ([which is which](claims.md))."
)


def rule_page(rules: Sequence[str]) -> str:
    """The one page that has the rule in words. rules: the hashes of the ledgers that stand beside it."""
    hashes = join([f"`{rule[:12]}`" for rule in dict.fromkeys(rules)])
    said = f"Hash of the rule and of every test of the ledgers here: {hashes}. Alpha is {paired.ALPHA:g}."
    said += f" {SEVERAL}" * (len({*rules}) > 1)
    return "\n\n".join(["# The rule", said, RULE, "## What had been seen when it was written", ruling.WRITTEN]) + "\n"


def _apart(rules: Mapping[str, str], ledgers: Mapping[str, Mapping[str, Any]], written: Path) -> str:
    """What differing hashes mean: a registered design's is of the rule and of the tests of its own claims alone, so
    that it is held against those tests as `written` has them."""
    if written.is_file():
        claims = load(written)
        every = rule_hash(claims)
        few = [p for p, rule in rules.items() if rule != every]
        if all(rules[p] == fixed_by([*ledgers[p]], claims) for p in few):
            own = join(
                [f"that of {p} of the tests of its {len(ledgers[p])} claims alone, `{rules[p][:12]}`" for p in few]
            )
            return (
                "All were judged by one rule and by the tests of today's claims.yaml: the hash of the rule and of all "
                f"tests is `{every[:12]}`, {own}."
            )
    which = join([f"{p} `{r[:12]}`" for p, r in rules.items()])
    return f"Not all were judged by the same rule and tests: {which}."


def readme(text: str, combined: str | Path) -> str:
    """A page's text with the ledger's summary between its two marks, made from `combine`'s claims.json.

    First the claims that some profile put to a test, then the others, counted. Raises: ClaimError without the marks,
    and for a file that is not `combine`'s.
    """
    before, mark, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (mark and end):
        raise ClaimError(f"the page of the ledger: expected the lines {BEGIN} and {END}")
    try:
        given = json.loads(Path(combined).read_text(encoding="utf-8"))
        rows, single = given["rows"], given.get("one_model", ())
        names = list(dict.fromkeys(p for row in rows for p in row["words"]))
    except (OSError, ValueError, LookupError, TypeError) as error:
        found = "no such file" if isinstance(error, FileNotFoundError) else repr(error)
        raise ClaimError(f"{combined}: expected what `{COMBINE}` writes, found {found}") from None
    untested = (AWAITING, ELSEWHERE)
    shown = [row for row in rows if not {*row["words"].values()} <= {*untested}]
    table = pd.DataFrame(
        [
            {"claim": f"**[{row['id']}]({LEDGER.format([p for p in names if _word(row, p) not in untested][-1])})** "}
            | {_head(p, single): NOT_TESTED if _word(row, p) in untested else _cell(row, p) for p in names}
            for row in shown
        ]
    )
    if len(table):
        table["claim"] += [row["claim"] for row in shown]
    more = _left([row for row in rows if row not in shown], shown, _on_benchmark(Path(combined).parent))
    more += "".join(f"\n\n{profile}: {one_model.SAID}" for profile in single if profile in names)
    return f"{before}{BEGIN}\n{markdown(table)}{more}\n{END}{after}"


def _left(left: Sequence[Mapping[str, Any]], shown: Sequence[Mapping[str, Any]], benchmark: Mapping[str, str]) -> str:
    """The claims that no profile tests, a row each: the benchmark's word, or what they need; "" where there are none.
    shown: the others; benchmark: claim -> its word there."""
    if not left:
        return ""
    judged, waiting = [row for row in left if row["id"] in benchmark], 0
    lines = []
    for row in left:
        word = benchmark.get(row["id"])
        waiting += word is None and AWAITING in row["words"].values()
        needs = next(iter(row["sentences"].values())).partition(": ")[2]  # "Not testable here: needs human raters."
        place = f"{BENCHMARK}#{_anchor(row['id'], word)}" if word else WRITTEN
        lines.append(
            {
                "claim": f"**[{row['id']}]({place})** {row['claim']}",
                "on the benchmark": word or NOT_TESTED,
                "as the paper tested it, takes": needs.removeprefix("needs ").removesuffix("."),
            }
        )
    said = [f"{len(judged)} have words [on the benchmark]({BENCHMARK})"] if judged else []
    said += [f"{waiting} wait for a learner, sampler or task"] if waiting else []
    without = len(left) - len(judged) - waiting
    said += [f"{without} are tested nowhere here"] if without else []
    too = [row["id"] for row in shown if row["id"] in benchmark]
    also = f" {join(too)}, above, {'have words' if len(too) > 1 else 'has a word'} there too." if too else ""
    count = f"{len(left)} further claims are not tested by these profiles: {', '.join(said)}.{also}"
    return f"\n\n{count}\n\n{markdown(pd.DataFrame(lines))}"


def _word(row: Mapping[str, Any], profile: str) -> str:
    return row["words"].get(profile, ELSEWHERE)


def _anchor(claim: str, word: str) -> str:
    """Of the claim's heading on the benchmark's page, "P11: open, leans for"."""
    return f"{claim} {word}".lower().replace(",", "").replace(" ", "-")


def _on_benchmark(reports: Path) -> dict[str, str]:
    """Claim -> its word, of those that the benchmark put to a test; none where it was not run."""
    if not (table := reports / "grue" / "claims.csv").is_file():
        return {}
    rows = pd.read_csv(table, usecols=["id", "word"])
    return {claim: word for claim, word in zip(rows.id, rows.word) if word != ELSEWHERE}


def _cell(row: Mapping[str, Any], profile: str) -> str:
    """A profile's word, with what it may not be said without."""
    return row["words"][profile] + beside.marks({"turns": row["turns"][profile], "settled": profile not in row["open"]})


def _head(profile: str, single: Collection[str]) -> str:
    return profile + one_model.MARK * (profile in single)
