"""What it does to supervised policies to write texts as long as everybody's: the same policies, decoded both ways.

    python -m workbook.stages.supervised_length [FOLDER OF A PROFILE]    # after `make reproduce`, with its models

Supervised training samples nothing, so that its settings have no least length, and its policies are decoded with none:
their texts may end where those of all others have ``max_new_tokens``. This trains the supervised conditions on the
profile's draws, as their runs do, decodes each plainly with both least lengths, the same random numbers, and writes
reports/synthesis/supervised_length.csv (a row a policy and length) and .md (what the length changes, paired).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from rlnlp.decoding import Decoding
from workbook.draws import fewer_labels
from workbook.runs import conditions, train
from workbook.runs.draw import load_draw
from workbook.runs.experiment import numbers_of
from workbook.runs.measure import evaluate_state
from workbook.statistics.paired import mean_interval
from workbook.store.files import atomic_write
from workbook.store.tables import write_table

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "reports" / "synthesis" / "supervised_length.csv"
CONDITIONS = ("supervised", "supervised_10", "supervised_50", "supervised_long")
METRICS = ("length", "score", "judge", "generation_log_perplexity", "distinct_2")
FREE, FIXED = "may end", "as long as all others"
ABOUT = """# Supervised policies, decoded as long as all others

Supervised training samples nothing, so that its settings have no least length; in every profile its policies' texts may
end where those of all others have as many tokens as are allowed. Here the same policies, trained as their runs are, are
decoded both ways with the same random numbers: plainly, on all test prompts. As long as all others minus free, mean
over draws with its 95 % interval; score and judge from 0 to 1, perplexity in nats a token.
[The table](supervised_length.csv); made by `python -m workbook.stages.supervised_length` from the models of `make
reproduce`.
"""


def rows(given: conditions.Condition) -> Iterator[dict]:
    """Two rows for each seed of a supervised condition: its policy's test texts by either length."""
    config, condition = given.config(), given.condition
    for seed in given.seeds:
        draw = load_draw(given, seed, given.run)
        texts = fewer_labels.positive_prompts(given, draw.data, seed, config.data_fraction, draw.tokenizer)
        with tempfile.TemporaryDirectory() as work:
            label = f"{condition} seed {seed}"
            made = train.train("supervised", config, draw, numbers_of(given.run, seed), Path(work), label, label, texts)
            state, _ = train.ended(made)
        T = config.max_new_tokens
        chosen = [Decoding(name, T, min_new_tokens=least) for name, least in ((FREE, 0), (FIXED, T))]
        found, _ = evaluate_state(given, draw, state, seed, "test", chosen)
        for row in found:
            yield {"condition": condition, "seed": seed, "texts": row["decoding"], **{m: row[m] for m in METRICS}}


def page(table: list[dict]) -> str:
    """The table's differences, as Markdown."""
    lines = [ABOUT, f"| condition | n | {' | '.join(METRICS)} |", f"|---|---|{'---|' * len(METRICS)}"]
    for condition in dict.fromkeys(row["condition"] for row in table):
        both = [
            {row["seed"]: row for row in table if (row["condition"], row["texts"]) == (condition, texts)}
            for texts in (FREE, FIXED)
        ]
        cells = []
        for metric in METRICS:
            off = mean_interval([both[1][seed][metric] - both[0][seed][metric] for seed in both[0]])
            cells.append(f"{off.estimate:+.3f} [{off.low:.3f}, {off.high:.3f}]".replace("-", "−"))
        lines.append(f"| {condition} | {len(both[0])} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m workbook.stages.supervised_length",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", nargs="?", type=Path, default=Path("."), help="of a profile; here, if none is said")
    folder = parser.parse_args(argv).folder
    if not (folder / "build" / "conditions").is_dir():
        parser.error(f"{folder}: expected a profile's folder with build/conditions, which `make reproduce` writes")
    given = [conditions.load_condition(condition, folder) for condition in CONDITIONS]
    train.setup(given[0])
    table = [row for condition in given for row in rows(condition)]
    write_table(OUT, table, ["condition", "seed", "texts", *METRICS])
    atomic_write(OUT.with_suffix(".md"), page(table))
    return 0


if __name__ == "__main__":
    sys.exit(main())
