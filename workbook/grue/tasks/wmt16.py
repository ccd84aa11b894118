"""WMT-16 news translation, English to German (Bojar et al. 2016)."""

from __future__ import annotations

from workbook.grue.example import Published, Task
from workbook.grue.published import table
from workbook.grue.tasks import translation
from workbook.grue.world import translation as world

TEST = {
    "zero_shot": "0.294 0.348 0.613 0.543 0.882 0.732 0.193 0.675 10.100 7290 20.533",
    "supervised": "0.294 0.350 0.617 0.540 0.882 0.729 0.190 0.669 10.048 7205 20.622",
    "ppo": "0.294 0.348 0.614 0.539 0.882 0.738 0.198 0.687 10.166 7503 20.375",
    "nlpo": "0.297 0.352 0.615 0.542 0.882 0.735 0.193 0.68 10.125 7395 20.672",
    "sup_ppo": "0.298 0.355 0.620 0.533 0.883 0.732 0.191 0.674 10.080 7222 20.605",
    "sup_nlpo": "0.297 0.355 0.621 0.533 0.888 0.734 0.191 0.675 10.089 7308 20.686",
}

TASK = Task(
    name="wmt16",
    title="WMT-16: English to German news",
    hub="wmt/wmt16",
    config="de-en",
    licence="that of each of its corpora; research use",
    mirror=("wmt16/de-en",),
    splits=translation.SPLITS,
    read=translation.read,
    rows=world.rows,
    judge=world.judge,
    trivial=translation.TRIVIAL,
    another=translation.another,
    reward={"sacrebleu": 1.0},
    metrics=translation.METRICS,
    prompt_tokens=translation.LENGTH,
    response_tokens=translation.LENGTH,
    decode=translation.DECODE,
    published=Published(
        translation.SETTINGS,
        table(translation.COLUMNS, TEST),
        "v2, Tables 29, 30 and 31, SacreBLEU as reward",
        "test",
    ),
    language="de",
)
