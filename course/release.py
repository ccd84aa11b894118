"""Build what students get: the assignments without solutions and hidden tests, a page that says how to begin, and the
package that they import.

    python -m course.release [FOLDER]        FOLDER: default course/build

Writes FOLDER/rlnlp-course/, FOLDER/rlnlp-course.zip, the package as a wheel and requirements.lock
(``course.package``). Every cell is compared with the instructor's before anything is written; exit status 1, and
nothing built, where one holds what it must not.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import zipfile
from pathlib import Path

from course import cells, package
from course.check import ASSIGNMENTS, COURSE, nbgrader, prepare

NAME = "rlnlp-course"
FILES = sorted(["README.md", *(f"{assignment}/{assignment}.ipynb" for assignment in ASSIGNMENTS)])


def leaks(original: dict, released: dict) -> list[str]:
    """What a released notebook shows that it must not, in words; the cell is named.

    A line of a solution or a hidden test may be in no cell, its metadata and outputs included, unless students see that
    same line elsewhere in the original (an import, a name).
    """
    found = []
    known = "\n".join(line for cell in original["cells"] for part in cells.parts(cell)[::2] for line in part)
    secret = {line for cell in original["cells"] for line in cells.secret(cell) if line not in known}
    if [cells.name(c) for c in original["cells"]] != [cells.name(c) for c in released["cells"]]:
        found.append("cells: not those of the original, or in another order")
    for cell in released["cells"]:
        rest = {key: value for key, value in cell.items() if key != "source"}
        text = cells.source(cell) + "\n" + "\n".join(_strings(rest))
        found += [f"{cells.name(cell)}: shows {line!r}" for line in sorted(secret) if line in text]
        marks = [f"{word} {region}" for word in ("BEGIN", "END") for region in cells.REGIONS]
        found += [f"{cells.name(cell)}: has the mark {mark}" for mark in marks if mark in text]
        if cell.get("outputs") or cell.get("execution_count"):
            found.append(f"{cells.name(cell)}: has outputs")
    return found


def _strings(value) -> list[str]:
    if isinstance(value, dict):
        return [text for item in value.values() for text in _strings(item)]
    return [text for item in value for text in _strings(item)] if isinstance(value, list) else [str(value)]


def build(folder: Path) -> list[str]:
    """The release in `folder`, or, where something is wrong with it, what; nothing is written then."""
    with tempfile.TemporaryDirectory(prefix="release-") as temporary:
        course = Path(temporary)
        prepare(course, tiny=False)
        nbgrader(course, "generate_assignment", "*")
        (course / "release" / "README.md").write_bytes((COURSE / "STUDENTS.md").read_bytes())
        wrong = check(course / "release")
        if not wrong:
            folder.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(folder / NAME, ignore_errors=True)
            shutil.copytree(course / "release", folder / NAME)
            pack(folder)
    return wrong


def check(released: Path) -> list[str]:
    """What is wrong with a folder that is to be released: files too many or too few, and every leak."""
    there = sorted(path.relative_to(released).as_posix() for path in released.rglob("*") if path.is_file())
    wrong = [f"{name}: not part of the release" for name in there if name not in FILES]
    wrong += [f"{name}: missing" for name in FILES if name not in there]
    for assignment in ASSIGNMENTS:
        path = Path(assignment) / f"{assignment}.ipynb"
        if path.as_posix() in there:
            found = leaks(cells.read(COURSE / "source" / path), cells.read(released / path))
            wrong += [f"{assignment}: {leak}" for leak in found]
    return wrong


def pack(folder: Path) -> None:
    """FOLDER/rlnlp-course.zip of FOLDER/rlnlp-course; the same files give the same bytes."""
    with zipfile.ZipFile(folder / f"{NAME}.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for name in FILES:
            entry = zipfile.ZipInfo(f"{NAME}/{name}", date_time=(1980, 1, 1, 0, 0, 0))
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            archive.writestr(entry, (folder / NAME / name).read_bytes())


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m course.release", description=__doc__.partition("\n")[0])
    parser.add_argument("folder", nargs="?", type=Path, default=COURSE / "build")
    folder = parser.parse_args(argv).folder.resolve()
    if wrong := build(folder):
        print("not released:", *wrong, sep="\n  ", file=sys.stderr)
        return 1
    print(f"{folder / NAME}.zip: {len(FILES)} files, nothing hidden in them", *FILES, sep="\n  ")
    print(f"{package.build(folder)}: the package that they import, to be installed after {package.LOCK} beside it")
    return 0


if __name__ == "__main__":
    sys.exit(main())
