"""What the user brings: which files of it are followed, and their hashes.

A model or a data file counts with its content. A reward function counts with

- every file of its folder, subfolders included, where that is a folder of its own (hidden files left out);
- the file and all that it imports from beside it, subfolders included, where it lies beside params.yaml, among
  everything else. What it reads there is not followed: give such a reward a folder of its own.
"""

from __future__ import annotations

import ast
import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path

from rlnlp.settings import ConfigError
from workbook.runs.settings import Bring
from workbook.store.files import file_hash, folder_hash
from workbook.store.fingerprint import digest
from workbook.texts.hub import DataError
from workbook.texts.tasks import csv

MOST_FILES, MOST_BYTES = 1000, 2**28
LONGEST_S = 300.0  # that a brought reward function may take to load and to score two prompts


def reward_files(folder: Path, bring: Bring) -> list[Path]:
    """The files that a brought reward function consists of, sorted; none for another kind of reward.

    folder: of params.yaml. Raises ConfigError for a folder of too many or too large files.
    """
    if not bring.reward_file:
        return []
    file = (folder / bring.reward_file).resolve()
    own = file.parent
    if own in (folder.resolve(), *folder.resolve().parents):
        return sorted(_imported(file))
    hidden = (".", "__pycache__")
    found, size = [], 0
    for path in own.rglob("*"):
        if path.is_file() and not any(part.startswith(hidden) for part in path.relative_to(own).parts):
            found.append(path)
            size += path.stat().st_size
        if len(found) > MOST_FILES or size > MOST_BYTES:
            limit = f"at most {MOST_FILES} files, {MOST_BYTES // 2**20} MiB"
            raise ConfigError(f"bring.reward: {own}: expected {limit}: every file there counts as the reward's")
    return sorted(found)


def _imported(file: Path) -> set[Path]:
    """A Python file and what it imports from its folder, directly or not; a file that cannot be read counts alone."""
    root, found, todo = file.parent, set(), [file]
    while todo:
        path = todo.pop()
        if path in found or not path.is_file():
            continue
        found.add(path)
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except (SyntaxError, ValueError, OSError):
            continue
        for node in ast.walk(tree):
            names = [alias.name for alias in node.names] if isinstance(node, (ast.Import, ast.ImportFrom)) else []
            if isinstance(node, ast.ImportFrom):
                above = path.relative_to(root).parts[: -node.level] if node.level else ()
                base = ".".join([*above, *([node.module] if node.module else [])])
                names = [base, *(f"{base}.{name}".lstrip(".") for name in names)]
            for name in filter(None, names):
                place, *parts = root, *name.split(".")
                for part in parts:
                    place = place / part
                    todo += [place.with_name(f"{place.name}.py"), place / "__init__.py"]
    return found


def contents(folder: Path, bring: Bring) -> dict[str, str]:
    """Content hash of what each setting of `bring` names; "" where nothing is brought or a hub is to be asked."""
    found = {}
    for name, value in bring.model_dump().items():
        place = folder / value
        if name == "reward" and bring.reward_file:
            files = reward_files(folder, bring)
            top = (folder / bring.reward_file).resolve().parent
            found[name] = digest({path.relative_to(top).as_posix(): file_hash(path) for path in files})
        elif value and place.is_dir():
            found[name] = folder_hash(place)
        else:
            found[name] = file_hash(place) if value and place.is_file() else ""
    return found


def tried(folder: Path, bring: Bring) -> None:
    """Read brought prompts, and call a brought reward function on two. Raises ConfigError saying what is wrong."""
    if bring.prompts:
        try:
            csv.check(folder / bring.prompts)
        except DataError as error:
            raise ConfigError(str(error)) from None
    if not bring.reward_file:
        return
    from rlnlp.brought import try_reward  # brings torch
    from rlnlp.scoring import RewardError

    try:
        with _at_most(LONGEST_S):
            try_reward(str(folder / bring.reward))
    except (RewardError, TimeoutError) as error:
        raise ConfigError(f"bring.reward: {error}") from None


@contextlib.contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    """TimeoutError inside, where it takes longer; in the main thread alone."""

    def late(*_) -> None:
        raise TimeoutError(f"no scores for two prompts within {seconds:g} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds, min(seconds, 1.0))  # again: one prompt is tried after two failed
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
