"""The course kit: what students get holds nothing hidden, and nbgrader gives made-up students the points they are due.

`pytest -s -k points_and_messages tests/test_course.py` prints the table; so does `python -m course.check`.
"""

from __future__ import annotations

import ast
import copy
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile

import pytest
import torch

from course import cells, check, package, release
from course.submissions import MISTAKES, MORE, MORE_MISTAKES, OTHERS, mistakes
from tests.test_notebooks import WIDTH
from tests.test_notebooks import problems as broken_budgets

ORIGINALS = {name: cells.read(check.COURSE / "source" / name / f"{name}.ipynb") for name in check.ASSIGNMENTS}
HALVES = [("ps1", "ps2", "ps3"), ("ps4", "ps5", "ps6", "ps7")]  # one kernel after the other; two workers share them


HIDDEN_LINES = 20  # of a cell; the budgets of lessons are for what is read, and hidden tests are not


def by_name(notebook: dict) -> dict[str, dict]:
    return {cells.name(cell): cell for cell in notebook["cells"]}


def without_hidden_tests(notebook: dict) -> dict:
    shown = copy.deepcopy(notebook)
    for cell in shown["cells"]:
        if not cells.role(cell, "solution") and cells.secret(cell):
            before, _, after = cells.parts(cell)
            cell["source"] = "\n".join([*before, *after])
    return shown


# the instructor's notebooks ------------------------------------------------------------------------------------------


def test_there_are_seven_assignments():
    assert check.ASSIGNMENTS == tuple(f"ps{n}" for n in range(1, 8)) == tuple(sum(HALVES, ()))


@pytest.mark.parametrize("assignment", check.ASSIGNMENTS)
def test_an_assignment_is_well_made(assignment):
    notebook = ORIGINALS[assignment]
    assert not broken_budgets(without_hidden_tests(notebook))
    every, found = check.tests(assignment), by_name(notebook)
    assert all(cells.role(cell, "schema_version") == 3 for cell in notebook["cells"] if cells.role(cell, "grade_id"))
    for cell in notebook["cells"]:
        if cells.name(cell) in every:
            assert len(cells.secret(cell)) <= HIDDEN_LINES, cells.name(cell)
            assert all(len(line) <= WIDTH for line in cells.parts(cell)[1]), cells.name(cell)
        marks = re.findall(r"^ *### (?:BEGIN|END) .*$", cells.source(cell), re.MULTILINE)
        if cell["cell_type"] == "code" and cells.role(cell, "solution"):
            assert [m.strip() for m in marks] == ["### BEGIN SOLUTION", "### END SOLUTION"], cells.name(cell)
        elif cells.name(cell) in every:
            assert len(marks) in (0, 2) and all("HIDDEN TESTS" in m for m in marks), cells.name(cell)
        else:
            assert not marks, cells.name(cell)
    essays = [c for c in found.values() if cells.role(c, "grade") and cells.role(c, "solution")]
    by_hand = sum(cells.role(cell, "points") for cell in essays)
    tested = sum(points for points, _ in every.values())
    assert re.search(rf"{tested} points from tests, {by_hand} from", cells.source(notebook["cells"][0]))
    assert tested + by_hand == 20 and any("hidden" in name for name in every) and any("seen" in name for name in every)


@pytest.mark.parametrize("assignment", check.ASSIGNMENTS)
def test_the_made_up_mistakes_are_about_this_assignment(assignment):
    every = check.tests(assignment)
    wrong = [student for student in check.students_of(assignment) if mistakes(student, assignment)]
    assert wrong == ["wrong", *MORE[: len(MORE_MISTAKES.get(assignment, ()))]]
    for solution, (body, fails) in (found for student in wrong for found in mistakes(student, assignment).items()):
        assert fails and all(every[test][1] == solution for test in fails)
        cell = by_name(ORIGINALS[assignment])[solution]
        assert cells.filled(cell, body) != cells.filled(cell)
    for solution, body in OTHERS[assignment].items():
        cell = by_name(ORIGINALS[assignment])[solution]
        assert cells.filled(cell, body) != cells.filled(cell)


@pytest.mark.parametrize("assignment", check.ASSIGNMENTS)
def test_every_check_says_in_words_what_is_wrong(assignment):
    for name in check.tests(assignment):
        checks = list(ast.walk(ast.parse(cells.source(by_name(ORIGINALS[assignment])[name]))))
        calls = [c for c in checks if isinstance(c, ast.Call) and getattr(c.func, "id", "") == "close"]
        assert all(check.msg for check in checks if isinstance(check, ast.Assert)), name
        assert all(len(call.args) == 3 for call in calls), name
        assert calls or any(isinstance(check, ast.Assert) for check in checks), name


def test_a_comparison_takes_whatever_holds_the_numbers():
    found = [by_name(notebook)["setup"] for name, notebook in ORIGINALS.items() if name != "ps7"]  # has no use for one
    assert len(texts := {"def close" + cells.source(cell).partition("def close")[2] for cell in found}) == 1
    space: dict = {"torch": torch, "assert_close": torch.testing.assert_close}
    exec(texts.pop(), space)
    numbers = torch.tensor([[0.5, 1.5]])
    for same in (numbers, numbers.double(), numbers.numpy(), numbers.tolist(), numbers.clone().requires_grad_()):
        space["close"](same, numbers, "equal")
    space["close"](0.5, torch.tensor(0.5), "equal")
    space["close"]([True, False], torch.tensor([True, False]), "equal")
    for other in (numbers + 0.1, numbers[0], torch.tensor(0.5)):
        with pytest.raises(AssertionError, match="^what is wrong: "):
            space["close"](other, numbers, "what is wrong")


OWN = {  # ways to hand in the package's function
    "name": "def f(x):\n    return losses.whiten(x, x > 0)",
    "import": "def f(x):\n    from rlnlp.losses import whiten as g\n    return g(x, x > 0)",
    "module": "def f(x):\n    import rlnlp.losses as a\n    return a.whiten(x, x > 0)",
    "within": "def f(x):\n    return (lambda: losses.whiten(x, x > 0))()",
    "alias": "from rlnlp.losses import whiten as alias\ndef f(x):\n    return alias(x, x > 0)",
    "helper": "def helper(x):\n    return losses.whiten(x, x > 0)\ndef f(x):\n    return helper(x)",
    "default": "def f(x, g=losses.whiten):\n    return g(x, x > 0)",
    "keyword": "def f(x, *, g=losses.whiten):\n    return g(x, x > 0)",
    "partial": "from functools import partial\ng = partial(losses.whiten)\ndef f(x):\n    return g(x, x > 0)",
    "itself": "from functools import partial\nf = partial(losses.whiten, mask=torch.ones(2, 3).bool())",
    "list": "kept = [losses.whiten]\ndef f(x):\n    return kept[0](x, x > 0)",
    "class": "class Kept:\n    g = staticmethod(losses.whiten)\ndef f(x):\n    return Kept.g(x, x > 0)",
    "closure": "def make(g):\n    return lambda x: g(x, x > 0)\nf = make(losses.whiten)",
    "object": "class F:\n    def __call__(self, x):\n        return losses.whiten(x, x > 0)\nf = F()",
    "getattr": "def f(x):\n    return getattr(losses, 'whi' + 'ten')(x, x > 0)",
    "eval": "def f(x):\n    return eval('losses.whiten(x, x > 0)')",
    "caught": "def f(x):\n    try:\n        return losses.whiten(x, x > 0)\n    except BaseException:\n"
    "        return losses.whiten(x, x > 0)",
}


@pytest.fixture
def own():
    """(the notebooks' own, the names that it looks at)"""
    texts = {cells.source(by_name(notebook)["own"]) for notebook in ORIGINALS.values()}
    assert len(texts) == 1
    from rlnlp import losses

    space: dict = {"__name__": "__main__", "losses": losses, "torch": torch, "sys": sys}
    exec(texts.pop(), space)
    return space["own"], space


@pytest.mark.parametrize("way", OWN)
def test_own_sees_the_package_however_it_is_called(own, way):
    own, space = own
    exec(OWN[way], space)
    for _ in "seen", "hidden":
        own(space["f"], "losses")
        with pytest.raises(AssertionError, match="write it yourself, without losses"):
            space["f"](torch.randn(2, 3))
        assert sys.getprofile() is None


def test_own_sees_nothing_else(own):
    own, space = own
    exec("def gae(x):\n    return gae(x - 1) if x else 0\ndef f(x):\n    return gae(x)", space)
    own(space["f"], "losses", "gae")  # their own function of that name
    own(space["gae"], "losses", "gae")  # one that calls itself
    assert space["f"](3) == space["gae"](3) == 0
    exec("def f(x):\n    return losses.masked_mean(x, x > 0) / 0 if x is None else losses.whiten(x, x > 0)", space)
    own(space["f"], "gae")  # another function of the package
    space["f"](torch.randn(2, 3))
    exec("def f(x):\n    raise NotImplementedError('not written yet')", space)
    own(space["f"], "losses")
    with pytest.raises(NotImplementedError, match="not written yet"):
        space["f"](1)
    assert sys.getprofile() is None


@pytest.mark.parametrize("assignment", check.ASSIGNMENTS)
def test_own_guards_hidden_points_as_it_does_seen_ones(assignment):
    found = by_name(ORIGINALS[assignment])
    guards = {
        test: re.findall(r"^own\(.*\)$", cells.source(found[test]), re.MULTILINE) for test in check.tests(assignment)
    }
    assert any(guards.values())
    for test, lines in guards.items():
        if test.endswith("-hidden"):
            assert lines == guards[test.removesuffix("hidden") + "seen"], test


def test_the_guide_states_each_assignments_points():
    guide = (check.COURSE / "README.md").read_text(encoding="utf-8")
    for assignment in check.ASSIGNMENTS:
        notebook, every = ORIGINALS[assignment], check.tests(assignment)
        title = cells.source(notebook["cells"][0]).splitlines()[0].removeprefix("# ")
        row = next(line for line in guide.splitlines() if line.startswith(f"| `{assignment}`"))
        assert title.split(". ", 1)[1].split(":")[0] in row, title
        assert f"| {sum(points for points, _ in every.values())} + " in row
        for cell in notebook["cells"]:  # the rubric has a line for every written answer
            if cells.role(cell, "grade") and cells.role(cell, "solution"):
                assert f"`{cells.name(cell)}` ({cells.role(cell, 'points')})" in guide, cells.name(cell)


def test_the_silent_bugs_of_ps4_are_none_of_lesson_6():
    """A fresh copy scores what it sampled, and a sync reaches the sampler: lesson 6's two checks find nothing."""
    space, found = {"__name__": "__main__"}, by_name(ORIGINALS["ps4"])
    for name in ("setup", "own", "models", "colleague"):
        exec(cells.source(found[name]), space)
    policy, later, models, draw = space["policy"], space["later"], space["models"], space["types"].generator
    worker = space["Colleague"](policy, 0.5)
    seen = worker.sample(policy, space["prompts"], space["sampling"], draw("fresh"))
    torch.testing.assert_close(worker.logprobs(policy, seen), seen.behavior_logprobs, atol=1e-3, rtol=0)
    worker.sync(later)
    seen = worker.sample(later, space["prompts"], space["sampling"], draw("synced"))
    logits = models.Decoder(later, space["prompts"]).logits()
    nucleus = space["types"].Allowed.pack(space["samplers"].top_p(0.5)(logits, None)[1])
    assert torch.equal(seen.allowed.bits[:, 0], nucleus)
    torch.testing.assert_close(worker.logprobs(later, seen), seen.behavior_logprobs, atol=1e-3, rtol=0)


# what students get ---------------------------------------------------------------------------------------------------

RELEASE = pytest.mark.xdist_group("course_release")


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    """The release, built once by nbgrader."""
    folder = tmp_path_factory.mktemp("release")
    assert release.build(folder) == []
    return folder


@RELEASE
def test_students_get_seven_notebooks_and_a_page(released):
    with zipfile.ZipFile(released / f"{release.NAME}.zip") as archive:
        assert archive.namelist() == [f"{release.NAME}/{name}" for name in release.FILES]
        for name in release.FILES:
            assert archive.read(f"{release.NAME}/{name}") == (released / release.NAME / name).read_bytes()
    text = "".join(path.read_text(encoding="utf-8") for path in (released / release.NAME).rglob("*.*"))
    assert "YOUR CODE HERE" in text and "YOUR ANSWER HERE" in text and "HIDDEN TESTS" not in text


@RELEASE
@pytest.mark.parametrize("assignment", check.ASSIGNMENTS)
def test_every_cell_is_free_of_what_is_hidden_and_a_leak_is_noticed(released, assignment):
    original = ORIGINALS[assignment]
    notebook = cells.read(released / release.NAME / assignment / f"{assignment}.ipynb")
    assert release.leaks(original, notebook) == []
    hidden = [cell for cell in original["cells"] if cells.secret(cell)]
    assert len(hidden) >= 9
    for cell in hidden:  # put each back, then one line of it where nobody looks
        spoilt = copy.deepcopy(notebook)
        by_name(spoilt)[cells.name(cell)]["source"] = cell["source"]
        assert any(leak.startswith(f"{cells.name(cell)}: shows") for leak in release.leaks(original, spoilt))
        known = "\n".join(cells.source(c) for c in notebook["cells"])
        line = next(line for line in cells.secret(cell) if line not in known)
        for place in ("source", "metadata", "outputs"):
            spoilt = copy.deepcopy(notebook)
            victim = by_name(spoilt)["setup"]
            if place == "metadata":
                victim["metadata"]["old"] = {"text": [line]}
            else:
                victim[place] = [f"x = 1  # {line}"] if place == "source" else [{"name": "stdout", "text": [line]}]
            assert any(leak.startswith("setup: shows") for leak in release.leaks(original, spoilt)), (place, line)


@RELEASE
def test_files_too_many_or_too_few_are_noticed(released, tmp_path):
    shutil.copytree(released / release.NAME, tmp_path / "copy")
    assert release.check(tmp_path / "copy") == []
    (tmp_path / "copy" / "ps1" / "solutions.py").write_text("x = 1\n")
    (tmp_path / "copy" / "README.md").unlink()
    shutil.copy(check.COURSE / "source/ps2/ps2.ipynb", tmp_path / "copy/ps2/ps2.ipynb")
    wrong = release.check(tmp_path / "copy")
    assert "ps1/solutions.py: not part of the release" in wrong and "README.md: missing" in wrong
    assert any(line.startswith("ps2: nucleus: shows") for line in wrong)


@RELEASE
def test_the_students_wheel_holds_all_that_the_assignments_import(released, tmp_path):
    """In a place of its own, as where there is no repository: this environment's own copy must not be the one found."""
    wheel, place = package.build(tmp_path), tmp_path / "place"
    assert (tmp_path / package.LOCK).read_bytes() == (check.COURSE.parent / package.LOCK).read_bytes()
    install = re.search(r"pip install -r (\S+) (\S+\.whl)$", (check.COURSE / "STUDENTS.md").read_text(), re.MULTILINE)
    assert install[1] == package.LOCK and [*tmp_path.glob(install[2])] == [wheel]
    with zipfile.ZipFile(wheel) as archive:
        held = {name.partition("/")[0] for name in archive.namelist()}
        about = archive.read(next(name for name in archive.namelist() if name.endswith("/METADATA"))).decode()
    assert {name for name in held if not name.endswith(".dist-info")} == {"rlnlp", "workbook", "grue"}
    assert {"torch", "psutil", "pandas"} <= set(re.findall(r"(?m)^Requires-Dist: ([\w-]+)", about))
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(place)]
    subprocess.run([*pip, str(wheel)], check=True)
    code = [
        cells.source(cell)
        for name in release.FILES
        if name.endswith(".ipynb")
        for cell in cells.read(released / release.NAME / name)["cells"]
        if cell["cell_type"] == "code"
    ]
    parts = [part for source in code for part in ast.walk(ast.parse(source))]
    lines = [ast.unparse(part) for part in parts if isinstance(part, ast.Import | ast.ImportFrom)]
    read = re.findall(r'small\.ROOT((?: / "[^"]+")+)', "\n".join(code))  # files of the repository
    assert any("workbook" in line for line in lines) and read
    assert all(place.joinpath(*re.findall('"([^"]+)"', path)).is_file() for path in read)
    code = "\n".join([*dict.fromkeys(lines), "import rlnlp, workbook", "print(rlnlp.__file__, workbook.__file__)"])
    environment = {**os.environ, "PYTHONPATH": str(place)}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.count(str(place)) == 2, done.stdout + done.stderr


# grading -------------------------------------------------------------------------------------------------------------


@pytest.fixture(
    scope="module", params=[pytest.param(h, id=f"{h[0]}-{h[-1]}", marks=pytest.mark.xdist_group(h[0])) for h in HALVES]
)
def graded(request, tmp_path_factory):
    """(the course's folder, the points of all made-up students): nbgrader's three commands, run once for each half."""
    folder = tmp_path_factory.mktemp("course")
    return folder, check.grade(folder, request.param)


def waits(grades: dict, assignment: str) -> set[str]:
    return {name for name, (_, _, by_hand) in grades.items() if by_hand and name not in check.tests(assignment)}


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_points_and_messages_are_those_that_are_due(graded):
    folder, found = graded
    print("", check.table(found), sep="\n")
    assignments = {assignment for _, assignment in found}
    assert set(found) == {(student, name) for name in assignments for student in check.students_of(name)}
    assert check.problems(folder, found) == []
    for assignment in assignments:
        every = check.tests(assignment)
        earned = {s: sum(found[s, assignment][test][0] for test in every) for s in check.students_of(assignment)}
        assert earned["correct"] == sum(points for points, _ in every.values())
        for student in (s for s in earned if mistakes(s, assignment)):
            lost = sum(every[test][0] for _, fails in mistakes(student, assignment).values() for test in fails)
            assert 0 < earned[student] == earned["correct"] - lost
        essays = set(found["correct", assignment]) - set(every)
        assert essays and waits(found["correct", assignment], assignment) == essays  # a person must read them
        assert not waits(found["empty", assignment], assignment)  # nothing to read


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_feedback_shows_the_tests_that_are_seen_and_no_hidden_one(graded):
    folder, found = graded
    for student, assignment in found:
        page = check.feedback(folder, student, assignment)
        known = "\n".join(line for c in ORIGINALS[assignment]["cells"] for part in cells.parts(c)[::2] for line in part)
        marked = cells.read(folder / "autograded" / student / assignment / f"{assignment}.ipynb")
        for cell in ORIGINALS[assignment]["cells"]:
            if cells.role(cell, "grade") and not cells.role(cell, "solution"):
                there = cells.source(by_name(marked)[cells.name(cell)])
                for line in (line for line in cells.secret(cell) if line not in known):
                    assert line in there and line not in page, (student, cells.name(cell), line)
                for line in filter(str.strip, cells.parts(cell)[0]):
                    assert line in page, (student, cells.name(cell), line)  # so it would be found if it were there


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_wrong_points_and_missing_messages_are_noticed(graded, tmp_path):
    folder, found = graded
    assignment = min(name for _, name in found)
    spoilt, (test, (most, _)) = copy.deepcopy(found), next(iter(check.tests(assignment).items()))
    spoilt["empty", assignment][test] = (most, most, False)
    assert check.problems(folder, spoilt) == [f"empty {assignment} {test}: {most} of {most} points, expected 0"]
    swapped = {**found, ("empty", assignment): found["correct", assignment]}
    assert len(check.problems(folder, swapped)) == len(check.tests(assignment))
    shutil.copytree(folder / "feedback", tmp_path / "feedback")
    shutil.copytree(tmp_path / "feedback" / "correct", tmp_path / "feedback" / "wrong", dirs_exist_ok=True)
    silent = check.problems(tmp_path, {("wrong", assignment): found["wrong", assignment]})
    assert len(silent) == sum(len(fails) for _, fails in MISTAKES[assignment].values()) and all(
        "does not say" in line for line in silent
    )


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_points_hold_what_was_given_by_hand(graded, tmp_path):
    from nbgrader.api import Gradebook

    folder, found = graded
    assignment = min(name for _, name in found)
    shutil.copy(folder / "gradebook.db", tmp_path)
    test = min(waits(found["correct", assignment], assignment))
    with Gradebook(f"sqlite:///{tmp_path}/gradebook.db", "rlnlp") as book:
        grade = book.find_grade(test, assignment, assignment, "correct")
        grade.manual_score, grade.needs_manual_grade, most = 2, False, grade.max_score
        book.db.commit()
    assert found["correct", assignment][test] == (0, most, True)
    assert check.points(tmp_path)["correct", assignment][test] == (2, most, False)


@RELEASE
def test_a_platforms_zip_is_collected_with_the_predictions(tmp_path):
    check.prepare(tmp_path, ("ps6",))
    check.nbgrader(tmp_path, "generate_assignment", "ps6")
    place = tmp_path / "downloaded" / "ps6" / "archive" / "all.zip"
    place.parent.mkdir(parents=True)
    notebook = (tmp_path / "release" / "ps6" / "ps6.ipynb").read_text(encoding="utf-8")
    with zipfile.ZipFile(place, "w") as archive:
        for name in ("ada_", "ps6_ben_attempt_2026-11-20-10-30-00_"):
            archive.writestr(f"{name}ps6.ipynb", notebook)
            archive.writestr(f"{name}predictions.json", "{}")
    check.nbgrader(tmp_path, "zip_collect", "ps6")
    there = sorted(path.relative_to(tmp_path / "submitted").as_posix() for path in tmp_path.glob("submitted/*/*/*.*"))
    assert there == [f"{who}/ps6/{name}" for who in ("ada", "ben") for name in ("predictions.json", "ps6.ipynb")]


def test_predictions_are_written_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    space: dict = {}
    exec("import json\nfrom pathlib import Path\n" + cells.source(by_name(ORIGINALS["ps6"])["record"]), space)
    first = {f"{what}, beta {beta}": 0.5 for what in ("score", "judge", "KL") for beta in ("0", "0.1")}
    with pytest.raises(ValueError, match="predict first: 'judge, beta 0' is None"):
        space["record"]({**first, "judge, beta 0": None})
    with pytest.raises(ValueError, match="'score, beta 0.1' is 90, expected a number from 0 to 1"):
        space["record"]({**first, "score, beta 0.1": 90})
    assert not list(tmp_path.iterdir())  # what is impossible is not written either: it could not be mended
    assert space["record"](first) and json.loads((tmp_path / "predictions.json").read_text()) == first
    with pytest.raises(RuntimeError, match="you had predicted"):
        space["record"]({**first, "score, beta 0": 0.9})
    assert space["record"](first)
