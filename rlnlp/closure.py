"""Which package files each notebook of the pipeline uses, with their hashes: what its stage depends on.

    python -m rlnlp.closure ROOT build/code          # run.json, tune.json, ..., report.json (all reports together)

One small file a stage instead of thirty dependencies: DVC reads its whole lock file again for every stage. Followed are
the imports of a notebook's code, direct and not; a file comes out different only if something its notebook uses changed.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from rlnlp.config import SEARCHED
from rlnlp.runs import _imports, atomic_json, file_hash, package_files

REPORT = "report"  # the notebooks report_<name> are items of one stage
LEARNERS = {"tune": sorted(set(SEARCHED.values()))}  # that a notebook imports by a computed name; "run" any of them


def imported(notebook: Path, package: Path) -> list[Path]:
    """The package files that a notebook's code uses, sorted. Lines of magics are left out."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    lines = "".join("".join(c["source"]) + "\n" for c in cells if c["cell_type"] == "code").splitlines()
    names = _imports_of("\n".join(line for line in lines if not line.lstrip().startswith(("%", "!"))), package)
    known = sorted(p.stem for p in (package / "learners").glob("*.py") if p.stem != "__init__")
    learners = known if notebook.stem == "run" else LEARNERS.get(notebook.stem, [])
    return package_files(*sorted(names | {"rlnlp.nb"}), *(f"rlnlp.learners.{name}" for name in learners), package=package)


def _imports_of(code: str, package: Path) -> set[str]:
    """Modules of the package that a piece of code imports."""
    with tempfile.TemporaryDirectory() as folder:
        (file := Path(folder) / "code.py").write_text(code, encoding="utf-8")
        found = _imports(file, "", "rlnlp")
    return {name for name in found if (package.parent / (name.replace(".", "/") + ".py")).is_file()}


def closures(root: Path) -> dict[str, dict[str, str]]:
    """Notebook ("report" for all of them together) -> {package file, relative to the root: hash}."""
    found: dict[str, dict[str, str]] = {}
    for notebook in sorted((root / "notebooks").glob("*.ipynb")):
        name = REPORT if notebook.stem.startswith(f"{REPORT}_") else notebook.stem
        files = imported(notebook, (root / "rlnlp").resolve())
        found.setdefault(name, {}).update({f"rlnlp/{p.relative_to((root / 'rlnlp').resolve()).as_posix()}": file_hash(p) for p in files})
    return {name: dict(sorted(files.items())) for name, files in found.items()}


def main(argv: list[str]) -> int:
    if len(argv) != 2:
        print("usage: python -m rlnlp.closure ROOT OUT", file=sys.stderr)
        return 2
    root, out = Path(argv[0]), Path(argv[1])
    for name, files in closures(root).items():
        atomic_json(out / f"{name}.json", files)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
