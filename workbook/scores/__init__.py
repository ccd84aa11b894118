"""Metrics of texts in the manner of ``evaluate``: a folder each, loaded from here without a hub or a network.

    scores.load("distinct", n=1).compute(predictions=texts)            # {"distinct": ...}
    scores.combine(["distinct", "repetition", "words"]).compute(predictions=texts)
    scores.load("bleu").compute(predictions=texts, references=[[...], ...])

A further one is a folder ``<name>/<name>.py`` with a subclass of ``text.Metric`` (of responses alone) or of
``evaluate.Metric``. The formulas are functions of ``rlnlp.metrics``; BLEU and ROUGE are sacrebleu's and rouge-score's.

A ``family.Family`` (rouge_all, rouge_l_max, translation, meteor, meteor_stem, cider, parent, bertscore, coverage,
copied, consistency, intent, sentiment, conditional_entropy) has a record of each of its scores besides, with a value
for every example, so that ``workbook.grue.scores`` makes rewards of them. A further score there is a function and its
record.
"""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent
NAMES = sorted(file.stem for file in FOLDER.glob("*/*.py") if file.stem == file.parent.name)


def load(name: str, **settings):
    """An ``evaluate.Metric``; settings: of its function (n, window, ...). Raises ``ValueError`` for an unknown name."""
    import evaluate

    if name not in NAMES:
        raise ValueError(f"scores: expected one of {NAMES}, got {name!r}")
    # keep_in_memory: nothing is written into a cache that another process may use
    return evaluate.load(str(FOLDER / name), keep_in_memory=True, **settings)


def combine(names: list[str]):
    """Several at their usual settings, computed together: one dict with the value of each."""
    import evaluate

    return evaluate.combine([load(name) for name in names])
