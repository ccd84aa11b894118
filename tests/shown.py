"""What tests of widgets begin with: a tokenizer, a tiny policy, prompts and a score; what a person reads of HTML."""

from __future__ import annotations

import html
import re

import pytest

from workbook.draws.tokenizer import train_tokenizer

from . import tiny

SETTINGS = {"updates": 4, "episodes_per_update": 8, "max_new_tokens": 8, "kl_coef": 0.1, "learning_rate": 1e-3}


@pytest.fixture(scope="module", name="tokenizer")
def tokenizer_made():
    return train_tokenizer()


@pytest.fixture(scope="module", name="policy")
def policy_made(tokenizer):
    return tiny.gpt2(len(tokenizer))


@pytest.fixture(scope="module", name="prompts")
def prompts_made(tokenizer):
    return tiny.prompts(rows=8, vocabulary=len(tokenizer))


def score(rollout):
    return rollout.mask.sum(1).float() / 8, {}


def text(page: str) -> str:
    """What a person reads of some HTML."""
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page)).split())


def alts(page: str) -> list[str]:
    return [html.unescape(found) for found in re.findall(r'<img [^>]*alt="([^"]*)" src="data:image/png;base64,', page)]
