"""The stage ``works``: every learner, a child that is forked, a run that is killed."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import time
from pathlib import Path

from bench.gpu.scale import TINY, model_of, prompts_of, rising
from bench.gpu.stage import PATIENCE, Stage, was_recorded

LEARNERS = {  # small settings, two updates each
    "ppo": {"minibatches": 2},
    "nlpo": {"minibatches": 2, "top_k": 50, "sync_every": 1},
    "a2c": {},
    "trpo": {},
    "dqn": {"gradient_steps": 2, "warm_up": 4},
    "sac": {"gradient_steps": 2, "batch_episodes": 4},
}


def learner_of(name: str, device: str, updates: int, **more):
    """(module, state, prompts, config) of a learner on a tiny model; more: settings."""
    import importlib

    from rlnlp.types import to

    module, shape = importlib.import_module(f"rlnlp.learners.{name}"), TINY.shapes["tiny"]
    common = {"updates": updates, "episodes_per_update": 8, "max_new_tokens": 8, "learning_rate": 1e-3}
    config = module.Config(**common, **LEARNERS[name], **more)
    state = module.init(model_of(shape, device), config, 3)
    return module, state, to(prompts_of(shape, 16, 6, "cpu"), device), config


def digest(state) -> str:
    """The policy's weights and the optimiser's, in eight bytes."""
    from rlnlp.checkpoint import pack

    tensors, numbers = pack(state)
    found = hashlib.sha256(json.dumps(numbers, sort_keys=True).encode())
    for name in sorted(tensors):
        found.update(name.encode() + tensors[name].detach().cpu().contiguous().numpy().tobytes())
    return found.hexdigest()[:16]


def train_and_stop(device: str, place: Path, out: str, stop_at: int) -> None:
    """PPO for four updates by recorded steps, in a process of its own. A checkpoint is there before it starts; after
    ``stop_at`` updates one is written and the process waits to be killed (0: it goes on to the end and writes its
    digest)."""
    import torch

    from rlnlp.checkpoint import pack, unpack
    from rlnlp.engine import Engine

    module, state, prompts, config = learner_of("ppo", device, 4, min_new_tokens=8)
    state.engine = Engine(static=True)
    if place.exists():
        saved = torch.load(place, weights_only=True, map_location=device)
        unpack(state, saved["tensors"], saved["numbers"])
    for metrics in module.train(state, prompts, rising, config):
        if metrics["update"] == stop_at:
            tensors, numbers = pack(state)
            torch.save({"tensors": tensors, "numbers": numbers}, place.with_suffix(".part"))
            os.replace(place.with_suffix(".part"), place)
            time.sleep(PATIENCE)
    Path(out).write_text(digest(state))


def works(stage: Stage) -> None:
    """Every learner twice with equal digits; a forked child can use the GPU; killed and resumed is uninterrupted.

    Children are forked before this process touches the GPU, as the package's own fork server does.
    """
    import tempfile

    from rlnlp.engine import Engine

    fork = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder, stage.row("killed and resumed", learner="ppo") as row:
        place, whole, resumed = (Path(folder) / name for name in ("state.pt", "whole", "resumed"))
        other = fork.Process(target=train_and_stop, args=(stage.device, Path(folder) / "none", str(whole), 0))
        killed = fork.Process(target=train_and_stop, args=(stage.device, place, str(resumed), 2))
        for child in (other, killed):
            child.start()
        while not place.exists() and killed.is_alive() and stage.time_for(0, "killed and resumed"):
            time.sleep(0.05)
        killed.kill()
        killed.join()
        again = fork.Process(target=train_and_stop, args=(stage.device, place, str(resumed), 0))
        again.start()
        for child in (other, again):
            child.join()
        row["forked"] = whole.exists()
        row["equal"] = whole.read_text() == resumed.read_text()
    for name in LEARNERS:
        with stage.row("twice", learner=name) as row:
            seen = []
            for _ in range(2):
                module, state, prompts, config = learner_of(name, stage.device, 2)
                curve = list(module.train(state, prompts, rising, config))
                seen.append((len(curve), digest(state)))
            row["updates"], row["equal"] = seen[0][0], seen[0] == seen[1]
    for name in ("ppo", "nlpo"):
        with stage.row("twice, recorded updates", learner=name) as row:
            ends, engines = [], [Engine(static=True), Engine(static=True)]
            for engine in engines:
                module, state, prompts, config = learner_of(name, stage.device, 3, min_new_tokens=8)
                state.engine = engine
                list(module.train(state, prompts, rising, config))
                ends.append(digest(state))
            row["recorded"] = all(was_recorded(engine) for engine in engines)
            row["equal"] = ends[0] == ends[1]
