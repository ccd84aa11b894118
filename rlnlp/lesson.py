"""What a lesson starts from: a small language model of film reviews and a reward, trained once and then kept.

The first lesson that asks trains them (half a minute); the others, and the assignments, find them in ``FOLDER``: that of the
variable RLNLP_LESSONS, else ``.scratch/lessons`` of the repository, else (the package alone is installed) the user's cache.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from . import classify, config, corpus, data, models, pretrain, rewards
from .runs import fingerprint_inputs, keyed_folder, package_files, writer_lock
from .types import Prompts

ROOT = Path(__file__).resolve().parent.parent
REPORTS = ROOT / "reports"
_HERE = ROOT / ".scratch" if (ROOT / "dvc.yaml").is_file() else Path.home() / ".cache" / "rlnlp"
FOLDER = Path(os.environ.get("RLNLP_LESSONS") or _HERE / "lessons")
POLICY = {"layers": 2, "width": 96, "heads": 4, "context": 64, "tokenizer": "word", "vocabulary": 0, "batch_size": 32, "learning_rate": 6e-3}
REWARD = {"layers": 1, "width": 32, "heads": 2, "epochs": 2, "batch_size": 32, "learning_rate": 2e-3, "max_tokens": 64}
PROMPT_WORDS, PROMPTS, RESPONSE_TOKENS = 10, 256, 24


@dataclass(frozen=True)
class Start:
    """A language model before any reinforcement learning, and what it takes to train it further."""

    tokenizer: PreTrainedTokenizerBase  # one token per word
    policy: PreTrainedModel  # two-layer GPT-2; copy.deepcopy it before training
    reward: rewards.Reward  # a classifier's P(positive) of prompt + response, which a policy may learn to fool
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
    tokenizer = pretrain.train_tokenizer()
    shapes = config.LanguageModel(**POLICY, steps=steps), config.RewardModel(**REWARD)
    inputs = fingerprint_inputs({"reviews": reviews, "policy": shapes[0], "reward": shapes[1]}, package_files("rlnlp.lesson"))
    home = keyed_folder(folder, inputs)
    with writer_lock(home, wait_s=600):
        if not (home / "models").is_dir():
            print("training a small language model and a reward, once: about half a minute", flush=True)
            fresh = home / "unfinished"
            shutil.rmtree(fresh, ignore_errors=True)
            policy, _ = pretrain.train_language_model(texts, tokenizer, shapes[0], seed=0)
            classifier, _ = classify.train_classifier(texts, labels, tokenizer, shapes[1], seed=0)
            pretrain.save(fresh / "policy", policy, tokenizer, "The policy that lessons start from.\n")
            pretrain.save(fresh / "reward", classifier, tokenizer, "The reward that lessons use.\n")
            fresh.rename(home / "models")
    policy, tokenizer = models.load(home / "models" / "policy")
    openings = [" ".join(r.text.split()[:PROMPT_WORDS]) for r in corpus.generate(0, "quickstart prompts", PROMPTS)]
    prompts = data.encode_prompts(openings, tokenizer, max_prompt_tokens=PROMPT_WORDS)
    return Start(tokenizer, policy, rewards.classifier_reward(str(home / "models" / "reward"), tokenizer, label=1), prompts, texts, labels)


def verdicts(*claims: str, profiles: Sequence[str] = ("mini", "full", "imdb")) -> pd.DataFrame:
    """What the committed ledger says today: a row per claim (such as "P01"), its text and the verdict of each profile.

    Raises ValueError for a claim or a profile that the ledger does not have, the nearest named.
    """
    ledger = pd.read_csv(REPORTS / "claims.csv", index_col="id")
    for name, known in [(claim, ledger.index) for claim in claims] + [(profile, ledger.columns) for profile in profiles]:
        if name not in known:
            raise ValueError(f"the ledger has no {name!r}{data.nearest(name, known)}")
    return ledger.loc[list(claims), ["claim", *profiles]]
