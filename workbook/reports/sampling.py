"""The sampler in training and the decoder in use."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from matplotlib.figure import Figure

from workbook.figures import heat
from workbook.results.design import Compared, Pair, compare, measure, trained, untrained
from workbook.results.results import Results
from workbook.statistics import paired

TITLE = "Must a model be decoded the way it was trained?"
QUESTION = """In training, texts are sampled: from all tokens (ancestral), from the likeliest k or p, or at a lower
temperature. In use a model may be decoded in another way, greedily or by beam search for example. The paper calls it
critical that the two match, without numbers, and its own settings do not. Does a mismatch cost anything here?"""
TERMS = """*Gain*: score minus that of the untrained model with the *same* decoding, because decoding alone changes a
score. *Matched*: mean of the cells decoded as trained minus mean of the others, where each row and column has one:
what a sampler or a decoding does by itself cancels in it."""
DETAIL = ("training_score", "distinct_2", "length")
READ = {
    "heat": """If matching mattered, the framed cells would stand out from their row *and* their column; a bright
column is a decoding that gains, a bright row a training that does (of the perplexity bright is worse). No model was
trained greedily: that column is off the scale, as bright or as dark as a cell can be.""",
}
LIMITS = (
    "One task, language modelling; the paper's remark is mostly about translation.",
    "A gap between training and test score also holds what is special to the training prompts.",
)
NAMES = {
    "plain": "ancestral",
    "top_k": "top-k",
    "top_p": "top-p",
    "temperature": "temperature",
    "greedy": "greedy",
    "beam": "beam",
}


def matched(results: Results, condition: str) -> str:
    """The decoding that samples as the condition was trained; empty if no decoding has its settings."""
    row, evaluation = trained(results).loc[condition], results.params.evaluation
    for decoding, nothing in (("top_k", 0), ("temperature", 1), ("top_p", 1)):
        if row[decoding] != nothing:
            return decoding if row[decoding] == getattr(evaluation, decoding) else ""
    return "plain"


def rows(results: Results) -> dict[str, str]:
    """Name of the sampler in training -> condition: the runs that have a matching decoding."""
    own = {c: matched(results, c) for c in trained(results, "").index}
    return {NAMES[d]: c for d in NAMES for c in own if own[c] == d}


def grid(results: Results, metric: str) -> dict[tuple[str, str], np.ndarray]:
    """(sampler in training, decoding in use) -> seeds."""
    cells = {
        (row, name): measure(results, c, metric, d) for row, c in rows(results).items() for d, name in NAMES.items()
    }
    return {k: v for k, v in cells.items() if v is not None}


def figures(results: Results) -> Iterator[tuple[str, str, Figure]]:
    grids = {m: grid(results, m) for m in ("gain:score", "generation_log_perplexity", "distinct_2")}
    yield "heat", "Trained with, decoded with", heat.heat(results, grids)


def headline(results: Results) -> list[Compared]:
    found = []
    for metric in ("gain:score", "generation_log_perplexity", "distinct_2"):
        cells = grid(results, metric)
        names = [n for n in rows(results) if all((row, n) in cells for row in rows(results))]
        if len(names) > 1:
            same = np.mean([cells[n, n] for n in names], axis=0)
            other = np.mean([cells[a, b] for a in names for b in names if a != b], axis=0)
            found.append(Compared("Matched − mismatched", metric, paired.one_sample(same - other)))
    pairs = [
        Pair(f"{row} in training − ancestral", c, rows(results)["ancestral"])
        for row, c in list(rows(results).items())[1:]
    ]
    return found + compare(results, pairs, ("score", "generation_log_perplexity"))


def texts(results: Results, world: str) -> list[str | None]:
    return [c for c in (untrained(results), *rows(results).values()) if c][:4]
