"""The learners there are: files of the core and of the arms that say what they are (``ABOUT``), found by listing."""

from __future__ import annotations

import functools
import importlib
from pathlib import Path
from types import ModuleType

import rlnlp.learners
import workbook.arms
from workbook.store.identity import Code

PACKAGES = [rlnlp.learners, workbook.arms]
PROTOCOL = ("ABOUT", "Config", "init", "collect", "update", "train", "decoding")


@functools.cache
def files() -> dict[str, str]:
    """Name -> dotted name of its module, by name. A file without ``ABOUT`` is no learner. Nothing is imported."""
    found = {
        path.stem: f"{package.__name__}.{path.stem}"
        for package in PACKAGES
        for folder in package.__path__
        for path in Path(folder).glob("*.py")
        if "\nABOUT = " in path.read_text(encoding="utf-8")
    }
    return dict(sorted(found.items()))


def names() -> list[str]:
    """The algorithms that a run can name."""
    return list(files())


def module(name: str) -> ModuleType:
    """A learner: its ``ABOUT, Config, init, collect, update, train`` and, where its own decoding differs, ``decoding``.

    Raises ``KeyError`` for a name that no file has.
    """
    return importlib.import_module(files()[name])


def roots(name: str, code: Code) -> list[str]:
    """What a run asks a learner for by name, which no reader of the code sees: roots of the run's identity."""
    return [root for each in PROTOCOL if code.has(root := f"{files()[name]}:{each}")]


def searched() -> list[str]:
    """The algorithms whose learning rate somebody uses: those that a search is for."""
    return sorted({module(name).ABOUT.searched_as for name in names()} - {""})


def decoding(name: str, config) -> dict:
    """The fields of ``Decoding`` with which a learner with these settings sampled in training, beside its lengths."""
    own = {k: getattr(config, k) for k in ("temperature", "top_k", "top_p") if hasattr(config, k)}
    return own | getattr(module(name), "decoding", lambda config: {})(config)


def uncut(name: str, config) -> str:
    """Why a batch of a learner with these settings cannot be cut into shards; empty where it can."""
    if not module(name).ABOUT.mean_over:
        return "its gradient is not a sum over parts of a batch that ppo's update takes"
    return "its masks draw random numbers of their own" if decoding(name, config).get("mask_random") else ""


def label(name: str) -> str:
    """What a learner is called in figures and tables."""
    return module(name).ABOUT.label
