"""Archives from elsewhere, opened so that nothing but what is expected gets onto the disk."""

from __future__ import annotations

import lzma
import re
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rlnlp.settings import ConfigError


@contextmanager
def unpacked(path: Path, place: re.Pattern, what: str, scratch: Path) -> Iterator[Path]:
    """A folder below scratch with the files of a tar archive; it goes with the block.

    Raises: ConfigError, naming the archive, for one that is damaged, and for anything in it that is no plain file with
    a name like ``place``; what: what was expected, in words.
    """
    scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=scratch) as given:
        try:
            with tarfile.open(path) as archive:
                if strange := [m.name for m in archive if not (m.isfile() and place.fullmatch(m.name))]:
                    raise ConfigError(f"{path}: expected {what} alone, found {strange[0]}")
                archive.extractall(given, filter="data")
        except (tarfile.TarError, lzma.LZMAError, EOFError, OSError) as error:
            raise ConfigError(f"{path}: not a whole archive ({error}); fetch it again") from error
        yield Path(given)
