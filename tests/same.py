"""Which runs two tables have in common, to the digit."""

from __future__ import annotations

import pandas as pd

ROUNDED = 2e-6  # by how much two records of one number may differ, absolutely and as a share of it


def same_runs(one: pd.DataFrame, other: pd.DataFrame) -> set[tuple[str, int]]:
    """(condition, seed) of the runs that both tables have, decoded plainly, with the same number in every measure that
    both have (one may be rounded to seven digits)."""
    tables = [t[t.decoding == "plain"].set_index(["condition", "seed"]).select_dtypes("number") for t in (one, other)]
    index = tables[0].index.intersection(tables[1].index)
    columns = tables[0].columns.intersection(tables[1].columns)
    left, right = (table.loc[index, columns].astype(float) for table in tables)
    far = (left - right).abs() > ROUNDED * (1 + left.abs())
    return {*index[~far.any(axis=1)]}
