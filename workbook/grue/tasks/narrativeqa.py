"""NarrativeQA: a question on a story's summary to a short answer (Kocisky et al. 2018, arXiv:1712.07040).

Prompt: question, a literal "\\n", passage, all in lower case, as UnifiedQA and the original have it. The question comes
first and is always whole; of the passage the end is cut. References are all answers of the row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from workbook.grue.example import Decode, Example, Published, Task
from workbook.grue.published import NATURALNESS, settings, table
from workbook.grue.rows import column, distinct, each, references, source, truth
from workbook.grue.world import narrativeqa as world

WORDS = 5  # of the passage as an answer: about as many as answers have


def read(rows: Sequence[Mapping]) -> list[Example]:
    """An example a row, named by its document and how many of that document's questions stand before it; a question
    that is asked twice is kept twice. Raises: RowsError."""
    asked: Counter[str] = Counter()

    def one(row: Mapping, place: int) -> list[Example]:
        document = column(row, "document.id", str)
        example = _example(row, f"{document}-{asked[document]}")
        asked[document] += 1
        return [example]

    return distinct(each(rows, one))


def _example(row: Mapping, name: str) -> Example:
    question, passage = source(row, "question.text"), source(row, "document.summary.text")
    answers = [column(answer, "text", str) for answer in column(row, "answers", list)]
    return Example(
        id=name,
        before=f"{question.lower()} \\n ",
        body=passage.lower(),
        after="",
        references=references(answers),
        source=passage,
        meta={"question": question, **truth(world.facts(row))},
    )


def constant(example: Example) -> str:
    """One place, whatever is asked."""
    return "the park"


def article(example: Example) -> str:
    """The word that most answers hold."""
    return "the"


def first_words(example: Example) -> str:
    """How the passage begins."""
    return " ".join(example.source.split()[:WORDS])


ROUGE = "rouge_1 rouge_2 rouge_l rouge_lsum rouge_l_max_published"  # the last one is R-LMax
COLUMNS = f"{ROUGE} meteor bleu_words bertscore {' '.join(NATURALNESS)}"
SETTINGS = settings(
    rl=dict(update_tokens=5120, learning_rate=2e-6, target_kl=1.0),
    sup_rl=dict(update_tokens=2560, learning_rate=5e-7, target_kl=0.2),
    supervised=dict(model="UnifiedQA, which was trained on more than this task"),
    total_tokens=512_000,
    entropy_coef=0.0,
    kl_coef=0.001,
    top_k=50,
    mask_p=0.9,
    sync=20,
    reward="rouge_l_max_published",
)
TEST = {
    "zero_shot": "0.095 0.022 0.084 0.084 0.117 0.095 0.009 0.835 0.415 0.026 0.097 9.641 1880 31.688",
    "supervised": "0.378 0.190 0.367 0.367 0.581 0.099 0.209 0.931 0.609 0.156 0.534 9.807 3250 4.923",
    "ppo": "0.099 0.025 0.087 0.087 0.122 0.099 0.01 0.835 0.439 0.029 0.119 9.653 2292 31.479",
    "nlpo": "0.102 0.026 0.089 0.089 0.124 0.1 0.01 0.837 0.445 0.029 0.118 9.776 2181 31.555",
    "sup_ppo": "0.368 0.18 0.36 0.36 0.585 0.083 0.239 0.931 0.641 0.187 0.576 10.201 3287 3.913",
    "sup_nlpo": "0.381 0.194 0.383 0.383 0.588 0.093 0.243 0.932 0.645 0.187 0.59 10.2 3287 3.889",
}

TASK = Task(
    name="narrativeqa",
    title="NarrativeQA: questions on a story",
    hub="deepmind/narrativeqa",
    config="",
    licence="Apache-2.0",
    mirror=("narrativeqa",),
    splits={"train": "train", "validation": "validation", "test": "test"},
    read=read,
    rows=world.rows,
    judge=world.judge,
    trivial={"the park": constant, "the": article, "first words": first_words},
    reward={"rouge_l_max_published": 1.0},
    metrics=(
        *("rouge_l_max_published", "rouge_l_max", "rouge_1", "rouge_2", "rouge_l", "rouge_lsum"),
        *("meteor_stem", "bleu_words", "bertscore"),
        *NATURALNESS,
    ),
    prompt_tokens=512,
    response_tokens=50,
    decode=Decode(max_new_tokens=50, beams=4),
    published=Published(SETTINGS, table(COLUMNS, TEST), "v2, Tables 27 and 28, ROUGE-L-max as reward", "test"),
)
