"""CommonGen: a sentence of everyday life in which all given concepts occur (Lin et al. 2020, arXiv:1911.03705).

The rows of one ``concept_set_idx`` are one example with all their targets as references (the original takes one of
them). An empty target is a hidden reference, as in the hub's test split. Prompt as in the original's settings:
"generate a sentence with: " concepts "."
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from workbook.grue.example import Decode, Example, Published, Task
from workbook.grue.published import NATURALNESS, settings, table
from workbook.grue.rows import RowsError, clean, column, each, references, truth
from workbook.grue.world import common_gen as world
from workbook.texts.hub import DataError


def read(rows: Sequence[Mapping]) -> list[Example]:
    """An example for each concept set, in the order of their first rows. Raises: RowsError."""
    sets: dict[int, list[tuple[int, Mapping]]] = {}
    for number, place, row in each(rows, _row):
        sets.setdefault(number, []).append((place, row))
    wrong = {
        place: f"concept set {number}: expected the concepts {list(same[0][1]['concepts'])} of its other rows, "
        f"found {list(row['concepts'])}"
        for number, same in sets.items()
        for place, row in same
        if list(row["concepts"]) != list(same[0][1]["concepts"])
    }
    if wrong:
        raise RowsError(wrong)
    return [_example(number, [row for _, row in same]) for number, same in sets.items()]


def _row(row: Mapping, place: int) -> list[tuple[int, int, Mapping]]:
    concepts = column(row, "concepts", list)
    if not concepts or not all(isinstance(concept, str) and clean(concept) for concept in concepts):
        raise DataError(f"concepts: expected words, found {concepts}")
    column(row, "target", str)
    return [(column(row, "concept_set_idx", int), place, row)]


def _example(number: int, rows: Sequence[Mapping]) -> Example:
    concepts = tuple(clean(concept) for concept in rows[0]["concepts"])
    words = " ".join(concepts)
    return Example(
        id=f"common_gen-{number}",
        before="generate a sentence with: ",
        body=words,
        after=".",
        references=references(row["target"] for row in rows),
        source=words,
        meta={"concepts": concepts, **truth(world.facts(rows[0]))},
    )


def a_the_in(example: Example) -> str:
    """A noun phrase of all concepts, placed in the first one."""
    concepts = example.meta["concepts"]
    return f"a {' the '.join(concepts)} in the {concepts[0]}."


def the_the(example: Example) -> str:
    """An article before each concept."""
    return " ".join(f"the {concept}" for concept in example.meta["concepts"]) + "."


def concepts_alone(example: Example) -> str:
    """The concepts as they were given."""
    return example.source


COLUMNS = f"rouge_1 rouge_2 rouge_l rouge_lsum meteor bleu_words bertscore cider {' '.join(NATURALNESS)}"
SETTINGS = settings(
    rl=dict(total_tokens=256_000, kl_coef=0.001, target_kl=2.0),
    sup_rl=dict(total_tokens=128_000, kl_coef=0.01, target_kl=1.0),
    supervised=dict(batch=8, epochs=4, learning_rate=1e-5, schedule="cosine", weight_decay=0.01),
    update_tokens=1280,
    learning_rate=2e-6,
    entropy_coef=0.01,
    top_k=50,
    mask_p=0.9,
    sync=20,
    reward="meteor; -1 where the prompt is copied, without supervision only",
)
DEVELOPMENT = {
    "zero_shot": "0.415 0.016 0.270 0.270 0.179 0.0 0.854 0.640 0.430 0.090 0.335 5.998 345 8.797",
    "supervised": "0.503 0.175 0.411 0.411 0.309 0.069 0.929 1.381 0.509 0.101 0.339 6.531 503.600 10.934",
    "ppo": "0.411 0.090 0.304 0.304 0.210 0.029 0.875 0.638 0.547 0.147 0.529 7.62 1039.4 13.660",
    "nlpo": "0.389 0.1 0.293 0.293 0.226 0.035 0.832 0.691 0.503 0.132 0.471 7.146 648.05 11.062",
    "sup_ppo": "0.540 0.204 0.436 0.436 0.329 0.076 0.930 1.474 0.514 0.105 0.378 6.631 507.0 10.551",
    "sup_nlpo": "0.537 0.201 0.431 0.431 0.326 0.074 0.93 1.464 0.516 0.106 0.377 6.634 506.04 10.453",
}
HELD_OUT = {  # scored by the data set's owners, with their own METEOR and CIDEr: another scale
    "zero_shot": "0.016 0.264 0.203 6.200 91.070",
    "supervised": "0.215 0.438 0.321 16.385 94.476",
    "ppo": "0.091 0.308 0.220 7.251 79.718",
    "nlpo": "0.110 0.332 0.235 8.669 82.007",
    "sup_ppo": "0.234 0.450 0.327 16.797 97.690",
    "sup_nlpo": "0.231 0.449 0.326 16.574 97.374",
}

TASK = Task(
    name="common_gen",
    title="CommonGen: concepts to a sentence",
    hub="allenai/common_gen",
    config="",
    licence="MIT",
    mirror=("common_gen",),
    splits={"train": "train", "validation": "validation", "test": "test"},
    read=read,
    rows=world.rows,
    judge=world.judge,
    trivial={"a X the Y in the X": a_the_in, "the X the Y": the_the, "concepts": concepts_alone},
    reward={"meteor_stem": 1.0},
    metrics=(
        *(
            "meteor_stem",
            "rouge_1",
            "rouge_2",
            "rouge_l",
            "rouge_lsum",
            "bleu_words",
            "cider",
            "coverage",
            "copied",
            "bertscore",
        ),
        *NATURALNESS,
    ),
    prompt_tokens=20,
    response_tokens=20,
    decode=Decode(max_new_tokens=20, min_new_tokens=5, beams=5),
    published=Published(SETTINGS, table(COLUMNS, DEVELOPMENT), "v2, Tables 11 and 13, METEOR as reward", "validation"),
    more=(
        Published(
            SETTINGS,
            table("rouge_2 rouge_l meteor cider coverage", HELD_OUT),
            "v2, Table 12, METEOR as reward; coverage in percent",
            "test (hidden references)",
        ),
    ),
)
