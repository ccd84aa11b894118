"""A small language model of film reviews and a reward, trained once and then kept: what lessons and assignments start
from.

The first one that asks trains them (half a minute); the others find them in ``FOLDER``: that of the
variable RLNLP_LESSONS, else ``.scratch/lessons`` of the repository, else (the package alone is installed) the user's
cache.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from rlnlp import encoding, pretrained, rewards, scoring
from rlnlp.types import Prompts
from workbook.draws import training
from workbook.draws.classifier import train_classifier
from workbook.draws.language_model import train_language_model
from workbook.draws.shapes import LanguageModel, RewardModel
from workbook.draws.tokenizer import train_tokenizer
from workbook.store.fingerprint import fingerprint_inputs
from workbook.store.identity import root_of
from workbook.store.once import once
from workbook.texts import corpus

ROOT = Path(__file__).resolve().parents[2]
_HERE = ROOT / ".scratch" if (ROOT / "dvc.yaml").is_file() else Path.home() / ".cache" / "rlnlp"
FOLDER = Path(os.environ.get("RLNLP_LESSONS") or _HERE / "lessons")
POLICY = {
    "layers": 2,
    "width": 96,
    "heads": 4,
    "context": 64,
    "tokenizer": "word",
    "vocabulary": 0,
    "batch_size": 32,
    "learning_rate": 6e-3,
}
REWARD = {"layers": 1, "width": 32, "heads": 2, "epochs": 2, "batch_size": 32, "learning_rate": 2e-3, "max_tokens": 64}
PROMPT_WORDS, PROMPTS, RESPONSE_TOKENS = 10, 256, 24


@dataclass(frozen=True)
class Start:
    """A language model before any reinforcement learning, and what it takes to train it further."""

    tokenizer: PreTrainedTokenizerBase  # one token per word
    policy: PreTrainedModel  # two-layer GPT-2; copy.deepcopy it before training
    reward: scoring.Reward  # a classifier's P(positive) of prompt + response, which a policy may learn to fool
    prompts: Prompts  # the first ten words of reviews that neither model has seen
    texts: list[str]  # the reviews that both were trained on
    labels: list[int]  # 1 positive, 0 negative


def start(reviews: int = 2000, steps: int = 200, folder: str | Path = FOLDER) -> Start:
    """The models of these sizes, from `folder` if they are there, else trained (about half a minute) and put there.

    reviews: generated film reviews to learn from; steps: of language-model training (below 150 it babbles).
    The same sizes give the same weights on the same machine. Raises ValueError for sizes below 1.
    """
    if reviews < 1 or steps < 1:
        raise ValueError(f"expected at least one review and one step, got reviews {reviews}, steps {steps}")
    written = corpus.generate(0, "quickstart", reviews)
    texts, labels = [r.text for r in written], [r.label for r in written]
    tokenizer = train_tokenizer()
    models_of = LanguageModel(**POLICY, steps=steps), RewardModel(**REWARD)
    sizes = {"reviews": reviews, "policy": models_of[0], "reward": models_of[1]}
    inputs = fingerprint_inputs(sizes, code=[root_of(start)])

    def make(fresh: Path, states: Path) -> None:
        print("training a small language model and a reward, once: about half a minute", flush=True)
        policy, _ = train_language_model(texts, tokenizer, models_of[0], seed=0)
        classifier, _ = train_classifier(texts, labels, tokenizer, models_of[1], seed=0)
        training.save(fresh / "policy", policy, tokenizer, "The policy that lessons start from.\n")
        training.save(fresh / "reward", classifier, tokenizer, "The reward that lessons use.\n")

    home = once(folder, inputs, make, wait_s=600)
    policy, _ = pretrained.load(home / "policy")
    openings = [" ".join(r.text.split()[:PROMPT_WORDS]) for r in corpus.generate(0, "quickstart prompts", PROMPTS)]
    prompts = encoding.encode_prompts(openings, tokenizer, max_prompt_tokens=PROMPT_WORDS)
    return Start(
        tokenizer,
        policy,
        rewards.classifier_reward(str(home / "reward"), tokenizer, label=1),
        prompts,
        texts,
        labels,
    )
