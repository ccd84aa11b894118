"""A learner on a draw: started, trained with a checkpoint now and then, shown on one episode."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from tqdm.auto import tqdm
from transformers.utils import logging

from rlnlp import checkpoint
from rlnlp.engine import Engine
from rlnlp.learners.common import Diverged, TrainingError
from rlnlp.settings import Settings
from rlnlp.shards import agree
from rlnlp.types import Experience, Prompts, take
from workbook.draws import training
from workbook.runs import algorithms, means
from workbook.runs.conditions import Trained
from workbook.runs.draw import Draw
from workbook.store import states

CHECKPOINT = "checkpoint"  # folder of the last state, beside the finished files; gone once those are there


def setup(params: Trained) -> None:
    """Threads, allocator and quiet libraries of this process; call it first. Results depend on the thread count."""
    if params.device != "cpu":
        means.on_gpu(params.device, params.precision)
    torch.set_num_threads(params.threads)
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # a twelfth of an update; changes no number
    training.keep_memory()
    logging.disable_progress_bar()
    logging.set_verbosity_error()


def start(algorithm: str, config: Settings, draw: Draw, seed: int, engine: Engine | None = None):
    """The state of a learner before its first update. engine: other means than those that are written."""
    module = algorithms.module(algorithm)
    extra = (draw.tokenizer,) if module.ABOUT.imitates else ()
    if engine is None:
        return module.init(draw.policy, config, seed, *extra)
    engine.install(draw.policy)
    state = module.init(draw.policy, config, seed, *extra)
    state.engine = engine
    return state


def train(
    algorithm: str,
    config: Settings,
    draw: Draw,
    seed: int,
    folder: Path,
    label: str,
    key: str,
    prompts: Prompts | None = None,
    half: Callable[[object, list[dict]], None] | None = None,
    engine: Engine | None = None,
) -> Iterator[dict]:
    """Train, or continue from the last checkpoint in ``folder``: yields the metrics of each update, those before the
    checkpoint too, and returns the final state and all of them.

    key: identity of the run, which its checkpoints carry: one of another run or seed is refused, never continued.
    prompts: what episodes start from, by default the training prompts; half: called at half the updates with the state
    and the curve so far, once (again only where a kill lost that update); engine: by which means, None = as written.
    Of several processes the first one saves, calls half and shows how far it is; all must find the same numbers.
    Raises ``TrainingError`` naming the last good checkpoint where a run cannot go on. A run that says
    ``breaks: [finite]`` ends at a number that is not finite instead: its curve is then shorter than its updates.
    """
    module, middle = algorithms.module(algorithm), getattr(config, "updates", 0) // 2
    state = start(algorithm, config, draw, seed, engine)
    leads, kept = engine is None or engine.team.rank == 0, Checkpoints(folder, key, label, state)
    curve = kept.load(state)
    if engine is not None:
        agree(engine.team, {"update": state.update})
    if half and leads and middle == state.update == 0:
        half(state, curve)
    yield from list(curve)
    progress = tqdm(total=config.updates, initial=state.update, desc=label, unit="update", disable=not leads)
    try:
        for metrics in module.train(state, prompts or draw.prompts("train"), draw.score, config):
            if engine is not None:
                agree(engine.team, metrics)
            curve.append(metrics)
            progress.update()
            shown = {"score": "objective/score", "kl": "objective/kl", "loss": "supervised/loss"}
            progress.set_postfix({k: f"{metrics[name]:.3f}" for k, name in shown.items() if name in metrics})
            if half and leads and state.update == middle:
                half(state, curve)
            if leads:
                kept.save(state, curve, end=state.update == config.updates)
            yield metrics
    except (TrainingError, ValueError) as error:  # RewardError and failed checks of records are ValueErrors
        if isinstance(error, Diverged) and "finite" in getattr(config, "breaks", ()):
            return state, curve
        what = str(error) if isinstance(error, TrainingError) else f"update {state.update + 1}: {error}"
        raise TrainingError(f"{label}: {what}. Last good checkpoint: {kept.last}") from error
    finally:
        progress.close()
    return state, curve


class Checkpoints:
    """The newest state of a training, in its folder, where it carries the identity ``key`` of its run.

    last: what an error says of it.
    """

    def __init__(self, folder: Path, key: str, label: str, state: Any) -> None:
        self.place, self.key, self.label = folder / CHECKPOINT, key, label
        self.pace, self.last = states.Pace(checkpoint.size(state)), "none yet"

    def load(self, state: Any) -> list[dict]:
        """Put what is there into a fresh state; returns the curve so far. Raises ``TrainingError`` for one of another
        run."""
        if (saved := states.load_state(self.place)) is None:
            return []
        tensors, meta = saved
        if meta.get("run") != self.key:
            raise TrainingError(f"{self.label}: {self.place} is of another run or seed; remove that folder")
        checkpoint.unpack(state, tensors, meta["numbers"])
        self.last = f"update {state.update}, in {self.place}"
        return meta["curve"]

    def save(self, state: Any, curve: list[dict], end: bool) -> None:
        """Save it where it is time to. end: there is no update after this one."""
        if not self.pace.due(end):
            return
        with self.pace.saving():
            tensors, numbers = checkpoint.pack(state)
            meta = {"run": self.key, "numbers": numbers, "curve": curve}
            states.save_state(self.place, tensors, meta, keep=1)
        self.last = f"update {state.update}, in {self.place}"


def forget(folder: Path) -> None:
    """Remove the checkpoint of a training whose results are kept."""
    shutil.rmtree(folder / CHECKPOINT, ignore_errors=True)


def ended(training: Iterator[dict]) -> Any:
    """What ``train`` returns, once it has gone through all its updates."""
    while True:
        try:
            next(training)
        except StopIteration as end:
            return end.value


def episode(algorithm: str, config: Settings, draw: Draw, state) -> dict:
    """One episode on the first validation prompt, token by token, as the learner saw it."""
    prompts = draw.prompts("validation")
    prompts = take(prompts, torch.arange(min(8, len(prompts))))
    seen: Experience = algorithms.module(algorithm).collect(state, prompts, draw.score, config)
    rollout = seen.rollout
    real = rollout.mask[0]
    return {
        "example_id": prompts.example_ids[0],
        "prompt": prompts.texts[0],
        "tokens": [draw.tokenizer.decode([i]) for i in rollout.responses[0][real].tolist()],
        "score": seen.scores[0].item(),
        **{
            name: value[0][real].tolist()
            for name, value in {
                "logprobs": rollout.logprobs,
                "ref_logprobs": seen.ref_logprobs,
                "kl": seen.kl,
                "rewards": seen.rewards,
                "values": seen.values,
                "advantages": seen.advantages,
            }.items()
        },
    }
