"""What the tasks' published settings and tables share (Ramamurthy et al. 2022, arXiv:2210.01241v2).

Numbers stand as they were printed: shares of 1 where nothing else is said. Their METEOR is that of nltk with WordNet,
which is ``meteor`` here and never ``meteor_stem``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# printed for every task; the value network is a copy of the start policy with a new scalar head
PPO = {
    "minibatch": 64,
    "epochs": 5,
    "gamma": 0.99,
    "lam": 0.95,
    "clip": 0.2,
    "value_coef": 0.5,
    "optimiser": "AdamW, constant rate",
}
# of responses alone: the columns of the paper's tables that we compute
NATURALNESS = ("msttr", "distinct1", "distinct2", "entropy1", "unique1", "words")
# of these printed columns our score of that name is the same function. The others differ in stems, tokens, the
# references that are read, the classifier, or what they are computed over. (The last one lacks py-rouge's list of
# irregular words: nine of a thousand real answers differ.)
ALIKE = ("parent", "chrf", "ter", "rouge_l_max_published")
METHODS = ("zero_shot", "supervised", "ppo", "nlpo", "sup_ppo", "sup_nlpo")


def settings(rl: Mapping, sup_rl: Mapping, supervised: Mapping, **both: Any) -> dict[str, dict]:
    """The settings of a task's three trainings. rl: from the raw model; sup_rl: what differs after supervision;
    both: of either. Keys: update_tokens (tokens of an update), total_tokens, learning_rate, entropy_coef, kl_coef,
    target_kl (nats a token), top_k (of the rollouts), mask_p, sync (updates between two copies of the mask model)."""
    raw = {**PPO, **both, **rl}
    return {"rl": raw, "sup_rl": {**raw, **sup_rl}, "supervised": dict(supervised)}


def table(metrics: str, rows: Mapping[str, str]) -> dict[str, dict[str, float]]:
    """{method: {metric: value}} from one line a method, as printed and without the spread; "-": not printed.

    Raises ``ValueError`` for an unknown method, or another number of cells than of metrics.
    """
    made = {}
    for method, line in rows.items():
        names, cells = metrics.split(), line.split()
        if method not in METHODS or len(names) != len(cells):
            raise ValueError(f"published: {method}: expected one of {METHODS} and {len(names)} cells, got {len(cells)}")
        made[method] = {name: float(cell) for name, cell in zip(names, cells) if cell != "-"}
    return made


def checkpoint(task: Any) -> str:
    """The model that the paper trained for a task, by its hub id; a supervised NarrativeQA is another, UnifiedQA."""
    return "openai-community/gpt2" if task.causal else "google-t5/t5-base"
