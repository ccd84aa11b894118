"""Reviews, generated: those of ``workbook.texts.corpus``, whose grammar judges them. Their words are none of the
world's: a raw model that is to continue them has to read them too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from workbook.grue.example import Example
from workbook.texts import corpus

from .scenes import checked


def rows(draw: int, part: str, n: int) -> list[dict]:
    """n rows: text, label (0 negative, 1 positive). Each part is a stream of its own."""
    return [{"text": e.text, "label": e.label} for e in corpus.generate(draw, f"grue {checked(part)}", n)]


def facts(row: Mapping) -> dict | None:
    """The label; None for a text that is not of the grammar."""
    return {"label": int(row["label"])} if corpus.judge_parts([row["text"]])["grammatical"][0] == 1.0 else None


def judge(responses: Sequence[str], examples: Sequence[Example]) -> dict[str, list[float]]:
    """grammar: share of the sentences that are of the grammar. judge: their mean, 1 for a positive one, 0.5 for plot, 0
    for a negative or an ungrammatical one, the one that the prompt began among them.

    Raises ``ValueError`` where an example has no facts: a real row.
    """
    without = [example.id for example in examples if "facts" not in example.meta]
    if without:
        raise ValueError(f"judge: expected generated examples, with meta['facts']; {without[0]!r} has none")
    found = corpus.judge_parts(list(responses), [example.body for example in examples])
    return {"judge": found["score"].tolist(), "grammar": found["grammatical"].tolist()}
