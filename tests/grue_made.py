"""A task of the benchmark that takes milliseconds, and settings for it."""

from __future__ import annotations

import dataclasses
import random

from workbook.grue.example import Decode, Example, Published, Task


def rows(draw, name, count):
    rng = random.Random(f"{draw} {name}")
    people, things = ("anna", "ben"), ("cup", "book", "park")
    return [{"who": rng.choice(people), "what": rng.choice(things), "at": i} for i in range(count)]


def read(given):
    made = []
    for row in given:
        who, what = row["who"], row["what"]
        answers = (f"{who} saw the {what} .", f"the {what} saw {who} .")[: 1 + row["at"] % 2]
        body = f"{who} {what}"
        made.append(Example(f"row-{row['at']}", "tell: ", body, ".", answers, body, {"who": row["who"], "facts": {}}))
    return made


def judge(responses, examples):
    return {"judge": [float(e.meta["who"] in text) for text, e in zip(responses, examples, strict=True)]}


def made_up(causal=False, **changes) -> Task:
    return dataclasses.replace(
        Task(
            name="made_up",
            title="Made up",
            hub="none/none",
            config="",
            licence="ours",
            splits={},
            read=read,
            rows=rows,
            judge=judge,
            trivial={},
            reward={"rouge_1": 1.0},
            metrics=("rouge_1", "bertscore", "cider", "words"),
            prompt_tokens=12,
            response_tokens=6,
            decode=Decode(max_new_tokens=20),
            causal=causal,
            published=Published({}, {}, "", ""),
        ),
        **changes,
    )


VALUES = {
    "seeds": [0, 1],
    "rows": {"train": 24, "supervised": 16, "validation": 8, "test": 10},
    "raw": {"layers": 1, "width": 32, "heads": 2, "steps": 6, "batch_size": 8, "texts": 16, "pairs": 16},
    "causal": {
        "layers": 1,
        "width": 32,
        "heads": 2,
        "context": 32,
        "tokenizer": "word",
        "vocabulary": 0,
        "steps": 6,
        "batch_size": 4,
        "learning_rate": 0.003,
    },
    "supervised": {"epochs": 3, "batch_size": 8, "learning_rate": 0.01},
    "learner": {"updates": 7, "episodes_per_update": 8, "epochs": 2, "minibatches": 2, "learning_rate": 0.003},
    "nlpo": {"mask_top_p": 0.9, "sync_every": 2},
    "evaluation": {"batch_size": 4, "samples": 3, "spread_prompts": 4, "spread_samples": 4},
    "tasks": ["made_up"],
    "conditions": ["zero_shot", "ppo", "nlpo", "supervised"],
    "continued": ["sup_ppo", "sup_nlpo"],
    "control_tasks": ["made_up"],
    "controls": ["sup_more", "sup_shuffled", "ppo_kl_0"],
    "overrides": {"made_up": {}},
}
