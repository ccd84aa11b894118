"""What changed since the edition before, claim by claim: the words that stood then, those that today's rule and tests
give to the same tables, those of today's tables with as few draws as then, and today's words.

`python -m workbook.synthesis.changes` takes the first two from the history (BEFORE, JUDGED_AGAIN) into before.csv,
once; `first_five` makes the third; everything else reads these files and the ledgers.
"""

from __future__ import annotations

import io
import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from ruamel.yaml import YAML

from workbook.ledger.checks import profiles
from workbook.ledger.claim import Claim
from workbook.ledger.judge import judge
from workbook.ledger.looks import results_of
from workbook.ledger.ruling import AWAITING, ELSEWHERE, TURNS
from workbook.ledger.told import UNLISTED
from workbook.results.tables import join, markdown
from workbook.statistics.rule import AGAINST, FOR
from workbook.store.files import atomic_write
from workbook.store.tables import read_table, write_table
from workbook.synthesis.history import asked, git
from workbook.synthesis.sources import Source

BEFORE, JUDGED_AGAIN = "837f3ed", "369ba30"  # the old rule, and today's, on the same tables (checked)
TABLE, FIRST, PAGE = "before.csv", "first_five.csv", "changes.md"
DRAWS = 5  # of the edition before
MAIN, REGISTERED = "mini", "settle"  # the profile that everybody runs, and the design that has its settings
RENAMED = {"nlpo_p_100": "ppo_kl_default", "nlpo_sync_1": "ppo_top_p"}  # the same to the bit: run once since
THEN = {"holds here": "holds", "fails here": "opposite", "inconclusive": "open"}  # the words of the old rule
SAME, SIZE, TESTS, NEW = "same", "stated effect", "tests", "new claim"
GONE = "no longer listed here"
HEAD = """# What changed, claim by claim

*Before*: the words of the edition before (commit {before}; five draws; a rule that could say *holds*, *fails* and
*inconclusive*, with half of the published effect as what is stated). *Today's rule*: the same tables, not a run more,
by the rule and the tests of today. *First five draws*: today's settings, rule and tests on the first five draws of
today's tables, as many as before, each test at 5 % as if there were no other look ([table](first_five.csv); made
afterwards to take n apart, so that it decides nothing). *Now*: today's tables, whole; for mini the words of the
[registered design](../settle/looks.md), whose first draws mini runs and whose first five the column before has. Made by
`python -m workbook.synthesis`; [before.csv](before.csv) was taken from the history once.

*By what* names the steps at which a word went from one kind to another (for, too small, opposite, open, not tested).
The first step changes the rule of all claims (it can refute, and counts one-sided errors), and of most of them more:
`rule and tests` where a deciding test asks or compares something else, or left; `rule and stated effect` where the
tests are the same and what is stated is the published effect, no longer half of it; `rule` where nothing else changed.
What of it turned a word is not taken apart further. The second step, `settings`, is that to today's tables at equal n:
responses of fixed length, β 0.2, the learning rates of the profile pilot, 1,024 test prompts; the draws are others too,
and what five others do by chance is in it. The third, `draws`, is n alone: the same settings, tests and rule, from five
draws to all that the word is of (8, 16 or 32 in the design, at its looks' stricter levels).
Claims that a profile lists no longer, and new claims, are named so: there no step turned a word.
The profile `reviews` is new, so that its words have no before: they stand in
[its ledger](../reviews/claims/claims.md)."""


def extract(root: Path, out: Path) -> None:
    """Write before.csv: claim, profile, the two words, and what became of the claim's deciding tests (of a claim that
    was not there: `NEW`).

    Raises: ValueError where a table has other scores at the second commit than at the first.
    """
    old, new = (_words(root, commit) for commit in (BEFORE, JUDGED_AGAIN))
    for profile in sorted({profile for _, profile in new}):
        _same_numbers(root, f"reports/{profile}/per_seed.csv")
    tests = [_tests(root, commit) for commit in (BEFORE, JUDGED_AGAIN)]
    rows = [
        {
            "id": claim,
            "profile": profile,
            "before": THEN.get(then := old.get((claim, profile), ELSEWHERE), then),
            "judged_again": word,
            "tests": compared(*(found[claim] for found in tests)) if claim in tests[0] else NEW,
        }
        for (claim, profile), word in new.items()
    ]
    write_table(out / TABLE, rows)


def compared(old: Sequence[Mapping], new: Sequence[Mapping]) -> str:
    """What became of a claim's deciding tests: `same`, `stated effect` (nothing else), or `tests`."""
    deciding = [[_renamed(t) for t in tests if t.get("role") != "beside"] for tests in (old, new)]
    if deciding[0] == deciding[1]:
        return SAME
    sizeless = [[{k: v for k, v in t.items() if k != "effect"} for t in tests] for tests in deciding]
    return SIZE if sizeless[0] == sizeless[1] else TESTS


def first_five(claims: Mapping[str, Claim], sources: Sequence[Source], out: Path) -> None:
    """Write first_five.csv: of each source with so many draws, the words of the claims that it lists on the first five.
    Raises: ClaimError as `judge`."""
    rows = []
    for source in sources:
        if len(draws := source.results.seeds[:DRAWS]) == DRAWS:
            results = results_of(source.results.per_seed, draws, source.params)
            words = {name: judge(claims[name], results).word for name in source.params.claims}
            rows += [{"id": name, "profile": source.profile, "word": word} for name, word in words.items()]
    write_table(out / FIRST, rows)


def write(root: Path, claims: Mapping[str, Claim], out: Path) -> str:
    """The page, where before.csv is, with the words of first_five.csv, where that is; a sentence with a link to it, ""
    without."""
    if not (out / TABLE).is_file():
        return ""
    ledgers = {path.parent.parent.name: _ledger(path) for path in sorted(root.glob("reports/*/claims/claims.json"))}
    tasks = {profile: values["task"]["name"] for profile, values in profiles(root).items()}
    text = [HEAD.format(before=BEFORE)]
    before = pd.DataFrame(read_table(out / TABLE)).fillna("")
    early = _early(out / FIRST)
    for profile in sorted(set(before.profile), key=lambda name: (name != MAIN, name)):
        rows = before[before.profile == profile].to_dict("records")
        of = {row["id"]: _of(row["id"], profile, ledgers) for row in rows}  # the profile that has today's word
        now = [ledgers.get(of[row["id"]], {}).get(row["id"], {}) for row in rows]
        rows = [{**row, "early": early.get((row["id"], of[row["id"]]), "")} for row in rows]
        settled = ledgers.get(REGISTERED, {}) if tasks.get(profile) == tasks.get(REGISTERED) else {}
        lines = [line for row, last in zip(rows, now) if (line := _line(row, last, settled, claims))]
        if lines:
            shown = pd.DataFrame([{**line, "by what": join(line["by what"]) or "–"} for line in lines])
            text += [f"## {profile}", _summary(lines), markdown(shown.drop(columns="back"))]
    atomic_write(out / PAGE, "\n\n".join(text) + "\n")
    return f"[What changed, claim by claim]({PAGE}), since the edition before."


def kind(word: str) -> str:
    """Of what kind a word is; words of one kind differ by how far they lean, or how large the effect is."""
    if word in ("", AWAITING, ELSEWHERE):
        return "not tested"
    return "for" if word in FOR else word if word in AGAINST else "open"


def _of(name: str, profile: str, ledgers: Mapping[str, Mapping[str, dict]]) -> str:
    """The profile whose word of a claim stands for this one: of the main one the registered design, where it has the
    claim."""
    return REGISTERED if profile == MAIN and name in ledgers.get(REGISTERED, {}) else profile


def _early(path: Path) -> dict[tuple[str, str], str]:
    return {(r["id"], r["profile"]): r["word"] for r in read_table(path)} if path.is_file() else {}


def _line(row: Mapping[str, Any], last: Mapping[str, Any], registered: Mapping[str, dict], claims) -> dict[str, Any]:
    """A row of the page, with the steps at which its word changed; nothing for a claim that no step tested.

    registered: the design's rows, where it is of the profile's task."""
    name, early, word = row["id"], row["early"], last.get("word", "")
    first, again, now = kinds = [kind(w) for w in (row["before"], row["judged_again"], word)]
    if set(kinds) == {"not tested"}:
        return {}
    listed, new = UNLISTED not in last.get("lacks", ()), row["tests"] == NEW
    shown = [w if kind(w) != "not tested" else "not tested" for w in (row["before"], row["judged_again"], word)]
    shown[2] = (shown[2] if listed else "not listed") + TURNS * bool(last.get("turns"))
    if "look" in last:
        shown[2] += f" ({last['look']} draws{'' if last['settled'] else ', not settled'})"
    steps = [NEW if new else "rule" if row["tests"] == SAME else f"rule and {row['tests']}"] * (first != again)
    if not listed:
        early = ""
        steps.append(GONE + f" (its word is in {REGISTERED})" * (name in registered))
    elif new and again == "not tested":
        steps.append(NEW)
    elif early:
        steps += ["settings"] * (again != kind(early))
    elif again != now:
        steps.append("settings and draws")
    if early:
        steps += ["draws"] * (kind(early) != now)
    line = {"claim": f"{name} {claims[name].claim}", "before": shown[0], "today's rule": shown[1]}
    return {**line, "first five draws": early or "–", "now": shown[2], "by what": steps, "back": first == now}


def _summary(lines: Sequence[Mapping[str, Any]]) -> str:
    """How many words changed their kind, and by what; apart from them the claims that left the profile or are new."""
    steps = [step for line in lines for step in line["by what"]]
    gone, new = sum(step.startswith(GONE) for step in steps), steps.count(NEW)
    turned = [[s for s in line["by what"] if s != NEW and not s.startswith(GONE)] for line in lines]
    by = Counter(join(found) for found in turned if found)
    said = f"The words of {sum(by.values())} of {len(lines)} claims changed their kind on the way"
    said += (": " + "; ".join(f"{many} by {step}" for step, many in by.most_common()) if by else "") + "."
    back = [line["claim"].partition(" ")[0] for line, found in zip(lines, turned) if found and line["back"]]
    said += f" {join(back)} ended as they began." * bool(back)
    return said + f" {gone} of them are {GONE}." * bool(gone) + f" {new} of them are new." * bool(new)


def _ledger(path: Path) -> dict[str, dict]:
    return {row["id"]: row for row in json.loads(path.read_text(encoding="utf-8"))["rows"]}


def _words(root: Path, commit: str) -> dict[tuple[str, str], str]:
    rows = json.loads(_show(root, commit, "reports/claims.json"))["rows"]
    return {(row["id"], profile): word for row in rows for profile, word in row["words"].items()}


def _tests(root: Path, commit: str) -> dict[str, list]:
    found = YAML(typ="safe", pure=True).load(_show(root, commit, "claims.yaml"))
    return {name: claim.get("tests", []) for name, claim in found.items()}


def _same_numbers(root: Path, path: str) -> None:
    """Scores to nine digits, where both commits have the table."""
    there = [git(root, "ls-tree", "--name-only", commit, path).strip() for commit in (BEFORE, JUDGED_AGAIN)]
    if all(there):
        tables = [pd.read_csv(io.StringIO(_show(root, commit, path))) for commit in (BEFORE, JUDGED_AGAIN)]
        keys = ["condition", "seed", "split", "decoding"]
        first, second = (table.set_index(keys).score.sort_index() for table in tables)
        if not np.allclose(first, second, rtol=1e-9, atol=0, equal_nan=True):
            raise ValueError(f"{path}: other numbers at {JUDGED_AGAIN} than at {BEFORE}")


def _renamed(value: Any) -> Any:
    if isinstance(value, dict):
        return {RENAMED.get(k, k): _renamed(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_renamed(v) for v in value]
    return RENAMED.get(value, value) if isinstance(value, str) else value


def _show(root: Path, commit: str, path: str) -> str:
    return git(root, "show", f"{commit}:{path}")


def main(argv: Sequence[str] | None = None) -> int:
    root = asked("workbook.synthesis.changes", __doc__, argv)
    extract(root, root / "reports/synthesis")
    print(f"{root / 'reports/synthesis' / TABLE}: {BEFORE}, {JUDGED_AGAIN}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
