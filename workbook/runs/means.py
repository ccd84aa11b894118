"""By which means a run is computed: precision, shards, the card it runs on; and what of that its key names.

Where it is the CPU's fp32 on one shard, all is done as it is written, and no key says anything of it.
"""

from __future__ import annotations

import os

import torch
from transformers import PreTrainedModel

from rlnlp import precision
from rlnlp.engine import Engine
from rlnlp.settings import ConfigError
from rlnlp.shards import Alone, Team
from rlnlp.types import Prompts
from workbook.runs import algorithms
from workbook.runs.conditions import Trained
from workbook.runs.draw import Draw

AS_WRITTEN = {"device": "cpu", "precision": "fp32", "shards": 1}
AMPERE = (8, 0)  # compute capability of the first GPUs that multiply in tf32 and bf16
MOST = 1024  # episodes that are evaluated at once
PART = 8  # an evaluation's batch may take this part of a card's memory: models, and other runs, are there too


def plain(params: Trained) -> bool:
    """Whether a run is computed as it is written."""
    return all(getattr(params, name) == value for name, value in AS_WRITTEN.items())


def engine_of(params: Trained, draw: Draw, team: Team | None = None) -> Engine:
    """The engine of a run, for which it also prepares the draw's models."""
    about, cuda = algorithms.module(params.run.algorithm).ABOUT, params.device != "cpu"
    for model in filter(None, (draw.policy, draw.evaluator)):
        if cuda:
            precision.one_kernel(model)
    if draw.evaluator is not None and params.precision == "bf16":
        precision.in_bf16(draw.evaluator)
    return Engine(params.precision, cuda, params.shards, about.mean_over, team or Alone())


def shared(params: Trained, processes: int) -> None:
    """Raise ``ConfigError`` where so many processes cannot train one run together."""
    if (why := algorithms.uncut(params.run.algorithm, params.config())) and processes > 1:
        label = algorithms.label(params.run.algorithm)
        raise ConfigError(f"{label} cannot be trained by {processes} processes: {why}; it runs in one")
    if params.shards % processes:
        text = f"expected a power of two that {processes} processes divide, found {params.shards}"
        raise ConfigError(f"shards: {text}; results depend on the shards, not on the processes")


def facts(params: Trained) -> dict[str, str | int]:
    """What the key of a run says of its means: nothing where it is ``plain``."""
    if plain(params):
        return {}
    found = {"device": params.device.partition(":")[0], "precision": params.precision, "shards": params.shards}
    if params.device == "cpu":
        return found
    major, minor = torch.cuda.get_device_capability(params.device)
    card = {"gpu": torch.cuda.get_device_name(params.device), "capability": f"{major}.{minor}"}
    return {**found, **card, "cuda": torch.version.cuda or torch.version.hip}


def on_gpu(device: str, words: str) -> None:
    """For a process that trains on a GPU, before it touches one: its matrix products; the same digits every time.
    Raises ``ConfigError`` where there is no such GPU, or it cannot multiply so."""
    there, (_, _, number) = torch.cuda.device_count() if torch.cuda.is_available() else 0, device.partition(":")
    if int(number or 0) >= there:
        raise ConfigError(f"device {device}: expected a GPU that torch {torch.__version__} can use, found {there}")
    if words != "fp32" and torch.version.hip is None and torch.cuda.get_device_capability(device) < AMPERE:
        name = torch.cuda.get_device_name(device)
        raise ConfigError(f"precision {words}: expected a GPU of compute capability 8.0 or later, found {name}")
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.set_float32_matmul_precision("high" if words == "tf32" else "highest")


def batch_size(model: PreTrainedModel, prompts: Prompts, new_tokens: int, least: int) -> int:
    """Episodes evaluated at once on a card: ``least``, doubled while that fits, whatever else runs there."""
    memory = torch.cuda.get_device_properties(model.device).total_memory
    return fitting(model, prompts.ids.shape[1] + new_tokens, least, memory)


def fitting(model: PreTrainedModel, tokens: int, least: int, memory: int) -> int:
    """``batch_size`` on a card with so many bytes, for episodes of so many tokens."""
    config = model.config
    layers = config.num_hidden_layers + getattr(config, "num_decoder_layers", 0)
    each = 4 * (tokens * config.hidden_size * (2 * layers + 40) + 6 * config.vocab_size)
    size = least
    while 2 * size <= MOST and 2 * size * each <= memory // PART:
        size *= 2
    return size
