"""The stage ``share``."""

from __future__ import annotations

import multiprocessing
import time

from bench.gpu.scale import Scale, model_of, prompts_of, rising
from bench.gpu.stage import PATIENCE, Stage


def sharer(scale: Scale, device: str, precision: str, ready, go, spent) -> None:
    """One of the processes on the GPU: a PPO run of its own, from when all are ready."""
    import torch

    from rlnlp.learners import ppo
    from rlnlp.precision import numerics

    shape = next(iter(scale.shapes.values()))
    config = ppo.Config(
        updates=scale.updates + 1, episodes_per_update=32 if device == "cuda" else 4, epochs=2, minibatches=2,
        max_new_tokens=scale.new, min_new_tokens=scale.new, learning_rate=1e-6, breaks=("ratio",),
    )  # fmt: skip
    with numerics(precision, torch.device(device)):
        state = ppo.init(model_of(shape, device), config, 0)
        curve = ppo.train(state, prompts_of(shape, 64, scale.prompt, device), rising, config)
        next(curve)
        ready.release()
        go.wait()
        began = time.monotonic()
        list(curve)
        spent.put(time.monotonic() - began)


def share(stage: Stage) -> None:
    """Updates an hour of 1, 2 and 4 runs at once on one GPU."""
    fork = multiprocessing.get_context("fork")  # this process does not touch the GPU itself
    name, precision = next(iter(stage.scale.shapes)), stage.precisions[-1]
    for n in stage.scale.processes:
        if not stage.time_for(25, f"{n} processes"):
            continue
        made = {"name": "runs at once", "shape": name, "processes": n, "precision": precision}
        ready, go, spent = fork.Semaphore(0), fork.Event(), fork.Queue()
        args = (stage.scale, stage.device, precision, ready, go, spent)
        children = [fork.Process(target=sharer, args=args) for _ in range(n)]
        for child in children:
            child.start()
        if all([ready.acquire(timeout=PATIENCE) for _ in children]):
            go.set()
            made["slowest_s"] = max(spent.get(timeout=PATIENCE) for _ in children)
            made["updates_per_hour"] = 3600 * n * stage.scale.updates / made["slowest_s"]
        else:
            made["error"] = "a process did not get ready"
        for child in children:
            child.kill() if "error" in made else None
            child.join()
        stage.rows.append(made)
