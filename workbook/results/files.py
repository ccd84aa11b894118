"""The committed tables of a profile, in reports/<profile>."""

from __future__ import annotations

from pathlib import Path

PER_SEED, CURVES, CONDITIONS, FACTS = "per_seed.csv", "curves.csv", "conditions.json", "facts.json"
SAMPLES, EPISODES = "samples.jsonl", "episodes.json"
TEXTS_OF_A_SEED = 5  # of each seed, that pages show
DRAWS = "draws.csv.xz"  # of a registered design, in the place of the others
REGISTERED = "registered.json"  # in reports: the words of registered designs
LEARNING_CURVES, METRICS = "learning_curves.csv", "metrics.json"  # for DVC's plot and its comparison of versions
PACKED = PER_SEED + ".xz"  # of older code, which no run of today's writes again: a fifth of the size


def per_seed(reports: Path) -> Path:
    """The table of seeds in a profile's folder of reports, packed where only that is there."""
    return next((file for name in (PER_SEED, PACKED) if (file := reports / name).is_file()), reports / PER_SEED)


def table_of(reports: Path) -> Path | None:
    """The table of what a profile's runs were measured to be, of draws or of seeds; None where there is none."""
    return next((file for file in (reports / DRAWS, per_seed(reports)) if file.is_file()), None)
