"""IMDB: the second half of a film review, to be a positive one (Maas et al. 2011).

Prompt: the first half of the review's words, of which the beginning is cut; reference: the second half. There is no
validation split: its reviews are the unlabelled ones. A text of fewer than four words is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

from workbook.grue.example import Decode, Example, Published, Task
from workbook.grue.published import NATURALNESS, settings, table
from workbook.grue.rows import column, each, references, source, truth
from workbook.grue.world import imdb as world
from workbook.texts.hub import DataError

FEWEST = 4  # words of a review
BREAK = "<br />"  # as the files have it


def read(rows: Sequence[Mapping]) -> list[Example]:
    """An example a row, named by its place: the data set has no ids. Raises: RowsError.

    The files are sorted by label, their first thousands all negative: those are shuffled, the same way in each copy.
    """
    found = each(rows, _example)
    if not any("facts" in example.meta for example in found):  # a generated world is not sorted
        Random("films, not by label").shuffle(found)
    return found


def _example(row: Mapping, place: int) -> list[Example]:
    words = source(row, "text").replace(BREAK, " ").split()
    label = column(row, "label", int)
    if label not in (-1, 0, 1):
        raise DataError(f"label: expected 0 (negative), 1 (positive) or -1 (not said), found {label}")
    if len(words) < FEWEST:
        raise DataError(f"text: expected {FEWEST} words or more, found {len(words)}")
    half = len(words) // 2
    begun = " ".join(words[:half])
    example = Example(
        id=f"review-{place}",
        before="",
        body=begun,
        after="",
        references=references([" ".join(words[half:])]),
        source=begun,
        meta={"label": label, **truth(world.facts(row))},
        shorten="left",
    )
    return [example]


def praise(example: Example) -> str:
    """The same praise, whatever was written."""
    return "i loved this film . it is a great film ."


def again(example: Example) -> str:
    """What the prompt said."""
    return example.source


SETTINGS = settings(
    rl=dict(total_tokens=64_000),
    sup_rl=dict(),
    supervised=dict(batch=64, epochs=10, learning_rate=1e-5, data="positive reviews"),
    update_tokens=1280,
    learning_rate=1e-6,
    kl_coef=0.1,
    target_kl=(0.5, 1.0),
    top_k=50,
    mask_p=0.9,
    sync=5,
    reward="P(positive) of DistilBERT on prompt and continuation",
)
TEST = {
    "zero_shot": "0.489",
    "supervised": "0.539",
    "ppo": "0.605",
    "nlpo": "0.637",
    "sup_ppo": "0.617",
    "sup_nlpo": "0.645",
}

TASK = Task(
    name="imdb",
    title="IMDB: going on with a review",
    hub="stanfordnlp/imdb",
    config="",
    licence="none stated; research use",
    mirror=("imdb",),
    splits={"train": "train", "validation": "unsupervised", "test": "test"},
    read=read,
    rows=world.rows,
    judge=world.judge,
    trivial={"praise": praise, "the prompt again": again},
    reward={"sentiment": 1.0},
    metrics=("sentiment", "copied", *NATURALNESS),
    prompt_tokens=64,
    response_tokens=48,
    decode=Decode(max_new_tokens=48, min_new_tokens=48, sample=True, top_k=50),
    published=Published(SETTINGS, table("sentiment", TEST), "v2, Tables 3 and 5", "test"),
    causal=True,
)
