"""CNN/DailyMail: a news article to its highlights (See et al. 2017, arXiv:1704.04368), version 3.0.0.

Prompt: "summarize: " article, the prefix that T5 was trained with (the original writes it with a capital S). The
reference is the highlights as they are, a line each: what ROUGE-Lsum takes for sentences.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

from workbook.grue.example import Decode, Example, Published, Task
from workbook.grue.published import NATURALNESS, settings, table
from workbook.grue.rows import column, distinct, each, references, source, truth
from workbook.grue.world import cnn_dailymail as world

# titles and the like, after which Punkt is not to end a sentence; lower case, without the last dot
ABBREVIATIONS = {"mr", "mrs", "ms", "dr", "prof", "gov", "sen", "rep", "gen", "lt", "sgt", "st", "jr", "sr", "no", "vs"}
ABBREVIATIONS |= {"u.s", "u.k", "u.n", "a.m", "p.m", "jan", "feb", "aug", "sept", "oct", "nov", "dec"}


def read(rows: Sequence[Mapping]) -> list[Example]:
    """An example a row. Raises: RowsError."""
    return distinct(each(rows, _example))


def _example(row: Mapping, place: int) -> list[Example]:
    article = source(row, "article")
    example = Example(
        id=column(row, "id", str) or f"row-{place}",
        before="summarize: ",
        body=article,
        after="",
        references=references([column(row, "highlights", str)]),
        source=article,
        meta=truth(world.facts(row)),
    )
    return [example]


@functools.cache
def _splitter():
    """nltk's Punkt with the abbreviations above: no trained model, nothing to download."""
    from nltk.tokenize.punkt import PunktParameters, PunktSentenceTokenizer

    parameters = PunktParameters()
    parameters.abbrev_types = set(ABBREVIATIONS)
    return PunktSentenceTokenizer(parameters)


def lead(example: Example, sentences: int) -> str:
    """The first sentences of the article."""
    return " ".join(_splitter().tokenize(example.source)[:sentences])


COLUMNS = f"rouge_1 rouge_2 rouge_l rouge_lsum meteor bleu_words bertscore {' '.join(NATURALNESS)}"
SETTINGS = settings(
    rl=dict(total_tokens=512_000, kl_coef=0.001),
    sup_rl=dict(total_tokens=256_000, kl_coef=0.01),
    supervised=dict(batch=16, epochs=2, learning_rate=1e-4, schedule="cosine", weight_decay=0.1),
    update_tokens=5120,
    learning_rate=2e-6,
    entropy_coef=0.0,
    target_kl=0.2,
    top_k=(50, 100),
    mask_p=0.9,
    sync=(10, 20, 30),
    reward="meteor",
)
TEST = {
    "zero_shot": "0.372 0.145 0.247 0.311 0.256 0.077 0.864 0.725 0.061 0.414 10.285 19113 55",
    "supervised": "0.411 0.177 0.276 0.343 0.309 0.108 0.876 0.727 0.057 0.401 10.459 21096 68",
    "ppo": "0.408 0.178 0.276 0.342 0.301 0.109 0.873 0.765 0.060 0.447 10.699 20528 61",
    "nlpo": "0.405 0.180 0.277 0.343 0.292 0.108 0.872 0.772 0.064 0.471 10.802 20212 56",
    "sup_ppo": "0.426 0.194 0.293 0.361 0.316 0.125 0.880 0.741 0.059 0.420 10.532 20395 63",
    "sup_nlpo": "0.429 0.194 0.293 0.361 0.319 0.124 0.880 0.745 0.059 0.422 10.574 20358 63",
}

TASK = Task(
    name="cnn_dailymail",
    title="CNN/DailyMail: summaries",
    hub="abisee/cnn_dailymail",
    config="3.0.0",
    licence="Apache-2.0 (the hub's files); the articles are their publishers'",
    mirror=("cnn_dailymail/3.0.0",),
    splits={"train": "train", "validation": "validation", "test": "test"},
    read=read,
    rows=world.rows,
    judge=world.judge,
    trivial={"lead-3": functools.partial(lead, sentences=3), "lead-2": functools.partial(lead, sentences=2)},
    reward={"meteor_stem": 1.0},
    metrics=("meteor_stem", "rouge_1", "rouge_2", "rouge_l", "rouge_lsum", "bleu_words", "bertscore", *NATURALNESS),
    prompt_tokens=512,
    response_tokens=100,
    decode=Decode(max_new_tokens=100, min_new_tokens=50, sample=True, temperature=0.7),
    published=Published(SETTINGS, table(COLUMNS, TEST), "v2, Tables 16 and 17, METEOR as reward", "test"),
)
