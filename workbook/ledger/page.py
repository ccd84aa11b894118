"""The ledger as a page: the answer in two sentences, what was decided, what is open and how many seeds would settle it.

Every function takes the rows of `judge.ledger` (or of a claims.json); the same rows give the same text.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from workbook.figures.names import spelled
from workbook.ledger import beside, one_model
from workbook.ledger.contrast import NOT_MEASURED, in_words
from workbook.ledger.judge import summary
from workbook.ledger.made import Component
from workbook.ledger.ruling import AWAITING, ELSEWHERE, RULE
from workbook.results import tables
from workbook.results.measures import MEASURES
from workbook.results.tables import counted, effect, join, p_value, signed
from workbook.statistics import paired
from workbook.statistics.rule import AGAINST, FOR, OPENS
from workbook.store.files import atomic_write, plain

Rows = Sequence[Mapping[str, Any]]
SHORT = {"yardsticks": "", "share of runs": " (share of runs)", "own unit": " (its own unit)"}
NOTHING = "–"
P_VALUES = {"p (t)": "p_t", "Holm": "p_t_holm", "Holm, table": "p_t_table", "p (exact)": "p_exact"}
AT_LOOK = "at its look's level"  # of a registered design's intervals, 1 - level
PLACE = "../../rule.md"  # of the rule, from a page of a profile
THEIRS = "The rule (`rule` in claims.json, which `submit --out` writes) is the one"  # of somebody's table
SEEN = "results of these runs, or of earlier ones like them,"
SHARP = (
    "p is that of the whole claim holding (near 1 where the numbers lie the other way: it says nothing against a "
    "claim). q, beside each word that holds, is the share of false ones to be expected among the claims that hold "
    "with a q as small (Benjamini-Yekutieli over every claim that was tested, whatever the tests share). The last two "
    "columns are simulated, with the claim's own noise, its covariance and as many seeds as here (a registered design: "
    "at all its looks, up to the last): how often it would "
    "hold if every effect were as stated, and be refuted if there were none (an equality: at twice its margin; a "
    "threshold: missed by as much as stated). A claim with a small share on the left could hardly have held; an open "
    "word there says little. The last share of a single test in one direction is 0.975 at most: of nothing at all one "
    "in forty holds by chance."
)


def answer(rows: Rows) -> str:
    """Two sentences: how many claims got each word, and which of them the evidence contradicts; a third where all
    seeds share one base model. Where a registered design has the words, it says which."""
    if said := beside.said(rows):
        return said
    n, profile = rows[0]["seeds"], rows[0]["profile"]
    against = [row["id"] for row in rows if row["word"] in AGAINST]
    turns = [row["id"] for row in rows if row["turns"]]
    seeds = f"{n} seed{'s' * (n > 1)}" + " of one base model" * one_model.marked(rows)
    first = f"Of the {len(rows)} claims, in profile {profile} with n = {seeds}: {counted(summary(rows))}."
    second = f"The evidence goes against {join(against)}" if against else "The evidence goes against none of them"
    half = f"{join(turns)} read{'s' * (len(turns) == 1)} differently" if turns else "no verdict reads differently"
    return f"{first} {second}; at half the training budget {half}." + f" {one_model.SAID}" * one_model.marked(rows)


def decided(rows: Rows) -> pd.DataFrame:
    """The claims that were put to a test: a row per deciding test, the claim and its verdict on the first.

    Effects are in yardsticks where no unit is named.
    """
    lines = []
    for row in rows:
        whole = {
            "claim": f"**{row['id']}** {row['claim']}",
            "verdict": f"**{beside.word(row) or row['word']}**",
            "at half the budget": (row["half_word"] or NOTHING) + (" (turns)" if row["turns"] else ""),
        }
        for c in (c for c in row["components"] if c["role"] == "decides"):
            cells = {
                "test": c["name"],
                "in its unit [95 %]": raw(c),
                "published": _effect(c, "published"),
                "here [95 %]": _effect(c, "effect"),
                "alone": beside.word_of_test(row, c["name"]) or c["word"],
            }
            lines.append({"claim": whole["claim"], **cells, **whole})
            whole = dict.fromkeys(whole, "")
    return pd.DataFrame(lines)


def tested(rows: Rows, called: Mapping[str, str]) -> pd.DataFrame:
    """A row per deciding test, the claim on the first: its effect in the metric's own unit, then in yardsticks beside
    the published one, and the test's word; of a claim without a test, what it lacks. called: run -> its name."""
    lines = []
    for row in rows:
        word = beside.word(row) or row["word"]
        whole = {"claim": f"{row['id']}: {row['claim']}", "verdict": f"**{word}**{beside.marks(row)}"}
        for c in [c for c in row["components"] if c["role"] == "decides"]:
            known = c["difference"] is not None
            lines.append(
                {
                    "claim": whole["claim"],
                    "test": c["name"],
                    "here [95 %]": raw(c) or spelled(c["note"], called) or c["word"],
                    "in yardsticks [95 %]": effect(c["effect"], c["effect_low"], c["effect_high"]) if known else "",
                    "published": effect(c["published"], c["published_low"], c["published_high"]),
                    "alone": beside.word_of_test(row, c["name"]) or c["word"],
                    "verdict": whole["verdict"],
                }
            )
            whole = dict.fromkeys(whole, "")
        if whole["claim"]:
            lines.append({**dict.fromkeys(COLUMNS, ""), **whole, "test": spelled("; ".join(row["lacks"]), called)})
    return pd.DataFrame(lines, columns=list(COLUMNS)) if lines else pd.DataFrame()


COLUMNS = ("claim", "test", "here [95 %]", "in yardsticks [95 %]", "published", "alone", "verdict")


def raw(c: Mapping[str, Any]) -> str:
    """ "+0.299 [0.254, 0.344] nats/token" of a test: the difference in the metric's unit, or the log ratio, rank or
    share that it is; "" where there is none."""
    if c.get("difference") is None:
        return ""
    unit = MEASURES[c["metric"]].unit.replace(NOTHING, "") if c["unit"] in ("yardsticks", "own unit") else c["unit"]
    return f"{signed(c['difference'], c['low'], c['high'])} {unit}".strip()


def unsettled(rows: Rows) -> pd.DataFrame:
    """The deciding tests that leave a claim open, with the seeds that would settle the effect stated; in a registered
    design also those of a claim that has its word, and stays until each of its tests has one."""
    return pd.DataFrame(
        [
            {
                "claim": row["id"],
                "test": c["name"],
                "here [95 %]": _effect(c, "effect"),
                "stated beforehand": f"{'±' * (c['direction'] == 'equal')}{c['stated']:.2g}{_unit(c)}",
                "seeds here": f"{c['n']}" if c["n"] else NOTHING,
                "seeds that would settle it": in_words(c["n_needed"], c["n"]) if c["n_needed"] else "not known",
            }
            for row in rows
            if row["word"] in OPENS or row.get("settled") is False
            for c in row["components"]
            if c["role"] == "decides" and c["word"] in (*OPENS, NOT_MEASURED)
        ]
    )


def sharpness(rows: Rows) -> pd.DataFrame:
    """How far each tested claim's word can be trusted: parts that hold, p of its holding, q over the whole ledger
    beside each word of `FOR` (a dash beside others, of which it says nothing), and how often the same tests, with this
    noise and so many seeds, would say "holds" of a world as stated, and "too small" or "opposite" of one where nothing
    is there."""
    return pd.DataFrame(
        [
            {
                "claim": row["id"],
                "word": row["word"],
                "parts that hold": row["parts_held"] or ("1 of 1" if row["word"] in FOR else "0 of 1"),
                "p (holds)": p_value(row["p"]),
                "q": p_value(row["q"]) if row["word"] in FOR else NOTHING,
                "holds, if as stated": _share(row["assay"], "holds"),
                "refuted, if nothing is there": _share(row["assay"], "refuted"),
            }
            for row in rows
            if row["p"] is not None
        ]
    )


def awaiting(rows: Rows) -> pd.DataFrame:
    """Claims whose learner, sampler or task is not built yet."""
    return _lacking(rows, AWAITING, "waits for")


def elsewhere(rows: Rows) -> pd.DataFrame:
    """Claims that this profile cannot test, with what it would take."""
    return _lacking(rows, ELSEWHERE, "needs")


def text(table: pd.DataFrame) -> str:
    """A table as Markdown; "None." where it has no rows."""
    return tables.markdown(table) if len(table) else "None."


def table(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """The ledger for people: a row per claim."""
    return pd.DataFrame(
        [
            {
                "claim": f"{row['id']}: {row['claim']}",
                "source": row["source"],
                "published": row["published_text"],
                "here": _effects(row) if beside.word(row) else row["sentence"],
                "verdict": beside.word(row) or row["word"] + beside.marks(row),
            }
            for row in rows
        ]
    )


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """The ledger as Markdown: what it comes to, the table, every test, the rule with its hash."""
    tests = every_test(rows)
    parts = [
        f"# Claims, profile {rows[0]['profile']}" if rows else "# Claims",
        beside.said(rows) or counts(rows) + ".",
        *(lost(row["lost_draws"]) for row in rows[:1] if "lost_draws" in row),
        *([one_model.SAID] if one_model.marked(rows) else []),
        tables.markdown(table(rows)),
    ]
    if len(tests):
        parts += ["## Every test", tables.markdown(tests)]
    if len(sharp := sharpness(rows)):
        parts += ["## How sharp the tests are", SHARP, tables.markdown(sharp)]
    said = [f"{linked(row['rule'], 'as_registered' in row, 'submitted' in row)} {alpha(rows)}" for row in rows[:1]]
    parts += ["## The rule", *said]
    return "\n\n".join(parts) + "\n"


def every_test(rows: Rows) -> pd.DataFrame:
    """A row per test, those that stand beside too; of a registered design with the look that gave the claim its word,
    and the level of that look, which is that of the intervals."""
    levels = any("level" in row for row in rows)
    lines = [
        {
            "claim": row["id"],
            "test": c["name"] + ("" if c["role"] == "decides" else " (beside)"),
            "metric": c["metric"],
            f"difference [{AT_LOOK if levels else '95 %'}]": raw(c),
            **{of: effect(c[of], c[f"{of}_low"], c[f"{of}_high"]) for of in ("effect", "published")},
            "stated": ("±" if c["direction"] == "equal" else "") + f"{c['stated']:.3g}",
            "unit": c["unit"],
            **{title: p_value(c[name]) for title, name in P_VALUES.items()},
            **({"look": f"{row['look']} draws", "level": f"{row['level']:.4f}"} if levels else {}),
            "n": "" if c["n"] is None else f"{c['n']}",
            "n that settles it": "" if c["n_needed"] is None else in_words(c["n_needed"], c["n"]),
            "word": c["word"] + (f" ({c['note']})" if c["note"] else ""),
        }
        for row in rows
        for c in row["components"]
    ]
    return pd.DataFrame(lines)


def coverage(rows: Rows) -> str:
    """Of how much the intervals of a ledger are: "95 %", or of a registered design 1 - the level of each look that gave
    words, "98.75, 98.39 or 96.78 %"."""
    levels = sorted({row["level"] for row in rows if "level" in row}) or [paired.ALPHA]
    return join([f"{100 * (1 - level):.4g}" for level in levels], " or ") + " %"


def alpha(rows: Rows) -> str:
    """At what level the rows were judged; in a registered design, that of each look."""
    levels = dict(sorted((row["look"], row["level"]) for row in rows if "level" in row))
    each = join([f"{level:.4f} after {look} draws" for look, level in levels.items()])
    looks = f" for all looks together, of each look the level beside its tests: {each}. Intervals are of 1 minus that "
    looks += f"level ({coverage(rows)}); those published are of 95 %"
    return f"Alpha is {paired.ALPHA:g}{looks if levels else ''}."


def linked(rule: str, registered: bool = False, submitted: bool = False) -> str:
    """Where the rule is, from a page of a profile, when it was written, and its hash. registered: whether the rows are
    of a registered design, whose draws alone came after it; submitted: of a table that somebody else made."""
    when = "fixed before it judged" if registered else f"written after {SEEN} had been seen"
    said = f"{THEIRS} that judges this project's own runs" if submitted else f"[The rule]({PLACE}) was {when}"
    return f"{said}: hash of the rule and of every test `{rule[:12]}`."


def write(rows: Sequence[Mapping[str, Any]], folder: str | Path) -> None:
    """claims.json (everything), claims.csv (a line per test, numbers of seven digits) and claims.md; the same rows give
    the same bytes.

    p and q of a row in claims.json are those of "holds", whatever its word: they say nothing of a refuted claim.
    """
    folder = Path(folder)
    whole = {"rule": RULE, "summary": summary(rows), "rows": list(rows)}
    text = json.dumps(whole, sort_keys=True, allow_nan=False, default=plain, separators=(",", ":"))
    atomic_write(folder / "claims.json", text + "\n")  # long, and read by programs: without the spaces a fifth is less
    shared = ("id", "report", "word", "half_word", "turns", "profile", "seeds", "rule")
    names = list(Component.__dataclass_fields__)
    lines = []
    for row in rows:
        for c in row["components"] or [{}]:
            lines.append([*(row[k] for k in shared), *(_rounded(c.get(k)) for k in names)])
    titles = [{"name": "test", "word": "test_word"}.get(n, n) for n in names]
    write_csv(folder / "claims.csv", [*shared, *titles], lines)
    atomic_write(folder / "claims.md", markdown(rows))


def _rounded(value: Any) -> Any:
    return float(f"{value:.7g}") if isinstance(value, float) else value


def lost(draws: int) -> str:
    """How many draws of a registered design are not counted."""
    return (
        f"Draws lost so far, because one of their runs ended twice with an error: {draws}. A registered replacement "
        "stands for each of them; none is lost for what its runs showed, and a run that diverged counts."
    )


def counts(rows: Sequence[Mapping[str, Any]]) -> str:
    return "; ".join(f"{word}: {count}{beside.not_settled(rows, word)}" for word, count in summary(rows).items())


def write_csv(path: Path, names: Sequence[str], lines: Sequence[Sequence[Any]]) -> None:
    """A table whose numbers keep all the digits that they have; nothing for None."""
    out = io.StringIO()
    written = ([repr(v) if isinstance(v, float) else v for v in line] for line in lines)
    csv.writer(out, lineterminator="\n").writerows([names, *written])
    atomic_write(path, out.getvalue())


# parts ---------------------------------------------------------------------------------------------------------------


def _lacking(rows: Rows, word: str, title: str) -> pd.DataFrame:
    return pd.DataFrame(
        [{"claim": f"**{r['id']}** {r['claim']}", title: "; ".join(r["lacks"])} for r in rows if r["word"] == word]
    )


def _effects(row: Mapping[str, Any]) -> str:
    """Every deciding test's effect, in a line."""
    deciding = [c for c in row["components"] if c["role"] == "decides"]
    return "; ".join(f"{c['name']} {_effect(c, 'effect')}" for c in deciding)


def _effect(c: Mapping[str, Any], which: str) -> str:
    """ "+0.68 [+0.54, +0.81]" of a test, published or measured; its note or a dash where there is no number."""
    if c[which] is None:
        return (c["note"] or c["word"]) if which == "effect" else NOTHING
    return effect(c[which], c[f"{which}_low"], c[f"{which}_high"]) + _unit(c)


def _unit(c: Mapping[str, Any]) -> str:
    return SHORT.get(c["unit"], f" ({c['unit']})")


def _share(assay: Mapping[str, float] | None, which: str) -> str:
    return NOTHING if assay is None else f"{assay[which]:.2f}"
