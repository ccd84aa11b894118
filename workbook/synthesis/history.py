"""What reads the repository's own history: git's words, and the folder that a command line asks for."""

from __future__ import annotations

import argparse
import subprocess
from collections.abc import Sequence
from pathlib import Path


def git(root: Path, *words: str) -> str:
    """What git prints in `root`. Raises CalledProcessError."""
    return subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, check=True).stdout


def asked(tool: str, about: str, argv: Sequence[str] | None = None) -> Path:
    """The repository that a tool's command line names. Ends the process with one message where it is none."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {tool}", description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("root", nargs="?", type=Path, default=Path("."), help="folder of the repository")
    root = parser.parse_args(argv).root
    if not (root / "claims.yaml").is_file():
        parser.error(f"argument root: expected the folder of the repository, found no claims.yaml in {root.resolve()}")
    return root
