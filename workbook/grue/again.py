"""The generated benchmark five times: two editions, on two machines and on three. Which words stay?

python -m workbook.grue.again        # reports/grue_again/again.md, from its four tables and that of reports/grue
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from workbook.grue.claims import NO_START
from workbook.ledger.ruling import ELSEWHERE
from workbook.results.tables import join, markdown, signed
from workbook.statistics.rule import AGAINST, FOR
from workbook.store.files import atomic_write

PAGE = "reports/grue_again/again.md"
RUNS = {  # run -> its table of claims; the first two are of the first edition
    **{name: f"reports/grue_again/{name}.csv" for name in ("first", "second", "third", "fourth")},
    "today": "reports/grue/claims.csv",
}
PAIRS = (  # what is compared with what
    ("first", "second", "The first edition on another machine"),
    ("first", "today", "From the first edition to today's"),
    ("third", "fourth", "Today's edition on another machine"),
    ("fourth", "today", "Today's edition on a third machine"),
)
HEAD = """# The generated benchmark, run again

The first edition of `make grue` (seeds 1 to 5) was run from nothing on two machines, with the same settings, rows and
code (second: an AMD EPYC with AVX-512). Rounding differs, so training goes another way, and nothing else does: a word
of five seeds is at least as uncertain as the two are apart. Today's edition ([leaderboard](../grue/leaderboard.md),
[claims](../grue/claims.md)) has the same contrasts. Its rows and seeds are others (6 to 10), and three settings were
changed when the first's words were known, so that every task has a supervised start: raw models had seen translations
and summaries of another style than the tasks', supervision has 600 references of translations and 2,000 of summaries
(200 before), a run 11 updates (12). It ran on three machines: AMD EPYCs with AVX-512 (third) and without (fourth), an
Intel Xeon with it (today's). Code was edited between them: before the fourth the reward of NarrativeQA, ROUGE-L-max as
published, learned to take stems, as the original does; before today's METEOR learned to part sentences, and generated
texts, whose full stops stand alone, are parted as before. What moved may be due to any of these. No run was chosen by
its words: the last one stands in the tables and on the claims' pages, as the one whose every seed's numbers and texts
were kept. Words and effects of the others: [first.csv](first.csv), [second.csv](second.csv), [third.csv](third.csv),
[fourth.csv](fourth.csv). Nothing is pooled over the five."""


def page(named: Mapping[str, pd.DataFrame]) -> str:
    """Markdown. named: run -> its table, as `claims.table` makes it."""
    words = pd.concat([_words(table).rename(name) for name, table in named.items()], axis=1).fillna(ELSEWHERE)
    words = words[~words.isin([ELSEWHERE]).all(axis=1)]
    parts = [HEAD, markdown(words.reset_index(names="claim"))]
    for one, name, title in PAIRS:
        both = named[one].merge(named[name], on=["id", "name"], suffixes=("", "_again"))
        both = both.dropna(subset=["difference", "difference_again"])
        both = both[~both[["test_word", "test_word_again"]].isin([NO_START]).any(axis=1)]
        other = both[both.test_word != both.test_word_again]
        parts += [f"## {title}", f"{_moved(words[[one, name]])} {_compared(both, len(other), one)}"]
        if len(other):
            parts.append(markdown(pd.DataFrame([_line(row, one, name) for _, row in other.iterrows()])))
    return "\n\n".join(parts) + "\n"


def _moved(words: pd.DataFrame) -> str:
    """How many claims that have a word in both columns have another one in the second, and which."""
    pair = words[~words.isin([ELSEWHERE]).any(axis=1)]
    moved = pair[pair.iloc[:, 0] != pair.iloc[:, 1]]
    turned = [each for each, row in moved.iterrows() if {*row} & {*FOR} and {*row} & {*AGAINST}]
    return (
        f"Of {len(pair)} claims with a word {len(moved)} have another one"
        f"{f' ({join(list(moved.index))})' if len(moved) else ''}, "
        f"{join(turned) if turned else 'none'} from *holds* to *too small* or *opposite* or back."
    )


def _compared(both: pd.DataFrame, moved: int, one: str) -> str:
    beyond = (both.difference_again < both.low) | (both.difference_again > both.high)
    other_sign = (both.difference * both.difference_again < 0).sum()
    return (
        f"Of {len(both)} tests that have a word in both {moved} have another one and {other_sign} a difference of "
        f"another sign; {beyond.sum()} differences lie outside the 95 % interval of *{one}*."
    )


def _words(table: pd.DataFrame) -> pd.Series:
    return table.groupby("id", sort=False).word.first().dropna()


def _line(row: pd.Series, one: str, name: str) -> dict[str, str]:
    return {
        "claim": row.id,
        "test": row["name"],
        one: f"{signed(row.difference, row.low, row.high)} {row.test_word}",
        name: f"{signed(row.difference_again, row.low_again, row.high_again)} {row.test_word_again}",
    }


def write(root: Path) -> Path:
    """The page below `root`; its path."""
    out = root / PAGE
    atomic_write(out, page({name: pd.read_csv(root / table) for name, table in RUNS.items()}))
    return out


if __name__ == "__main__":
    argparse.ArgumentParser(
        prog="python -m workbook.grue.again",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    ).parse_args()
    print(write(Path(".")))
