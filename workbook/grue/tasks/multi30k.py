"""Multi30k: captions of pictures, English to German (Elliott et al. 2016, arXiv:1605.00459).

Not a task of the paper: short sentences, from which a small model learns to translate. Settings are those of the other
translation tasks; nothing was published for them.
"""

from __future__ import annotations

import functools

from workbook.grue.example import Published, Task
from workbook.grue.tasks import translation
from workbook.grue.world import translation as world

TASK = Task(
    name="multi30k",
    title="Multi30k: English to German captions",
    hub="bentrevett/multi30k",
    config="",
    licence="CC BY-NC-SA 4.0",
    mirror=("multi30k", "multi30k/de-en"),
    splits=translation.SPLITS,
    read=translation.read,
    rows=functools.partial(world.rows, collection="multi30k"),
    judge=world.judge,
    trivial=translation.TRIVIAL,
    another=translation.another,
    reward={"sacrebleu": 1.0},
    metrics=translation.METRICS,
    prompt_tokens=translation.LENGTH,
    response_tokens=translation.LENGTH,
    decode=translation.DECODE,
    published=Published(translation.SETTINGS, {}, "not in the paper; settings of its Table 29", "test"),
    language="de",
)
