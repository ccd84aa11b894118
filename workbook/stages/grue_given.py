"""What draws of real rows are of: the content of their data sets, and of models that are brought.

DVC knows no mirror and no hub; it reads this as files, written before each run. What the committed rows are of is in
git (``GIVEN``, and ``CODE`` of the code), so that whoever has no data makes the report of those rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from workbook.grue import real, tasks
from workbook.grue.raw import content
from workbook.grue.settings import Grue
from workbook.stages import outside
from workbook.store.files import atomic_json, read_json

GIVEN = "given.json"  # in the folder of a profile: task -> what its committed rows are of
CODE = "code.json"  # beside it: task -> the identity of the code that made them


def identities(ours: Grue, folder: Path) -> dict[str, dict[str, str]]:
    """Task -> what its draws are of. A data set that is not here stands for the one that the committed rows are of,
    where all of these are there. Raises: DataError where rows or models are not found."""
    known = read_json(folder / GIVEN) or {}
    stand = [name for name in ours.tasks if name in known and _stands(ours, folder, name)]
    _ask([name for name in ours.tasks if name not in stand])
    return {name: known[name] if name in stand else _of(ours, name) for name in ours.tasks}


def standing(ours: Grue, folder: Path) -> dict[str, str]:
    """Task -> identity of the code of its committed rows, of those that cannot be made anew, as their data are not
    here: after an edit of code they stand too."""
    known = read_json(folder / CODE) or {}
    return {name: known[name] for name in ours.tasks if name in known and _stands(ours, folder, name)}


def keep(folder: Path, found: Mapping[str, Mapping[str, str]], codes: Mapping[str, str]) -> None:
    """Note what the rows are of that were just finished: task -> its data, and the identity of its code. Of the hub's
    data nothing is noted: their content is not hashed."""
    for file, new in ((GIVEN, {name: of for name, of in found.items() if _at_hand(name)}), (CODE, codes)):
        known = read_json(folder / file) or {}
        if (told := known | new) != known:
            atomic_json(folder / file, told)


def _stands(ours: Grue, folder: Path, name: str) -> bool:
    """Whether a task's rows are all there, and its data are not."""
    return not _at_hand(name) and _made(ours, folder, name)


def _at_hand(name: str) -> bool:
    """Whether the task's rows are in a mirror."""
    try:
        return isinstance(real.place(tasks.task(name)), Path)
    except real.DataError:  # not there, and the hub is not to be asked
        return False


def _made(ours: Grue, folder: Path, name: str) -> bool:
    return all((folder / "draws" / str(seed) / f"{name}.csv").is_file() for seed in ours.seeds)


def _ask(names: Sequence[str]) -> None:
    """See that these tasks' rows can be had. Raises: DataError."""
    real.check(names)
    for name in (name for name in names if not _at_hand(name)):
        repository = tasks.task(name).hub
        try:
            outside.ask_the_hub("datasets", repository)
        except Exception as error:  # noqa: BLE001 (its client raises what it likes)
            said = f"real rows of {name}: not in a mirror, and the hub: {outside.first_line(error)}"
            raise real.DataError(f"{said}. Set RLNLP_MIRROR to a folder that holds datasets/{repository}") from None


def _of(ours: Grue, name: str) -> dict[str, str]:
    task = tasks.task(name)
    found = real.identity(task)
    brought = {"model": ours.bring.named(task.causal), **ours.models_of(name)}
    for what, named in brought.items():
        if named:
            found[what] = content(named)["content"] or named
    return found
