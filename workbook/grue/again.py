"""The generated benchmark three times: an edition on two machines, and today's on fresh seeds. Which words stay?

python -m workbook.grue.again        # reports/grue_again/again.md, from its two tables and that of reports/grue
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from workbook.ledger.ruling import ELSEWHERE
from workbook.results.tables import join, markdown, signed
from workbook.statistics.rule import AGAINST, FOR
from workbook.store.files import atomic_write

FIRST, SECOND = "reports/grue_again/first.csv", "reports/grue_again/second.csv"
TODAY, PAGE = "reports/grue/claims.csv", "reports/grue_again/again.md"
HEAD = """# The generated benchmark, run again

The first edition of `make grue` (seeds 1 to 5) was run from nothing on two machines, with the same settings and code
(second: an AMD EPYC with AVX-512). Rounding differs, so training goes another way, and nothing else does: how far the
two are apart says how much a word of five seeds is worth. Words and effects are in [first.csv](first.csv) and
[second.csv](second.csv). Today's edition ([leaderboard](../grue/leaderboard.md), [claims](../grue/claims.md)) has the
same contrasts, fresh seeds 6 to 10, and raw models that had seen translations and summaries of another style than the
tasks', so that every task has a supervised start. Nothing is pooled over the three."""


def page(first: pd.DataFrame, second: pd.DataFrame, today: pd.DataFrame) -> str:
    """Markdown. All: tables as `claims.table` makes them; ``today``: of the other edition."""
    named = {"first": first, "second": second, "today": today}
    words = pd.concat([_words(table).rename(name) for name, table in named.items()], axis=1).fillna(ELSEWHERE)
    words = words[~words.isin([ELSEWHERE]).all(axis=1)]
    both = first.merge(second, on=["id", "name"], suffixes=("", "_again")).dropna(subset=["difference", "test_word"])
    other = both[both.test_word != both.test_word_again]
    beyond = (both.difference_again < both.low) | (both.difference_again > both.high)
    other_sign = (both.difference * both.difference_again < 0).sum()
    parts = [
        HEAD,
        f"Between the two machines, of {_moved(words, 'second')} Of {len(both)} tests {len(other)} have another word "
        f"and {other_sign} a difference of another sign; {beyond.sum()} second differences lie outside the first's 95 "
        "% interval.",
        f"Between the first edition and today's, of {_moved(words, 'today')}",
        markdown(words.reset_index(names="claim")),
    ]
    if len(other):
        lines = markdown(pd.DataFrame([_line(row) for _, row in other.iterrows()]))
        parts += ["## Tests with another word on the other machine", lines]
    return "\n\n".join(parts) + "\n"


def _moved(words: pd.DataFrame, name: str) -> str:
    """How many claims that have a word in the first edition and in ``name`` have another one there, and which."""
    pair = words[["first", name]][~words[["first", name]].isin([ELSEWHERE]).any(axis=1)]
    moved = pair[pair["first"] != pair[name]]
    turned = [each for each, row in moved.iterrows() if {*row} & {*FOR} and {*row} & {*AGAINST}]
    return (
        f"{len(pair)} claims with a word {len(moved)} have another one"
        f"{f' ({join(list(moved.index))})' if len(moved) else ''}, "
        f"{'from for to against or back: ' + join(turned) if turned else 'none from for to against or back'}."
    )


def _words(table: pd.DataFrame) -> pd.Series:
    return table.groupby("id", sort=False).word.first().dropna()


def _line(row: pd.Series) -> dict[str, str]:
    return {
        "claim": row.id,
        "test": row["name"],
        "first": f"{signed(row.difference, row.low, row.high)} {row.test_word}",
        "second": f"{signed(row.difference_again, row.low_again, row.high_again)} {row.test_word_again}",
    }


def write(root: Path) -> Path:
    """The page below `root`; its path."""
    out = root / PAGE
    atomic_write(out, page(*(pd.read_csv(root / name) for name in (FIRST, SECOND, TODAY))))
    return out


if __name__ == "__main__":
    print(write(Path(".")))
