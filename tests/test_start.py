"""The start page leads somewhere: its links exist, it names every lesson as their page does, and its run
browser runs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest

from .test_notebooks import ROOT, read, source
from .waiting import DEADLINE_S

PEOPLE = ["quickstart", *sorted(p.stem for p in (ROOT / "notebooks").glob("[01][0-9]_*.ipynb"))]
ROW = re.compile(r"^\| (?:\[|`)([01]\d_\w+)(?:`|\]\(\1\.ipynb\)) \| (.+) \|$", re.MULTILINE)


def text() -> str:
    return "\n".join(source(c) for c in read("start.ipynb")["cells"] if c["cell_type"] == "markdown")


def test_every_link_of_the_start_page_leads_to_a_file_in_git():  # JupyterLab opens no folder by a link
    links = set(re.findall(r"\]\(([^)]+)\)", text()))
    tracked = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    for link in links:
        assert os.path.normpath(f"notebooks/{link}") in tracked, link
    assert {f"{name}.ipynb" for name in PEOPLE} <= links


def test_the_lessons_and_their_questions_are_those_of_their_page():
    rows = ROW.findall(text())
    assert [name for name, _ in rows] == PEOPLE[1:]
    assert rows == ROW.findall((ROOT / "docs/learn/lessons.md").read_text(encoding="utf-8"))


def test_make_lab_opens_at_the_sites_home_and_makes_it_where_there_is_none_or_a_page_is_newer(tmp_path):
    shown = subprocess.run(["make", "-n", "lab"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    (asked,) = re.findall(r"^\[ -f site/index\.html \](?:.*\\\n)*.* -m workbook\.site$", shown, re.MULTILINE)
    asked = asked.replace(".venv/bin/python -m workbook.site", "echo made")
    made = lambda: subprocess.run(["sh", "-c", asked], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    for name in ("docs/page.md", "reports/kl/verdict.md", "claims.yaml", "README.md", "site/index.html"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (1000, 1000))
    assert made() == ""
    os.utime(tmp_path / "reports/kl/verdict.md", (1001, 1001))
    assert made() == "made\n"
    os.utime(tmp_path / "site/index.html", (1002, 1002))
    assert made() == ""
    (tmp_path / "site/index.html").unlink()
    assert made() == "made\n"
    assert f"extra_static_paths=\"['{ROOT}/site']\" --LabApp.default_url=/static/index.html" in shown


@pytest.mark.parametrize("profile", ["mini", "imdb"])
def test_the_run_browser_shows_the_numbers_that_come_with_the_repository(tmp_path, profile):
    command = [
        sys.executable,
        "-m",
        "workbook.stages.nb",
        "run",
        str(ROOT / "notebooks/start.ipynb"),
        "out.ipynb",
        "-p",
        "profile",
        profile,
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    outputs = [
        o
        for c in json.loads((tmp_path / "out.ipynb").read_text())["cells"]
        if c["cell_type"] == "code"
        for o in c["outputs"]
    ]
    page = "".join("".join(o.get("data", {}).get("text/html", "")) for o in outputs)
    assert "<img" in page and "ppo_kl_default" in page
