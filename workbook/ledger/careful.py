"""What a careful reader of the texts sees and a score hides: stock phrases, and words that nobody writes.

    write(results, folder)                    # reports/<profile>/careful: verdict.md and its picture, from the tables
    invented(samples, human, known)           # the rows of reports/<profile>/invented.csv, which needs real texts

Stock phrases are counted in every table (`shared_5gram`). Words are looked up where texts are real: a word is invented
if no review that the models may have read has it; people invent words too, so their share stands beside.
"""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from workbook.figures import dots
from workbook.figures.names import names
from workbook.figures.parts import save
from workbook.results import design
from workbook.results.design import Compared
from workbook.results.files import SAMPLES, read_rows, standing
from workbook.results.results import Results, load, once
from workbook.results.tables import between, markdown, number, safe, signed
from workbook.statistics import paired
from workbook.store.files import atomic_write
from workbook.store.tables import write_table
from workbook.texts.invented import RESAMPLES, as_long_as, counts, known_words

TITLE = "What does a careful reader see in the texts that a score hides?"
QUESTION = """A reward model pays for what it was trained to like. Whoever reads the texts sees more: the same closing
phrase again and again, and, where a model writes parts of words, words that are none."""
SHARED, TABLE = "shared_5gram", "invented.csv"
WORDS = 5  # of a stock phrase
HUMAN, MOST = 50, 8  # human texts for each sample; rows that a table shows
FEWEST = 10  # texts of a seed that show what it says again and again
PICTURE = "stock_phrases"
READ = "Right of the dashed line: more of its texts share a phrase with others of them than the untrained model's do."
UNTRAINED = "zero_shot"


def closers(results: Results, conditions: Sequence[str] | None = None) -> list[Compared]:
    """Each trained run's share of texts with a stock phrase minus the untrained model's, the largest first.

    The label is the run's id; conditions: of these only (default: all). Runs of other worlds are left out: their texts
    are numbers; so is a choice among texts of the untrained model, a run that is another one's again to the digit, and
    one of which a seed ended without texts.
    """
    rows = results.per_seed
    without = {*rows[(rows.split == "test") & (rows.decoding == "plain") & rows.score.isna()].condition}
    every = design.trained(results, "").index.difference(without, sort=False)
    there = [c for c in every if results.configs[c]["learner"]["updates"]]
    different = {_written(results, c): c for c in reversed(there)}.values()  # of equals the first
    kept = [c for c in there if c in different and (conditions is None or c in conditions)]
    found = {c: design.measure(results, c, f"gain:{SHARED}") for c in kept}
    rows = [Compared(c, SHARED, paired.one_sample(v)) for c, v in found.items() if v is not None]
    return sorted(rows, key=lambda row: -row.difference.difference)


def _written(results: Results, condition: str) -> tuple[float, ...]:
    """Numbers that two runs share only if they wrote the same texts."""
    found = [results.values(condition, metric) for metric in ("score", "distinct_2", SHARED)]
    return tuple(float(v) for values in found if values is not None for v in values)


def said(results: Results, conditions: Sequence[str] | None = None) -> str:
    """Who writes stock phrases, in a sentence or two; "" where no run has the number."""
    if not (rows := closers(results, conditions)):
        return ""
    parts = [f"{_many(rows)} (an interval wholly above 0)."]
    for row in _beyond(rows)[:1]:
        own, start = _shares(results, row)
        parts.append(
            f"Most of all {names(results)[row.label]}: {_percent(own)} of its texts share five words in a row with "
            f"more than one in a hundred of its others, of the untrained model's {_percent(start)}."
        )
    return " ".join([*parts, *filter(None, [_short(results, [row.label for row in rows])])])


def _many(rows: Sequence[Compared]) -> str:
    """How many runs write them."""
    runs = f"{len(_beyond(rows)) or 'None'} of {len(rows)} trained run{'s' * (len(rows) > 1)}"
    return f"{runs} repeat stock phrases more often than the untrained model beyond chance"


def _beyond(rows: Sequence[Compared]) -> list[Compared]:
    """Those whose interval lies wholly above 0."""
    return [row for row in rows if row.difference.low is not None and row.difference.low > 0]


def _short(results: Results, conditions: Sequence[str]) -> str:
    """How many runs write too little to repeat five words; "" for none."""
    lengths = {c: results.values(c, "length") for c in conditions}
    short = [c for c, v in lengths.items() if v is not None and v.mean() < WORDS]
    runs = f"Runs whose texts have fewer than {WORDS} tokens on average, too few for such a phrase: {len(short)}."
    return runs if short else ""


def _percent(share: float, digits: int = 0) -> str:
    return f"{100 * share:.{digits}f} %"


def _shares(results: Results, row: Compared) -> tuple[float, float]:
    """(the run's mean share, that of the untrained model it is compared with)."""
    own = float(design.measure(results, row.label, SHARED).mean())
    return own, own - row.difference.difference


def phrases(results: Results) -> pd.DataFrame:
    """`closers` as a table: the first `MOST`, raw shares, the difference with its interval, and what is said again and
    again in the texts that are committed."""
    lines, texts = [], samples(results.params.reports_folder)
    for row in closers(results)[:MOST]:
        own, start = _shares(results, row)
        d = row.difference
        change = signed(d.difference, d.low, d.high)
        known = {"run": names(results)[row.label], "share of its texts": number(own)}
        lines.append({**known, "untrained": number(start), "difference [95 %]": change, "seeds": d.n})
        kept = texts.get(row.label, ())
        lines[-1]["its commonest five words"] = commonest(kept if len(kept) >= FEWEST else ())
    table = pd.DataFrame(lines)
    return table[[name for name in table if (table[name] != "").any()]]  # no column of runs without a committed text


@once
def picture(results: Results) -> Figure | None:
    """The runs of `phrases`, seed by seed beside the untrained model; None where no run has the number."""
    rows = [row.label for row in closers(results)[:MOST]]
    return dots.arms(results, rows, (SHARED,), "Texts with a stock phrase") if rows else None


def commonest(texts: Sequence[str]) -> str:
    """The five words in a row that most texts have, and in how many; the first of several, "" without
    any."""
    found = Counter(
        run for words in map(str.split, texts) for run in dict.fromkeys(zip(*(words[i:] for i in range(WORDS))))
    )
    if not found:
        return ""
    run, often = found.most_common(1)[0]
    if often == 1:
        return "none twice"
    return f"“{safe(' '.join(run))}” ({often} of {len(texts)} texts)"


# words ---------------------------------------------------------------------------------------------------------------


def samples(reports: Path) -> dict[str, list[str]]:
    """Condition -> the first seed's committed texts, of samples.jsonl."""
    file, found = standing(reports, SAMPLES), {}
    lines = read_rows(file) if file.is_file() else []
    for line in lines:
        if line["seed"] == lines[0]["seed"]:
            found.setdefault(line["condition"], []).append(line["response"])
    return found


def invented(
    samples: Mapping[str, Sequence[str]], human: Sequence[str], known: frozenset[str], seed: int = 0
) -> list[dict[str, Any]]:
    """A row per condition: its texts and words, the share of words that are invented with its 95 % interval (a
    bootstrap over texts), and that of human texts as long, `HUMAN` for each of its texts.

    human: unseen texts; known: every word that the models may have read.
    """
    rows = []
    for condition, texts in samples.items():
        found = counts(texts, known)
        again = [text for text in texts for _ in range(HUMAN)][: len(human)]
        theirs = counts(as_long_as(human, again), known).sum(axis=0)
        pick = np.random.default_rng(seed).integers(len(found), size=(RESAMPLES, len(found)))
        drawn = found[pick].sum(axis=1)
        low, high = np.percentile(drawn[:, 0] / np.maximum(drawn[:, 1], 1), [2.5, 97.5])
        sizes = {"texts": len(texts), "words": int(found[:, 1].sum())}
        share = {"share": found[:, 0].sum() / max(found[:, 1].sum(), 1), "low": low, "high": high}
        shares = {**share, "human": theirs[0] / max(theirs[1], 1)}
        rows.append({"condition": condition, **sizes, **{k: round(float(v), 5) for k, v in shares.items()}})
    return rows


def keep(rows: Sequence[Mapping[str, Any]], reports: Path) -> Path:
    """Write the table of invented words; its path."""
    write_table(reports / TABLE, list(rows))
    return reports / TABLE


def invented_words(results: Results) -> list[dict[str, str]]:
    """The rows of the committed table of invented words; none where the profile has no such table."""
    file = results.params.reports_folder / TABLE
    return list(csv.DictReader(file.read_text(encoding="utf-8").splitlines())) if file.is_file() else []


def words(results: Results) -> tuple[str, pd.DataFrame]:
    """(a sentence on invented words, a row per run), of the committed table; nothing where the profile has none."""
    if not (rows := invented_words(results)):
        return "", pd.DataFrame()
    called, start = names(results), next((row for row in rows if row["condition"] == UNTRAINED), None)
    worst = max(rows, key=lambda row: float(row["share"]))
    beside = [f"of the untrained model's, {_percent(float(start['share']))}"] if start else []
    beside.append(f"of people's, in unseen reviews cut to the same lengths, {_percent(float(worst['human']), 1)}")
    text = (
        f"{_percent(float(worst['share']))} of the words of {called[worst['condition']]} are in no real review that a "
        f"model here could have read; {'; '.join(beside)}. It is the worst of {len(rows)}, by {worst['texts']} texts "
        "of one seed."
    )
    lines = [
        {
            "run": called[row["condition"]],
            "invented [95 %]": f"{number(float(row['share']))} {between(float(row['low']), float(row['high']))}",
            "people": number(float(row["human"])),
            "words": row["words"],
        }
        for row in sorted(rows, key=lambda row: -float(row["share"]))
    ]
    return text, pd.DataFrame(lines)


def base(params) -> str:
    """A sentence on the invented words of the model that all runs start from, where the profile has such a model."""
    file = params.folder / "base/facts.json"
    if not file.is_file():
        return ""
    found = json.loads(file.read_text(encoding="utf-8"))["invented"]
    return (
        f"The model that every run of this profile starts from invents {_percent(found['share'], 1)} of its words "
        f"({found['words']:,} words); people, in unseen reviews, {_percent(found['human_share'], 1)}."
    )


# the page ------------------------------------------------------------------------------------------------------------


def answer(results: Results) -> str:
    """The page in one sentence, or two where no run writes stock phrases, with at most three numbers."""
    rows, written = closers(results), invented_words(results)
    more = _beyond(rows)
    most = [
        f", most of all {names(results)[c.label]}, in {_percent(_shares(results, c)[0])} of its texts" for c in more[:1]
    ]
    found = [f"{_many(rows)}{''.join(most)}."] if rows else []
    if written and not more:
        worst = max(written, key=lambda row: float(row["share"]))
        run, share = names(results)[worst["condition"]], _percent(float(worst["share"]))
        found.append(
            f"{share} of the words of {run} are in no review that a model here could have read, the most of all."
        )
    return " ".join(found) or "No table here says."


def text(results: Results) -> str:
    """The page as Markdown."""
    sentence, table = words(results)
    parts = [f"# {TITLE}", QUESTION, f"**Answer.** {answer(results)}"]
    if drawn := picture(results):
        parts.append(f"![{drawn.get_label()}]({PICTURE}.svg)\n\n*How to read this.* {READ}")
    if len(shares := phrases(results)):
        n = len(closers(results))
        shown = f" The {len(shares)} runs of {n} with the most:" if n > len(shares) else ""
        about = (
            "The share of a run's texts with five words in a row that more than one in a hundred of its others have."
        )
        parts += ["## Stock phrases", said(results), about + shown, markdown(shares)]
    if invents := " ".join(filter(None, [sentence, base(results.params)])):
        parts += ["## Words that are none", invents]
    if len(table):
        about = (
            f"Of the committed texts of the first seed. *People*: unseen reviews, cut to the same lengths, {HUMAN} for "
            "each text. In brackets a 95 % interval over texts."
        )
        parts += [about, markdown(table)]
    if any(results.samples.values()) or any(results.params.reports_folder.glob("*/samples.md")):
        parts.append("Texts that nobody selected stand in `samples.md` beside each report of the profile.")
    return "\n\n".join(parts) + "\n"


def make(params) -> Path:
    """Write the page of a profile's tables, of all runs that its reports show; its path."""
    shown = list(dict.fromkeys(c for report in params.reports.values() for c in report.conditions))
    return write(load(params, shown), params.reports_folder)


def write(results: Results, reports: Path) -> Path:
    """Write reports/<profile>/careful/verdict.md and the picture in it; the page's path."""
    page = reports / "careful/verdict.md"
    if drawn := picture(results):
        save(drawn, page.parent, PICTURE)
    atomic_write(page, text(results))
    return page


def of_people(splits: Mapping[str, Sequence[Mapping[str, Any]]]) -> tuple[list[str], frozenset[str]]:
    """(unseen reviews, every word that a model may have read) of the splits of real reviews."""
    seen = (row["text"] for name in ("train", "unsupervised") for row in splits[name])
    return [row["text"] for row in splits["test"]], known_words(seen)
