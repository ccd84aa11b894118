"""The worked examples of docs/use/write_your_own.md do what it says: they are taken from its text and run."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path

import pytest
import torch

from rlnlp import samplers
from rlnlp.brought import check_function
from rlnlp.rollout import sample
from rlnlp.scoring import evaluate_reward
from rlnlp.types import Sampling
from tests.tiny import EOS, MAKE, PAD, prompts
from workbook.runs import algorithms, checks
from workbook.texts import data

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs/use/write_your_own.md").read_text(encoding="utf-8")
TARGET = 7


def example(name: str) -> dict:
    """The names that the page's code block of a file defines; the block opens with a comment that names the file."""
    found = re.findall(rf"```python\n# {re.escape(name)}\b.*?```", PAGE, re.DOTALL)
    assert len(found) == 1, f"the page has {len(found)} examples of {name}"
    module = types.ModuleType(f"readme_{Path(name).stem}")
    sys.modules[module.__name__] = module  # pydantic looks for the module of a class
    exec(compile(found[0].removeprefix("```python\n").removesuffix("```"), name, "exec"), module.__dict__)
    return module.__dict__


def test_your_own_reward():
    score = example("my_reward.py")["score"]
    check_function(score, prompts(2))
    scores, parts = evaluate_reward(score, prompts(3), ["short", "a longer one", ""])
    assert scores.tolist() == pytest.approx([1 / 24, 3 / 24, 0]) and parts["words"].tolist() == [1, 3, 0]


def test_your_own_sampler(monkeypatch):
    monkeypatch.setattr(samplers, "RULES", dict(samplers.RULES))
    top_a = example("my_sampler.py")["top_a"]
    logits = torch.tensor([[0.5, 0.3, 0.15, 0.05], [0.25, 0.25, 0.25, 0.25]]).log()
    assert top_a(0.8)(logits)[1].tolist() == [[True, True, False, False], [True] * 4]  # above .8 x .25 and .8 x .0625
    drawn = sample(
        MAKE["causal"](),
        prompts(4),
        Sampling(EOS, PAD, 5),
        torch.Generator().manual_seed(0),
        samplers.named("top_a", 0.8),
    )
    assert drawn.allowed is not None and not drawn.allowed.unpack(drawn.mask).all()


@pytest.mark.parametrize("kind", list(MAKE))
def test_your_own_learner(kind, monkeypatch):
    module = types.SimpleNamespace(**example("rlnlp/learners/weighted.py"))
    monkeypatch.setitem(sys.modules, "rlnlp.learners.weighted", module)
    known = {**algorithms.files(), "weighted": "rlnlp.learners.weighted"}
    monkeypatch.setattr(algorithms, "files", lambda: known)
    settings = checks.load(Path(__file__).resolve().parent.parent / "params.yaml").algorithm_config(
        "weighted",
        updates=12,
        episodes_per_update=32,
        min_new_tokens=0,
        max_new_tokens=6,
        learning_rate=3e-3,
        kl_coef=0.05,
    )

    def score(rollout):
        return ((rollout.responses == TARGET) & rollout.mask).sum(1) / rollout.mask.sum(1), {}

    state = module.init(MAKE[kind](), settings, 1)
    scores = [m["objective/score"] for m in module.train(state, prompts(64), score, settings)]
    assert sum(scores[-3:]) / 3 > 0.1 + sum(scores[:3]) / 3


def test_your_own_task(tmp_path, monkeypatch):
    task = example("workbook/texts/tasks/weather.py")["TASK"]
    rows = task.load(types.SimpleNamespace(task=types.SimpleNamespace(prompt_tokens=3)), 1)
    assert rows == task.load(types.SimpleNamespace(task=types.SimpleNamespace(prompt_tokens=3)), 1)
    assert rows != task.load(types.SimpleNamespace(task=types.SimpleNamespace(prompt_tokens=3)), 2)
    for part in data.PARTS:
        assert rows[part], part
