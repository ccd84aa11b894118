"""The lessons' pages and slides: outputs kept small under a key, tables that are today's, answers and what to read."""

from __future__ import annotations

import csv
import json
import lzma
import math
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from workbook.site import lessons, outputs, slides
from workbook.stages import lessons as stage
from workbook.store.identity import Code

from . import readable

ROOT = Path(__file__).resolve().parents[1]
LARGEST = 3e6  # bytes of all outputs
NAMES = outputs.names(ROOT)
FIRST = "# Lesson 1: a title\n\n**Question.** Why?\n\n    a ─► b"
LAST = "## Three questions\n\n1. One?\n2. Two?\n3. Three?"
TOOLS = "def two():\n    return 2\n\n\ndef unused():\n    return 3\n"


def notebook(*cells: str) -> dict:
    """Text cells begin with a `#` or a letter's sentence; the others are code."""
    made = [{"cell_type": "markdown", "source": FIRST, "metadata": {}, "id": "first"}]
    made += [
        {"cell_type": "code", "source": c, "metadata": {}, "outputs": [], "execution_count": None, "id": f"c{i}"}
        for i, c in enumerate(cells)
    ]
    made += [{"cell_type": "markdown", "source": f"*How to read this:* up is good. More.\n\n{LAST}", "metadata": {}}]
    made[-1]["id"] = "last"
    return {"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}


@pytest.fixture
def root(tmp_path) -> Path:
    """A repository of one lesson, which calls one function, and of the pages beside it."""
    for name in ("rlnlp", "workbook"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("")
    (tmp_path / "workbook" / "tools.py").write_text(TOOLS)
    (tmp_path / "notebooks").mkdir()
    save(tmp_path, notebook("from workbook.tools import two\nprint(two())"))
    (tmp_path / "docs/learn").mkdir(parents=True)
    (tmp_path / lessons.READING).write_text("# Read\n\n## Lesson 1\n\n- A book.\n")
    (tmp_path / lessons.ANSWERS).write_text("# Answers\n\n## Lesson 1\n\n1. So.\n2. Thus.\n3. Hence.\n")
    return tmp_path


def save(root: Path, made: dict) -> None:
    (root / "notebooks/01_one.ipynb").write_text(json.dumps(made))


def executed(*given: dict) -> dict:
    """The lesson with what its one cell of code gave."""
    made = notebook("from workbook.tools import two\nprint(two())")
    made["cells"][1]["outputs"] = list(given)
    return made


TEXT = {"output_type": "stream", "name": "stdout", "text": "2\n"}


def drawn(**data: str) -> dict:
    kinds = {"svg": "image/svg+xml", "png": "image/png", "html": "text/html", "text": "text/plain"}
    return {"output_type": "display_data", "metadata": {}, "data": {kinds[kind]: found for kind, found in data.items()}}


# The key ---------------------------------------------------------------------------------------------------------


def test_every_lesson_has_outputs_and_all_are_small():
    sizes = {name: outputs.place(ROOT, name).stat().st_size for name in NAMES}
    older = [name for name in NAMES if not lessons.read(ROOT)[name].current]
    print(f"{sum(sizes.values()):,} bytes; of older code: {', '.join(older) or 'none'}")
    assert len(NAMES) == 13 and sum(sizes.values()) <= LARGEST
    assert all(1 < lessons.read(ROOT)[name].kept.seconds < 300 for name in NAMES)


def test_coloured_words_of_a_lesson_can_be_read():
    kept = {name: str(outputs.read(ROOT, name).cells) for name in NAMES}
    assert len(set().union(*map(readable.pairs, kept.values()))) > 50
    faint = {name: readable.faint(text) for name, text in kept.items()}
    assert not {name: found for name, found in faint.items() if found}, "type: make lessons"
    page = '<b style="background:#d05548;color:#ffffff">a</b><i style="color: #000; background-color: #d05548">b</i>'
    assert readable.faint(page) == [("#d05548", "#ffffff", 4.14)] and len(readable.pairs(page)) == 2


def test_a_key_is_that_of_the_code_and_words_do_not_change_it(root):
    outputs.write(root, "01_one", executed(TEXT), 3, Code(root))
    now = lambda: outputs.current(root, "01_one", Code(root))
    assert now() and outputs.read(root, "01_one").cells == {1: [{"text": "2"}]}
    made = notebook("from workbook.tools import two  # a comment\nprint(two())")
    made["cells"][0]["source"] += " Other words."
    save(root, made)
    (root / "workbook/tools.py").write_text(TOOLS.replace("return 3", "return 4"))
    assert now()
    (root / "workbook/tools.py").write_text(TOOLS.replace("return 2", "return 5"))
    assert not now()
    (root / "workbook/tools.py").write_text(TOOLS)
    save(root, notebook("from workbook.tools import two\nprint(two() + 1)"))
    assert not now()


@pytest.mark.parametrize("name", sorted(outputs.LOOKED_UP))
def test_what_is_looked_up_by_a_name_is_in_the_key(name):
    reached = Code(ROOT).reach([f"notebooks/{name}.ipynb"])
    for found in outputs.LOOKED_UP[name]:
        assert Code(ROOT).has(found) and found not in reached, found
    assert outputs.key(ROOT, name, Code(ROOT)) != Code(ROOT).identity([f"notebooks/{name}.ipynb"])


def test_a_page_says_of_which_code_its_outputs_are(root):
    page = lambda: lessons.pages(root)["notebooks/01_one.ipynb"]
    assert "none are kept yet (`make lessons`)" in page() and "of computing" not in page()
    lessons.read.cache_clear()
    outputs.write(root, "01_one", executed(TEXT), 3, Code(root))
    assert lessons.OLDER not in page() and "3 s of computing" in page() and ".no-copy }\n2\n```" in page()
    lessons.read.cache_clear()
    (root / "workbook/tools.py").write_text(TOOLS.replace("return 2", "return 5"))
    assert lessons.OLDER in page() and ".no-copy }\n2\n```" in page()
    assert lessons.OLDER in slides.deck(lessons.read(root)["01_one"])


def test_a_file_that_is_none_of_ours_is_named(root):
    outputs.place(root, "01_one").parent.mkdir(parents=True)
    outputs.place(root, "01_one").write_bytes(lzma.compress(b"{}"))
    with pytest.raises(ValueError, match=r"01_one.json.xz: expected the outputs of a lesson.*make lessons"):
        outputs.read(root, "01_one")


# What is kept ----------------------------------------------------------------------------------------------------

SVG = '<?xml version="1.0"?>\n<svg>\n <metadata><date>2020</date></metadata>\n <path d="M 1.23456 2"/>\n</svg>'


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (TEXT, {"text": "2"}),
        (drawn(svg=SVG, png="AAAA\n", text="<Figure>"), {"svg": '<svg><path d="M 1.2 2"/></svg>'}),
        (drawn(svg=f"<svg>{'x' * 100_001}</svg>", png="AA\nAA"), {"png": "AAAA"}),
        (drawn(html='<div><style scoped>\n.a {}</style>\n<table border="1" class="dataframe">\n  <td>1</td>'),
         {"html": "<div><table><td>1</td>"}),
        (drawn(html="<p>a</p><script>b</script>", text="a"), {"html": "<p>a</p>"}),
        (drawn(text="0.5"), {"text": "0.5"}),
        (drawn(text="<matplotlib.lines.Line2D>"), {}),
        (drawn(text="[<matplotlib.lines.Line2D>]"), {}),
        (drawn(), {}),
    ],
)  # fmt: skip
def test_an_output_is_kept_as_the_smallest_thing_that_shows_it(given, kept):
    assert outputs.shrunk(given) == kept


def test_a_picture_lies_beside_its_page_and_its_slides_with_words_for_it(root):
    outputs.write(root, "01_one", executed(drawn(svg=SVG), drawn(png="AAAA")), 3, Code(root))
    page, files = lessons.pages(root)["notebooks/01_one.ipynb"], lessons.files(root)
    assert '<img src="cell-01-0.svg" alt="Lesson 1: a title: up is good.">' in page
    assert {f"{at}/cell-01-{i}" for at in ("learn/01_one", "teach/slides/01_one") for i in ("0.svg", "1.png")} == {
        *files
    }
    assert files["learn/01_one/cell-01-1.png"] == b"\0\0\0"
    lesson = lessons.read(root)["01_one"]
    assert lessons.reading(lesson, 1) == "*How to read this:* up is good. More."
    before = [("markdown", "*Reading it.* First."), ("code", "1"), ("markdown", "Then.")]
    assert lessons.reading(lesson._replace(cells=before), 1) == "*Reading it.* First."
    assert lessons.reading(lesson._replace(cells=[("markdown", "a"), ("code", "1")]), 1) == ""
    assert outputs.alt('a *b* `c` "d" <e> [f](g)') == "a b c &quot;d&quot; &lt;e&gt; f"


# Cells of committed tables ---------------------------------------------------------------------------------------


def test_a_cell_of_committed_tables_shows_what_they_say_today():
    ledger = {row["id"]: row for row in csv.DictReader((ROOT / "reports/claims.csv").open(encoding="utf-8"))}
    shown = 0
    for name, lesson in lessons.read(ROOT).items():
        for cell, (kind, text) in enumerate(lesson.cells):
            if kind == "code" and outputs.from_tables(text):
                assert not lesson.kept or cell not in lesson.kept.cells, (name, cell)
                table = "".join(each["html"] for each in lesson.given(cell))
                for claim in re.findall(r"<th>([PC]\d\d)</th>", table):
                    row = re.search(rf"<th>{claim}</th>(.*?)</tr>", table)[1]
                    said = re.findall(r"<td>(.*?)</td>", row)[1:]
                    assert said and {*said} <= {*ledger[claim].values(), "–"}, (name, claim)
                    shown += 1
    assert shown >= 25
    assert not outputs.from_tables("lesson.verdicts('P01'); torch.ones(1)") and not outputs.from_tables("print(1)")


def test_a_table_of_runs_is_that_of_the_committed_rows():
    (cell,) = (c for c in lessons.read(ROOT)["11_reward_models"].cells if "labels_10" in c[1] and "lesson." in c[1])
    (given,) = outputs.computed(cell[1])
    rows = [*csv.DictReader((ROOT / "reports/mini/per_seed.csv").open(encoding="utf-8"))]
    chosen = [r for r in rows if (r["condition"], r["split"], r["decoding"]) == ("ppo_kl_default", "test", "plain")]
    shown = re.findall(r"<td>(.*?)</td>", re.search(r"<th>ppo_kl_default</th>(.*?)</tr>", given["html"])[1])
    means = [np.mean([float(r[name]) for r in chosen]) for name in ("training_score", "score", "judge", "words")]
    assert [float(value) for value in shown] == pytest.approx(means, abs=0.0051)


def test_a_question_stops_before_what_leads_to_a_picture_and_no_folder_of_a_machine_is_shown():
    found = lessons.read(ROOT)
    assert all(lesson.question.endswith("?") for lesson in found.values() if lesson.number == 12)
    assert not [name for name, lesson in found.items() if lesson.question.endswith(":")]
    pages = "".join(lessons.pages(ROOT).values()) + "".join(slides.deck(lesson) for lesson in found.values())
    assert "working folder: /" not in pages and re.search(r"^logits \[N, V\]: \[\d+, 715\]$", pages, re.MULTILINE)


# Answers, reading, slides ----------------------------------------------------------------------------------------


def test_every_question_stands_before_its_answer():
    text = lessons.answered(ROOT)
    for lesson in lessons.read(ROOT).values():
        for number, question in enumerate(lesson.asked, 1):
            assert re.search(rf"^{number}\. \*{re.escape(question)}\*\n\n    \S", text, re.MULTILINE), question
    assert text.count("\n## Lesson ") == 13


def test_a_missing_answer_and_a_missing_list_are_named(root):
    (root / lessons.ANSWERS).write_text("# Answers\n\n## Lesson 1\n\n1. So.\n2. Thus.\n")
    with pytest.raises(ValueError, match=r"answers.md: expected answers 1., 2. and 3. under ## Lesson 1"):
        lessons.answered(root)
    (root / lessons.READING).write_text("# Read\n")
    with pytest.raises(ValueError, match=r"reading.md: expected a section ## Lesson 1"):
        lessons.pages(root)
    (root / lessons.LISTED).write_text("# Lessons\n")
    with pytest.raises(ValueError, match=r"lessons.md: expected one table"):
        lessons.listed(root)


def test_what_is_read_is_named_and_its_number_is_its_address():
    for number, text in lessons.sections(ROOT, lessons.READING).items():
        items = text.split("\n")
        assert len(items) >= 2 and all(item.startswith("- ") and re.search(r"\d{4}, ", item) for item in items), number
        for shown, address in re.findall(r"\[arXiv:(\S+?)\]\(https://arxiv.org/abs/(\S+?)\)", text):
            assert shown == address and re.fullmatch(r"\d{4}\.\d{4,5}", shown)
        assert text.count("[arXiv") == text.count("https://arxiv.org/abs/") >= 1


def weight(solved: float, size: int) -> float:
    """Expected gradient of GRPO over the true one, by counting how many of a group are solved (lesson 9)."""
    k = np.arange(size + 1)
    return (
        np.sqrt((size - 1) / size)
        * float(stats.binom(size, solved).pmf(k) @ np.sqrt(k / size * (1 - k / size)))
        / (solved * (1 - solved))
    )


def largest(words: int) -> float:
    """Mean of the largest of so many standard normal numbers."""
    at = np.linspace(-9, 9, 200_001)
    return float(np.trapezoid(at * words * stats.norm.pdf(at) * np.exp((words - 1) * stats.norm.logcdf(at)), at))


def test_the_numbers_in_the_answers_are_those_of_their_formulas():
    said = lessons.sections(ROOT, lessons.ANSWERS)
    for number, value in {
        9: [f"{weight(0.02, 8):.2f} times", f"{weight(0.5, 8):.2f} times", f"{weight(0.3, 2):.2f} times"],
        8: [
            f"{largest(100):.1f} deviations too high for 100 words and {largest(50_000):.1f} for 50,000",
            f"says {math.sqrt(2 * math.log(100)):.1f} and {math.sqrt(2 * math.log(50_000)):.1f}",
            f"factor of {largest(50_257) / largest(100):.1f}",
            f"{24 * 0.05:g} random",
        ],
        10: [
            f"{1 - 0.9**8:.0%}".replace("%", " %"),
            f"bound of {math.log(8) - 7 / 8:.1f} nats",
            f"ln 8 = {math.log(8):.1f}",
        ],
        2: [f"{0.85**2 / (0.85**2 + 0.15**2):.2f} and {0.15**2 / (0.85**2 + 0.15**2):.2f}"],
    }.items():
        assert all(part in said[number] for part in value), (number, value)
    assert 4 < largest(50_257) < 4.5 and 0.05 / 100 == 1 / 2000 and 0.05 / 50_000 == 1 / 1_000_000
    assert (
        f"{200 * 3 * 0.5 / 60:.0f}" == "5" and "five hours" in said[13] and math.isclose(weight(0.3, 2), weight(0.9, 2))
    )


def test_a_deck_has_the_question_a_slide_a_section_and_what_cells_gave():
    for name, lesson in lessons.read(ROOT).items():
        deck = slides.deck(lesson)
        found = deck.split('<section markdown="1">')[1:]
        heads = re.findall(r"^# .+$", re.sub(r"```.*?```", "", deck, flags=re.DOTALL), re.MULTILINE)
        assert heads == [f"# {lesson.title}"] and lesson.question in found[0] and "template: slides.html" in deck
        heads = re.findall(r"^##+ (.+)$", "\n".join(lesson.said), re.MULTILINE)
        assert [h for h in re.findall(r"^## (.+)$", deck, re.MULTILINE) if h != "Where we are"] == heads
        code = re.findall(r"```python\n(.*?)\n```", deck, re.DOTALL)
        assert code and all(sum(bool(line.strip()) for line in each.splitlines()) <= 15 for each in code)
        assert deck.count("<img src=") >= 1 and all(q in found[-1] for q in lesson.asked), name


def test_how_to_read_a_picture_stands_on_its_slide_and_on_no_other():
    decks = {
        name: slides.deck(lesson).split('<section markdown="1">')[1:] for name, lesson in lessons.read(ROOT).items()
    }
    said = [(name, block) for name, lesson in lessons.read(ROOT).items() for block in every_reading(lesson)]
    where = {(name, block): [slide for slide in decks[name] if block in slide] for name, block in said}
    assert len(where) > 35 and not {key: len(slides_of) for key, slides_of in where.items() if len(slides_of) > 1}
    assert all('class="given"' in slide or "```" in slide for slides_of in where.values() for slide in slides_of)
    (step,) = where["05_ppo", next(block for name, block in said if "the figure below" in block)]
    assert "<img" in step and "the figure below" not in decks["05_ppo"][decks["05_ppo"].index(step) - 1]
    gave = [("code", "1"), ("markdown", "*How to read this:* a.\n\n## 2\n\nB."), ("code", "2"), ("markdown", "C.")]
    lesson = lessons.read(ROOT)["06_nlpo"]._replace(cells=gave)
    lesson = lesson._replace(kept=lesson.kept._replace(cells={0: [{"text": "1"}], 2: [{"text": "2"}]}))
    assert lessons.reading(lesson, 0) == "*How to read this:* a." and lessons.reading(lesson, 2) == ""


def every_reading(lesson) -> list[str]:
    """Every block of a lesson that says how to read something."""
    return [block for cell in range(len(lesson.cells)) for block in lessons.readings(lesson, cell)]


def test_a_sections_slide_has_its_first_paragraph_and_what_is_displayed_under_it():
    assert slides.opened("## 3. Head\n\nFirst.\n\n    a = b\n\nSecond.") == "## 3. Head\n\nFirst.\n\n    a = b"
    assert slides.opened("### Bug\n\nFirst.\n\nSecond.\n\n- item") == "## Bug\n\nFirst."
    assert slides.opened("## What to try\n\nA.\n\nB.\n\nC.\n") == "## What to try\n\nA.\n\nB.\n\nC."


def test_the_list_of_lessons_is_one_table_with_pages_times_and_slides():
    text = lessons.listed(ROOT)
    rows = re.findall(r"^\| \[Lesson (\d+): .*\]\(/learn/\S+\) \|.*\| \d+ min \| \d+ s \|", text, re.MULTILINE)
    assert rows == [str(n) for n in range(1, 14)] and "`notebooks/`" not in text


def test_a_report_that_a_lesson_names_is_a_link():
    named = [text for text in lessons.pages(ROOT).values() if "`reports/" in text]
    assert len(named) > 7 and not [m for text in named for m in re.findall(r"(?<!\[)`reports/[\w/]+\.md`", text)]


# make lessons ----------------------------------------------------------------------------------------------------


def test_what_is_made_are_those_asked_for_or_those_of_older_code(root):
    assert stage.wanted(root, [], Code(root)) == ["01_one"] == stage.wanted(root, ["01_one"], Code(root))
    outputs.write(root, "01_one", executed(TEXT), 3, Code(root))
    assert stage.wanted(root, [], Code(root)) == [] and stage.wanted(root, ["01_one"], Code(root)) == ["01_one"]
    with pytest.raises(ValueError, match="no lesson '01_on', expected one of 01_one; did you mean '01_one'"):
        stage.wanted(root, ["01_on"], Code(root))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_lesson_is_run_with_figures_that_pack_and_says_what_went_wrong(root, tmp_path):
    code = "import matplotlib.pyplot as plt\nfigure, axis = plt.subplots()\naxis.set(xlabel='words');"
    save(root, notebook(code))
    made, seconds = stage.run(root, "01_one")
    outputs.write(root, "01_one", made, round(seconds), Code(root))
    ((given,),) = outputs.read(root, "01_one").cells.values()
    assert ">words</text>" in given["svg"] and "date" not in given["svg"] and seconds > 0.5
    save(root, notebook("1 / 0"))
    with pytest.raises(RuntimeError, match=r"01_one: status 1\n[\s\S]*ZeroDivisionError"):
        stage.run(root, "01_one")
    shutil.rmtree(root / "notebooks")
