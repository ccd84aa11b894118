"""What the committed tables say, for lessons: read from the files of reports, so that a lesson cannot contradict
them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from rlnlp.settings import nearest
from workbook.results.files import per_seed
from workbook.results.tables import minus, signed
from workbook.statistics.paired import mean_interval

REPORTS = Path(__file__).resolve().parents[2] / "reports"


def verdicts(*claims: str, profiles: Sequence[str] = ("settle", "reviews", "imdb")) -> pd.DataFrame:
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


def runs(profile: str, *arms: str, metrics: Sequence[str], against: str = "") -> pd.DataFrame:
    """What the committed runs of a profile gave on test prompts: a row per arm, a column per metric, in each cell the
    mean and, behind the colon, every draw.

    arms: a condition, decoded plainly ("dqn_mlp"), or with a decoding ("dqn_mlp, own"). against: an arm that is taken
    from each of the others, draw by draw; the mean then has its 95 % interval over draws.

    Raises ValueError for an arm or a metric that the profile does not have, the nearest named.
    """
    rows = pd.read_csv(per_seed(REPORTS / profile), low_memory=False).query("split == 'test'").set_index("seed")
    of = {c if d == "plain" else f"{c}, {d}": rows for (c, d), rows in rows.groupby(["condition", "decoding"])}
    for name, known in [(arm, of) for arm in (*arms, against) if arm] + [(metric, rows.columns) for metric in metrics]:
        if name not in known:
            raise ValueError(f"the runs of {profile} have no {name!r}{nearest(name, known)}")
    base = {metric: of[against][metric] if against else None for metric in metrics}
    return pd.DataFrame({metric: {arm: _said(of[arm][metric], base[metric]) for arm in arms} for metric in metrics})


def _said(values: pd.Series, base: pd.Series | None) -> str:
    """A mean and its draws; or a mean difference, its interval and its draws."""
    if base is None:
        return minus(f"{values.mean():.2f}: {', '.join(f'{value:.2f}' for value in values)}")
    found = mean_interval(values - base)
    each = ", ".join(f"{value:+.2f}" for value in values - base)
    return minus(f"{signed(found.estimate, found.low, found.high)}: {each}")
