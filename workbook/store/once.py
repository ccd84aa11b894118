"""Make a result once, and publish it whole: the way of everything here that takes longer than a moment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from workbook.store.files import whole
from workbook.store.fingerprint import keyed_folder
from workbook.store.locks import writer_lock


def once(parent: str | Path, inputs: Mapping[str, str], make: Callable[[Path, Path], None], wait_s: float = 60) -> Path:
    """The folder of a finished result that ``inputs`` decide, made if it is not there yet; one maker at a time.

    make: (fresh folder to write the result into, folder for states that survive a kill) -> None. The states, files
    state-*, are removed when the result is there.
    """
    home = keyed_folder(parent, inputs)
    finished = home / "finished"
    if finished.is_dir():  # it appears whole: who only reads it waits for nobody
        return finished
    with writer_lock(home, wait_s):
        if not finished.is_dir():
            with whole(finished) as fresh:
                make(fresh, home)
            for left in home.glob("state-*.safetensors"):
                left.unlink()
    return finished
