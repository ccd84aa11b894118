"""The package as students get it: ``rlnlp`` and ``workbook`` in one wheel, without notebooks, results and solutions."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from course.check import COURSE

ROOT = COURSE.parent
HELD = ("rlnlp", "workbook")
LOCK = "requirements.lock"  # what it was tried with: handed out beside the wheel
READ = "grue/params.yaml"  # by an assignment, where it lies in the repository: beside the packages


def build(folder: Path) -> Path:
    """The wheel, in `folder`, and beside it the lock.

    Raises ``subprocess.CalledProcessError`` where pip cannot make it, having said why.
    """
    with tempfile.TemporaryDirectory(prefix="package-") as temporary:
        place = Path(temporary)
        for name in HELD:
            shutil.copytree(ROOT / name, place / name, ignore=shutil.ignore_patterns("__pycache__"))
        (place / READ).parent.mkdir()
        shutil.copy(ROOT / READ, place / READ)
        (place / "pyproject.toml").write_text(description(place), encoding="utf-8")
        command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
        subprocess.run([*command, "--wheel-dir", str(place), str(place)], check=True)
        (made,) = place.glob("*.whl")
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / LOCK, folder / LOCK)
        for older in folder.glob(f"{made.name.partition('-')[0]}-*.whl"):
            older.unlink()
        return Path(shutil.move(made, folder / made.name))


def description(place: Path) -> str:
    """pyproject.toml of the packages that lie there: the repository's versions, a name of its own."""
    ours = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    version = ours["tool"]["setuptools"]["dynamic"]["version"]
    files = [path for kind in ("*.py", "*.yaml") for path in place.rglob(kind)]
    packages = sorted({".".join(path.parent.relative_to(place).parts) for path in files})
    tables = {
        "build-system": ours["build-system"],
        "project": {
            "name": "rlnlp-course",
            "dynamic": ["version"],
            "requires-python": ours["project"]["requires-python"],
            "dependencies": [*ours["project"]["dependencies"], *ours["project"]["optional-dependencies"]["workbook"]],
        },
        "tool.setuptools": {"packages": packages},
        "tool.setuptools.package-data": {"*": ["*.json", "*.yaml"]},
    }
    lines = [
        f"[{name}]\n" + "".join(f"{json.dumps(k)} = {json.dumps(v)}\n" for k, v in t.items())
        for name, t in tables.items()
    ]
    return "\n".join([*lines, f'[tool.setuptools.dynamic]\nversion = {{attr = "{version["attr"]}"}}\n'])
