"""The linter and the formatter find nothing to say (settings: pyproject.toml)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize("command", [["check"], ["format", "--check"]], ids=" ".join)
def test_ruff_has_nothing_to_say(command):
    done = subprocess.run([sys.executable, "-m", "ruff", *command, "."], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_ruff_sees_every_file_of_python():
    """A pattern that leaves one folder out leaves out every folder of that name."""
    done = subprocess.run([sys.executable, "-m", "ruff", "check", "--show-files", "."], cwd=ROOT, capture_output=True)
    tracked = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    seen = {Path(line).relative_to(ROOT).as_posix() for line in done.stdout.decode().splitlines()}
    assert not {*tracked.split()} - seen
