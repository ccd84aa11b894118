"""What the translation tasks share: rows of sentence pairs to prompts, settings, scores. No task stands here.

Prompt: "translate English to German: " sentence, the prefix that T5 was trained with. No ROUGE and no METEOR: their
stemmer is English, and rouge-score's tokens break German words at every umlaut. The paper prints both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from workbook.grue.example import Decode, Example
from workbook.grue.published import NATURALNESS, settings
from workbook.grue.rows import column, each, references, source, truth
from workbook.grue.world import translation as world

SCORES = ("sacrebleu", "bleu_words", "chrf", "ter", "bertscore")
METRICS = (*SCORES, *NATURALNESS)
COLUMNS = " ".join(("bleu_words", "sacrebleu", "chrf", "ter", "bertscore", *NATURALNESS))
SETTINGS = settings(
    rl=dict(update_tokens=5120, learning_rate=1e-6),
    sup_rl=dict(update_tokens=2560, learning_rate=5e-7),
    supervised=dict(batch=64, epochs=5, learning_rate=1e-5, schedule="constant", weight_decay=0.1),
    total_tokens=256_000,
    entropy_coef=0.0,
    kl_coef=0.001,
    target_kl=0.2,
    top_k=10,
    mask_p=0.5,
    sync=20,
    reward="sacrebleu",
)
DECODE = Decode(max_new_tokens=128, beams=4, length_penalty=0.6)
LENGTH = 128
SPLITS = {"train": "train", "validation": "validation", "test": "test"}


def read(rows: Sequence[Mapping]) -> list[Example]:
    """An example a row, named by its place: the data sets have no ids. Raises: RowsError."""
    return each(rows, _example)


def _example(row: Mapping, place: int) -> list[Example]:
    pair = row if "translation" not in row else column(row, "translation", Mapping)  # some copies have the two columns
    english = source(pair, "en")
    example = Example(
        id=f"pair-{place}",
        before="translate English to German: ",
        body=english,
        after="",
        references=references([column(pair, "de", str)]),
        source=english,
        meta=truth(world.facts({"translation": pair})),
    )
    return [example]


def copied(example: Example) -> str:
    """The English sentence."""
    return example.source


def another(example: Example) -> str:
    """A second translation of a generated sentence."""
    return world.another(example.source, 1)


TRIVIAL = {"source": copied}
