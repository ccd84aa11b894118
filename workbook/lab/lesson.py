"""What the committed ledger says, for lessons: read from the files of reports, so that a lesson cannot contradict
them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from rlnlp.settings import nearest

REPORTS = Path(__file__).resolve().parents[2] / "reports"


def verdicts(*claims: str, profiles: Sequence[str] = ("settle", "full", "imdb")) -> pd.DataFrame:
    """What the committed ledger says today: a row per claim (such as "P01"), its text and the verdict of each profile,
    a dash where the profile did not ask.

    Raises ValueError for a claim or a profile that the ledger does not have, the nearest named.
    """
    ledger = pd.read_csv(REPORTS / "claims.csv", index_col="id")
    for name, known in [(claim, ledger.index) for claim in claims] + [
        (profile, ledger.columns) for profile in profiles
    ]:
        if name not in known:
            raise ValueError(f"the ledger has no {name!r}{nearest(name, known)}")
    return ledger.loc[list(claims), ["claim", *profiles]].fillna("–")
