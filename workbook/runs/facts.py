"""What a curve says about how a training went: numbers beside those that its policy is measured by."""

from __future__ import annotations

import numpy as np

from rlnlp.settings import Settings

LAST = 3  # updates whose mean score says where training ended


def training_facts(curve: list[dict], config: Settings, updates: int) -> dict[str, float | None]:
    """What a curve says about how training went, up to its end; None where a learner does not measure it.

    Means over updates: first_ratio_error, clip_fraction, approx_kl, gradient_norm. peak_kl: the largest sampled KL,
    nats per token. wobble: standard deviation of the training score's changes from update to update / sqrt 2. drop: its
    highest mean over 3 updates in a row minus the last one. diverged: 1 if training ended before ``updates``, if the
    mean score of the last 3 updates is more than 2 wobbles below that of the first 3, or the last KL is more than ten
    times an adaptive target. rollout_score: mean training score of the last 3 updates. tokens_per_gradient_step: new
    response tokens that were sampled for each gradient step of the policy.
    """

    def series(name: str) -> np.ndarray:
        return np.array([m[name] for m in curve if name in m])

    def mean(name: str) -> float | None:
        return float(found.mean()) if len(found := series(name)) else None

    score, kl = series("objective/score"), series("objective/kl")
    facts = {
        "first_ratio_error": mean("policy/first_ratio_error"),
        "clip_fraction": mean("policy/clip_fraction"),
        "approx_kl": mean("policy/approx_kl"),
        "gradient_norm": mean("policy/gradient_norm"),
        "peak_kl": float(kl.max()) if len(kl) else None,
        "wobble": None,
        "drop": None,
        "diverged": float(len(curve) < updates),
        "rollout_score": float(score[-LAST:].mean()) if len(score) else None,
        "tokens_per_gradient_step": tokens_per_gradient_step(curve, config),
    }
    if len(score) > LAST:
        level = np.convolve(score, np.ones(LAST) / LAST, "valid")
        facts["wobble"] = float(np.diff(score).std() / np.sqrt(2))
        facts["drop"] = float(level.max() - level[-1])
        lost = level[-1] < level[0] - 2 * facts["wobble"]
        far = getattr(config, "kl_target", 0) and kl[-1] > 10 * config.kl_target
        facts["diverged"] = float(facts["diverged"] or lost or far)
    return facts


def tokens_per_gradient_step(curve: list[dict], config: Settings) -> float | None:
    """Response tokens sampled in a training for each gradient step of the policy; None for one that samples none.

    DQN counts its steps, of which there are none before its replay is warm; the others say how many they take an
    update: SAC ``gradient_steps``, TRPO one, the others ``epochs`` times ``minibatches``.
    """
    if not any("episodes/length" in m for m in curve):
        return None
    each = getattr(config, "gradient_steps", None) or (
        config.epochs * config.minibatches if hasattr(config, "epochs") else 1
    )
    steps = sum(m.get("dqn/gradient_steps", each) for m in curve)
    return sum(m["episodes/length"] for m in curve) * config.episodes_per_update / steps if steps else None
