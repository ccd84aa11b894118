"""The same seeds of the generated benchmark run again on another machine: which words stay?

python -m workbook.grue.again        # reports/grue_again/again.md, from its claims.csv and that of reports/grue
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from workbook.results.tables import join, markdown, signed
from workbook.statistics.rule import AGAINST, FOR
from workbook.store.files import atomic_write

FIRST, SECOND = "reports/grue/claims.csv", "reports/grue_again/claims.csv"
HEAD = """# The generated benchmark, run again on another machine

All runs of `make grue` from nothing with the same settings, seeds and code of the runs, on two machines (first: what
the [leaderboard](../grue/leaderboard.md) and [claims](../grue/claims.md) show; second: an AMD EPYC with AVX-512).
Rounding differs, so training goes another way, and nothing else does: how far the two are apart says how much a word of
five seeds is worth. Words and effects of the second run are in [claims.csv](claims.csv); none is pooled with the
first's, as seeds and rows are the same."""


def page(first: pd.DataFrame, second: pd.DataFrame) -> str:
    """Markdown. Both: tables as `claims.table` makes them."""
    words = _words(first).to_frame("first").join(_words(second).rename("second"))
    words = words[~words.isin(["not testable here"]).all(axis=1)]
    moved = words[words["first"] != words["second"]]
    turned = [name for name, row in moved.iterrows() if {row["first"] in FOR, row["second"] in FOR} == {True, False}]
    turned = [name for name in turned if {*words.loc[name]} & {*AGAINST}]
    both = first.merge(second, on=["id", "name"], suffixes=("", "_again")).dropna(subset=["difference", "test_word"])
    other = both[both.test_word != both.test_word_again]
    beyond = (both.difference_again < both.low) | (both.difference_again > both.high)
    parts = [
        HEAD,
        f"Of {len(words)} claims with a word {len(moved)} have another one"
        f"{f' ({join(list(moved.index))})' if len(moved) else ''}, "
        f"{'from for to against or back: ' + join(turned) if turned else 'none from for to against or back'}. Of "
        f"{len(both)} tests {len(other)} have another word and {(both.difference * both.difference_again < 0).sum()} a "
        f"difference of another sign; {beyond.sum()} second differences lie outside the first's 95 % interval.",
        markdown(words.reset_index(names="claim")),
    ]
    if len(other):
        parts += ["## Tests with another word", markdown(pd.DataFrame([_line(row) for _, row in other.iterrows()]))]
    return "\n\n".join(parts) + "\n"


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
    out = root / SECOND.replace("claims.csv", "again.md")
    atomic_write(out, page(pd.read_csv(root / FIRST), pd.read_csv(root / SECOND)))
    return out


if __name__ == "__main__":
    print(write(Path(".")))
