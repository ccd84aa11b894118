"""The search for an algorithm's learning rate: a grid on the validation prompts of one draw, chosen by one rule."""

from __future__ import annotations

import json
from pathlib import Path

from workbook.runs import means
from workbook.runs.conditions import ForTune
from workbook.runs.draw import load_draw
from workbook.runs.experiment import inputs, uncut
from workbook.runs.measure import decodings, evaluate_decoding
from workbook.runs.train import ended, forget, train
from workbook.store import locks
from workbook.store.files import atomic_json
from workbook.store.fingerprint import digest

RULE = (
    "highest validation score, plain decoding, among candidates whose generations' log perplexity under the evaluator "
    "is at most 0.1 nats per token above the zero-shot policy's; if none is, the lowest log perplexity"
)


def search(params: ForTune, out: Path) -> dict:
    """Search learning rate x kl_coef on validation prompts of one draw, in the algorithm's grid; writes ``out``."""
    settings, candidates, run = params.search, [], params.run
    algorithm = run.algorithm
    grid = [(None, None)] + [(lr, beta) for lr in settings.learning_rates for beta in settings.kl_coefs]
    for learning_rate, kl_coef in grid:
        zero_shot = learning_rate is None
        changes = (
            {"updates": 0}
            if zero_shot
            else {"learning_rate": learning_rate, "kl_coef": kl_coef, "updates": settings.updates}
        )
        if not zero_shot and "kl_target" in params.learner:
            changes["kl_target"] = 0.0
        config = params.config(**changes)
        seed = 1000 + params.draw  # random numbers of its own, also where the draw is one of the seeds
        about = {"tune": algorithm, "seed": seed, **config.model_dump()}
        key = digest(inputs(params, params.draw, run, about))
        name = "zero-shot" if zero_shot else f"lr{learning_rate:g}-kl{kl_coef:g}"
        folder = params.scratch / "tune" / algorithm / f"{name}-{key[:16]}"
        with locks.writer_lock(folder):
            if not (folder / "row.json").is_file():
                draw = load_draw(params, params.draw, run)
                engine = None if means.plain(params) else means.engine_of(params, draw)
                label = f"tune {algorithm} {name}"
                state, _ = ended(train(algorithm, config, draw, seed, folder, label, key, engine=engine))
                plain, *_ = decodings(algorithm, config, params.evaluation)  # the only one that the rule looks at
                with uncut(engine):
                    row, *_ = evaluate_decoding(params, draw, state, seed, "validation", plain)
                atomic_json(folder / "row.json", row)
                forget(folder)
            row = json.loads((folder / "row.json").read_text())
        candidates.append(
            {"learning_rate": learning_rate, "kl_coef": kl_coef}
            | {k: row[k] for k in ("score", "judge", "generation_log_perplexity", "kl", "distinct_2")}
        )
    zero, tried = candidates[0], candidates[1:]
    limit = zero["generation_log_perplexity"] + 0.1
    for c in tried:
        c["eligible"] = c["generation_log_perplexity"] <= limit
    eligible = [c for c in tried if c["eligible"]]
    best = (
        max(eligible, key=lambda c: c["score"])
        if eligible
        else min(tried, key=lambda c: c["generation_log_perplexity"])
    )
    result = {
        "algorithm": algorithm,
        "learning_rate": best["learning_rate"],
        "kl_coef": best["kl_coef"],
        "rule": RULE,
        "draw": params.draw,
        "updates": settings.updates,
        "zero_shot": zero,
        "candidates": tried,
    }
    atomic_json(out, result)
    return result
