"""IWSLT-17 translation of talks, English to German (Cettolo et al. 2017)."""

from __future__ import annotations

import functools

from workbook.grue.example import Published, Task
from workbook.grue.published import table
from workbook.grue.tasks import translation
from workbook.grue.world import translation as world

TEST = {
    "zero_shot": "0.254 0.308 0.577 0.573 0.870 0.662 0.097 0.4700 9.276 8312 18.739",
    "supervised": "0.280 0.337 0.593 0.538 0.878 0.655 0.095 0.467 9.210 7970 18.440",
    "ppo": "0.243 0.296 0.575 0.583 0.869 0.657 0.095 0.464 9.230 8285 19.069",
    "nlpo": "0.245 0.299 0.578 0.578 0.87 0.656 0.094 0.463 9.207 8240 19.043",
    "sup_ppo": "0.277 0.332 0.596 0.542 0.877 0.654 0.094 0.461 9.176 8061 18.803",
    "sup_nlpo": "0.289 0.343 0.597 0.535 0.877 0.655 0.094 0.461 9.182 8073 18.777",
}

TASK = Task(
    name="iwslt2017",
    title="IWSLT-17: English to German talks",
    hub="IWSLT/iwslt2017",
    config="iwslt2017-de-en",
    licence="CC BY-NC-ND 4.0",
    mirror=("iwslt2017/iwslt2017-de-en", "iwslt2017/iwslt2017-en-de", "IWSLT/iwslt2017/iwslt2017-en-de"),
    splits=translation.SPLITS,
    read=translation.read,
    rows=functools.partial(world.rows, collection="iwslt2017"),
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
