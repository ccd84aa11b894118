"""Grade made-up submissions of the assignments with nbgrader, in a folder of their own, and print the points.

    python -m course.check [--only ps1] [--keep FOLDER] [--full]

Runs `nbgrader generate_assignment`, `autograde` and `generate_feedback` as an instructor would; exit status 1 where
points or messages are not those of `course/submissions.py`. --full: ps6 and ps7 at the students' sizes, not tiny
ones.
"""

from __future__ import annotations

import argparse
import html
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from course import cells
from course.submissions import KERNEL, MORE, MORE_MISTAKES, STUDENTS, bodies, hand_in, mistakes
from workbook.stages import forkserver
from workbook.stages.processes import environment

COURSE = Path(__file__).resolve().parent
ASSIGNMENTS = tuple(sorted(path.parent.name for path in COURSE.glob("source/*/*.ipynb")))
SIZES = re.compile(r"(\w+(?:, \w+)*, STEPS, UPDATES, EPISODES) = [\d, ]+")  # of assignments that train
TINY = {"REVIEWS": 300, "CONCEPTS": 12, "STEPS": 20, "UPDATES": 1, "EPISODES": 8}
SECONDS = 20  # what a cell may take here, so that the endless one is stopped soon
KERNEL_IN = "ps1"  # where the crashing, the endless and the dying submission are handed in


def prepare(folder: Path, assignments=ASSIGNMENTS, tiny: bool = True) -> None:
    """Settings and sources into `folder`; tiny: where an assignment trains longer, it trains a moment."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "nbgrader_config.py").write_bytes((COURSE / "nbgrader_config.py").read_bytes())
    for assignment in assignments:
        text = (COURSE / "source" / assignment / f"{assignment}.ipynb").read_text(encoding="utf-8")
        place = folder / "source" / assignment / f"{assignment}.ipynb"
        place.parent.mkdir(parents=True)
        place.write_text(SIZES.sub(smaller, text) if tiny else text, encoding="utf-8")


def smaller(found: re.Match) -> str:
    """An assignment's line of sizes, tiny."""
    return f"{found[1]} = {', '.join(str(TINY[name]) for name in found[1].split(', '))}"


def nbgrader(folder: Path, *words: str, **variables: str) -> str:
    """Run an nbgrader command in a course's folder; what it printed. Raises RuntimeError with that where it fails."""
    alone = {"JUPYTER_CONFIG_DIR": str(folder / ".jupyter"), "IPYTHONDIR": str(folder / ".ipython")}
    variables = {**environment(), "HF_HUB_OFFLINE": "1", **alone, **variables}  # nbgrader calls alembic by name
    done = subprocess.run(
        [sys.executable, "-m", "nbgrader", *words],
        cwd=folder,
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"nbgrader {' '.join(words)}: status {done.returncode}\n{done.stdout[-30000:]}")
    return done.stdout


@contextmanager
def kernels(folder: Path) -> Iterator[dict[str, str]]:
    """Variables that make kernels fork from a process that has imported torch: seconds less for each submission."""
    place = folder / ".kernels" / "kernels" / "python3" / "kernel.json"  # found before the one of the environment
    place.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "workbook.stages.forkserver", "kernel", "{connection_file}"]
    place.write_text(json.dumps({"argv": command, "display_name": "Python 3", "language": "python"}), encoding="utf-8")
    with forkserver.running(folder, folder / "forkserver.log") as server:
        yield {**server, "JUPYTER_PATH": str(folder / ".kernels")}


def students_of(assignment: str) -> tuple[str, ...]:
    more = MORE[: len(MORE_MISTAKES.get(assignment, ()))]
    return STUDENTS + more + (KERNEL if assignment == KERNEL_IN else ())


def grade(folder: Path, assignments=ASSIGNMENTS, tiny: bool = True) -> dict[tuple[str, str], dict[str, tuple]]:
    """All of it: {(student, assignment): {test: (points, of, needs a person)}}; feedback lies in `folder`/feedback."""
    prepare(folder, assignments, tiny)
    nbgrader(folder, "generate_assignment", "*")
    for assignment in assignments:
        path = f"{assignment}/{assignment}.ipynb"
        original, released = cells.read(folder / "source" / path), cells.read(folder / "release" / path)
        for student in students_of(assignment):
            place = folder / "submitted" / student / path
            place.parent.mkdir(parents=True)
            notebook = hand_in(student, released, original, bodies(student, assignment))
            place.write_text(json.dumps(notebook), encoding="utf-8")
    with kernels(folder) as variables:
        nbgrader(folder, "autograde", "*", RLNLP_CELL_SECONDS=str(SECONDS), **variables)
    nbgrader(folder, "generate_feedback", "*")
    return points(folder)


def points(folder: Path) -> dict[tuple[str, str], dict[str, tuple]]:
    """What the gradebook of a course's folder holds."""
    from nbgrader.api import Gradebook

    with Gradebook(f"sqlite:///{folder}/gradebook.db", "rlnlp") as book:
        return {
            (submission.student.id, assignment.name): {
                entry.name: (entry.score, entry.max_score, entry.needs_manual_grade)
                for notebook in submission.notebooks
                for entry in notebook.grades
            }
            for assignment in book.assignments
            for submission in assignment.submissions
        }


def feedback(folder: Path, student: str, assignment: str) -> str:
    """The text of the page that a student gets."""
    page = (folder / "feedback" / student / assignment / f"{assignment}.html").read_text(encoding="utf-8")
    return html.unescape(re.sub(r"<[^>]+>", "", re.sub(r"(?s)<(style|script)\b.*?</\1>", "", page)))


def tests(assignment: str) -> dict[str, tuple[float, str]]:
    """The tests of an assignment in order: name -> (points, the solution they are about)."""
    found, about = {}, ""
    for cell in cells.read(COURSE / "source" / assignment / f"{assignment}.ipynb")["cells"]:
        if cells.role(cell, "solution"):
            about = cells.name(cell)
        elif cells.role(cell, "grade"):
            found[cells.name(cell)] = (cells.role(cell, "points"), about)
    return found


def expected(student: str, assignment: str) -> tuple[set[str], list[str]]:
    """(the tests that must give their points, what the feedback must say)."""
    every = tests(assignment)
    solutions = list(dict.fromkeys(about for _, about in every.values()))
    if wrong := mistakes(student, assignment):
        lost = {test: words for _, fails in wrong.values() for test, words in fails.items()}
        return set(every) - set(lost), list(lost.values())
    first = {test for test, (_, about) in every.items() if about == solutions[0]}
    if student == "endless":  # costs what needs its cell
        return set(every) - first, [f"did not end within {SECONDS} s and was stopped"]
    if student == "dying":  # in the second solution: costs that and all that follows
        return first, ["the kernel died in this cell", "an earlier cell ended the run"]
    if student in ("correct", "other"):
        return set(every), []
    error = "ZeroDivisionError: division by zero" if student == "crashing" else "NotImplementedError: not written yet"
    return set(), [error]


def problems(folder: Path, found: dict[tuple[str, str], dict[str, tuple]]) -> list[str]:
    """Points and messages that are not as expected, in words."""
    wrong = []
    for (student, assignment), grades in found.items():
        every, (earns, says) = tests(assignment), expected(student, assignment)
        for test, (most, _) in every.items():
            due = most if test in earns else 0
            if grades[test][0] != due:
                wrong.append(f"{student} {assignment} {test}: {grades[test][0]} of {most} points, expected {due}")
        if student == "correct":  # whoever writes what is asked for gets through every cell
            marked = cells.read(folder / "autograded" / student / assignment / f"{assignment}.ipynb")["cells"]
            ends = [(cell, out) for cell in marked for out in cell.get("outputs", ()) if out["output_type"] == "error"]
            said = "{} {} {}: the cell ends in {}: {}"
            wrong += [said.format(student, assignment, cells.name(c), out["ename"], out["evalue"]) for c, out in ends]
        page = feedback(folder, student, assignment)
        wrong += [f"{student} {assignment}: the feedback does not say {words!r}" for words in says if words not in page]
    return wrong


def table(found: dict[tuple[str, str], dict[str, tuple]]) -> str:
    """Students x assignments as markdown: automatic points of those there are, and what waits for a person."""
    assignments = sorted({assignment for _, assignment in found})
    rows = [["submission", *assignments], ["---"] * (1 + len(assignments))]
    for student in (s for s in STUDENTS + MORE + KERNEL if any(s == one for one, _ in found)):
        row = [student]
        for assignment in assignments:
            grades, every = found.get((student, assignment)), tests(assignment)
            if grades is None:
                row.append("")
                continue
            got, most = sum(grades[test][0] for test in every), sum(most for most, _ in every.values())
            waits = sum(of for _, of, waiting in grades.values() if waiting)
            row.append(f"{got:g} of {most:g}" + (f" (+ {waits:g} by hand)" if waits else ""))
        rows.append(row)
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m course.check", description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="+", choices=ASSIGNMENTS, default=ASSIGNMENTS, metavar="ASSIGNMENT")
    parser.add_argument("--keep", type=Path, help="a new folder that keeps everything, feedback pages too")
    parser.add_argument("--full", action="store_true", help="ps6 and ps7 at the students' sizes")
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="course-") as temporary:
        folder = (args.keep or Path(temporary)).resolve()
        found = grade(folder, tuple(args.only), tiny=not args.full)
        print(table(found))
        wrong = problems(folder, found)
    print("\n".join(wrong) or "points and messages are as expected")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
