"""The stages by name, in the order in which they run."""

from __future__ import annotations

from bench.gpu.decode import decode
from bench.gpu.evaluate import evaluate
from bench.gpu.exact import exact
from bench.gpu.facts import facts
from bench.gpu.iteration import iteration
from bench.gpu.share import share
from bench.gpu.update import update
from bench.gpu.works import works

WORK = {
    "facts": facts, "works": works, "exact": exact, "decode": decode,
    "update": update, "iteration": iteration, "evaluate": evaluate, "share": share,
}  # fmt: skip
STAGES = tuple(WORK)
