"""The site's pages and its configuration, written into a folder that git ignores, and MkDocs run over them.

    pages = write(root, out, root / "site")      # out/pages/**.md, out/mkdocs.yml
    build(root, out)                             # root/site

Every page is a folder's index.md, so that its address ends in a slash and stays, from a disk and from any server.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections import ChainMap
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from textwrap import shorten
from typing import Any

import pandas as pd
import yaml

from workbook.results.tables import markdown
from workbook.site import (
    benchmark,
    beside,
    board_charts,
    charts,
    cite,
    claim_page,
    committed,
    effects,
    forest,
    front,
    lessons,
    reference,
    slides,
    texts,
    vega,
)
from workbook.site.blocks import folded
from workbook.site.committed import ABOUT, Committed
from workbook.site.links import Links
from workbook.store.files import atomic_write

SURE = (
    *("sure/design", "sure/machines", "sure/synthesis"),
    *("reports/synthesis/closer", "reports/settle/looks", "reports/grue_again/again"),
)
HAND = {  # documents that stand elsewhere and are pages too
    "course/README.md": "teach/guide/index.md",
    "course/CONSENT.md": "teach/consent/index.md",
    "course/LICENCE_AND_DATA.md": "teach/licence_and_data/index.md",
    "course/STUDENTS.md": "teach/students/index.md",
    "bench/README.md": "reference/speed/how/index.md",
    "data/README.md": "reference/data/index.md",
    "grue/metrics.md": "findings/grue/metrics/index.md",
    "grue/submitted/README.md": "findings/grue/submitted/index.md",
    "grue/traps.md": "findings/grue/traps/index.md",
}
ASSETS, LEDGER = "docs/assets", "docs/findings/ledger.md"
LABEL = 48  # letters of a claim in the site's map
PART = {"verdict": "", "samples": "samples/"}  # of a report: where its file lies below the report's folder


def places(root: Path) -> dict[str, str]:
    """File of the repository -> its page: what is written by hand, and every page below reports/."""
    found = {name: page for name, page in HAND.items() if (root / name).is_file()}
    for file in sorted((root / "docs").rglob("*.md")):
        name = file.relative_to(root / "docs").with_suffix("").as_posix().removesuffix("index").rstrip("/")
        found[file.relative_to(root).as_posix()] = f"{name}/index.md".lstrip("/")
    for file in sorted((root / "reports").rglob("*.md")):
        name = file.relative_to(root)
        found[name.as_posix()] = f"{name.parent.as_posix()}/{PART.get(name.stem, name.stem + '/')}index.md"
    return found


def title(text: str) -> str:
    """A page's first heading. Raises: ValueError without one."""
    if not (found := re.search(r"^# (.+)$", text, re.MULTILINE)):
        raise ValueError(f"expected a page that begins with a heading, found {text[:60]!r}")
    return found[1].strip()


def boxed(text: str) -> str:
    """A checklist's boxes as signs: the site's Markdown has none, and one that cannot be ticked needs no control."""
    return re.sub(r"^( *[-*] )\[ \] ", r"\1☐ ", text, flags=re.MULTILINE)


def to_claims(text: str, claims: Collection[str]) -> str:
    """The ledger's page with its ids as links to the claims' own pages, which only the site has."""
    return re.sub(
        r"\*\*\[(\w+)\]\([^)]+\)\*\*",
        lambda match: f"**[{match[1]}](/claims/{match[1]}/index.md)**" if match[1] in claims else match[0],
        text,
    )


def made(found: Committed, drawn: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Page -> Markdown of what no one wrote by hand, the lessons' aside; its links begin at the repository's root.
    drawn: claim -> names of its charts."""
    pages = {f"claims/{name}/index.md": claim_page.page(found, name, drawn.get(name, ())) for name in found.claims}
    pages |= texts.pages(found) | benchmark.pages(found.root, found.benchmark) | reference.api(found.root)
    pages["reference/settings/index.md"] = reference.settings()
    pages["index.md"] = home(found)
    pages["findings/index.md"] = findings(found)
    return pages


def home(found: Committed) -> str:
    """The first page: the answer, where to go from there, the picture, five results."""
    return "\n\n".join(
        [
            "# Is reinforcement learning for language generation what its papers say it is?",
            front.lines(found),
            LAUNCH,
            "\n".join(f"- {asked} [{label}](/{page})" for asked, (label, page) in WAYS.items()),
            front.shown(found),
            "## Five results",
            front.five(found, "/claims/{claim}/index.md"),
            front.legend(found),
            f"## Cite this\n\n{cite.whole(found.root)}",
        ]
    )


WAYS = {  # what a visitor asks: where it is answered
    "Does NLPO beat PPO?": ("The claim, tested", "claims/P04/index.md"),
    "Which claims hold?": ("Findings", "findings/index.md"),
    "What do such models write?": (
        "What they wrote without the penalty, of real reviews",
        "claims/P01/index.md#texts-of-reviews",
    ),
    "My model, my reward?": ("Twelve lines of Python", "docs/use/twelve_lines.md"),
    "Run one claim again?": ("Choose it, its page has the command", "findings/index.md#claim-by-claim"),
    "Learn it?": ("The lessons", "docs/learn/lessons.md"),
    "Teach it?": ("The course, week by week", "docs/teach/checklist.md"),
    "How far to trust it?": ("The rule and its errors", "docs/sure/design.md"),
}
LAUNCH = (  # shown where a JupyterLab serves the page
    '<p class="launch" hidden>In this JupyterLab: <a data-launch="notebooks/quickstart.ipynb">quick start</a>, '
    '<a data-launch="notebooks/01_text_as_an_mdp.ipynb">lesson 1</a>, '
    '<a data-launch="notebooks/start.ipynb">all lessons and the run browser</a>.</p>'
)


def findings(found: Committed) -> str:
    """The table of all claims: the first paper's, the second's, ours, and the planted ones."""
    groups = {
        "The first paper": lambda source: source.startswith("arXiv"),
        "The second paper": lambda source: source == committed.SECOND_PAPER,
        "Of our own, and planted to see whether the rule works": lambda source: True,
    }
    left, (first, rest) = list(found.claims), forest.split(found)
    far = effects.reach([test for _, test in first])
    parts = [
        "# Findings",
        f"## Published beside ours\n\n{BESIDE}\n\n{forest.table(found, first, far)}",
        folded(f"The other {len(rest)} tests with a published effect", forest.table(found, rest, far)),
        f"## Claim by claim\n\n{KEY}",
    ]
    for name, belongs in groups.items():
        ids = [claim for claim in left if belongs(found.claims[claim]["source"]["paper"])]
        left = [claim for claim in left if claim not in ids]
        parts += [f"### {name}", claim_page.index(found, ids)] if ids else []
    return "\n\n".join(parts) + "\n"


BESIDE = (
    "Of the registered design, in the metric's unit, with intervals over draws; the picture is in yardsticks, and what "
    "lies beyond its axis stands at its edge. The word is of this test alone; a claim's word, below, is of all its "
    "tests. [Every profile in one picture](/reports/forest.svg)."
)
KEY = (
    "A claim *holds*, perhaps *smaller than stated*; it is *too small* where an effect of the stated size is excluded "
    "either way, in its own direction or against it, *opposite* where some part is shown to go the other way and not "
    "to be too small, *open* where neither is known; *not "
    "settled*: some part is open; *turns*: after half the training the word, or a shown sign, was the other side's; a "
    "dash: not tested by these runs. The profiles: "
    + "; ".join(f"`{profile}`, {about}" for profile, about in ABOUT.items())
    + f"; `{benchmark.NAME}`, {benchmark.ABOUT}. "
    "[The rule](/docs/sure/design.md)."
)


def headed(page: str, name: str, text: str) -> str:
    """A page's text behind what the theme is told of it: a title that says more than an id, and how its search ranks
    it. name: its first heading."""
    about: dict[str, Any] = {}
    if text.startswith("---\n"):
        front_matter, _, text = text.removeprefix("---\n").partition("\n---\n")
        about = yaml.safe_load(front_matter)
    if page.startswith(("claims/", "teach/slides/")):
        about["title"] = name
    if page in ASKED:
        about["tags"] = [ASKED[page]]
    if ASIDE.search(page):
        about["search"] = {"exclude": True}
    elif boost := next((boost for start, boost in RANKED.items() if page.startswith(start)), None):
        about["search"] = {"boost": boost}
    return f"---\n{yaml.safe_dump(about, allow_unicode=True)}---\n\n{text}" if about else text


ASKED = {  # page: words that a visitor may type, which its headings do not have; the search ranks them first
    "claims/P04/index.md": "does NLPO beat PPO",
    "claims/P01/index.md": "texts without the penalty",
    "findings/index.md": "run one claim again, which claims hold",
    "use/twelve_lines/index.md": "twelve lines: train my own model with my own reward",
    "use/own_model/index.md": "train my own model",
    "use/write_your_own/index.md": "own reward",
    "teach/checklist/index.md": "teach week one",
    "index.md": "cite BibTeX",
}
# What the search leaves out: texts of runs; ledgers, whose rows are the claims' own pages; pilots; an empty table.
REPORTS = r"^reports/((\w+/claims/)?claims|further|(\w+_)?pilot|grue_real/leaderboard)/"
ASIDE = re.compile(rf"^texts/|/samples/index\.md$|{REPORTS}")
RANKED = {
    "findings/five/": 0.3,  # what the claims' own pages say too
    "claims/": 3,
    "use/": 4,
    "reports/": 0.3,
    "reference/api/": 0.3,
}  # start of an address: factor of its rank


def reports_table(root: Path) -> str:
    """A row per question of the reports, a link per profile that answers it."""
    rows: dict[str, dict[str, str]] = {}
    for profile in ABOUT:
        for file in sorted((root / "reports" / profile).glob("*/verdict.md")):
            name = file.parent.name
            question = title(file.read_text(encoding="utf-8"))
            row = rows.setdefault(name, {"question": question})
            row[profile] = f"[{profile}](/{file.relative_to(root).as_posix()})"
    shown = [p for p in ABOUT if any(p in row for row in rows.values())]
    return markdown(
        pd.DataFrame([{"question": r["question"], **{p: r.get(p, "–") for p in shown}} for r in rows.values()])
    )


def write(root: Path, out: Path, site: Path) -> dict[str, str]:
    """Every page into out/pages, its links moved, and out/mkdocs.yml, which builds `site`; page -> its title.

    Raises: LinkError for a link to nothing, OSError and ValueError for a table that is not there.
    """
    found, pages = committed.read(root), out / "pages"
    shutil.rmtree(out, ignore_errors=True)
    of_claims = {name: charts.of_claim(found, name) for name in found.claims}
    of_reports = beside.beside(found) | board_charts.beside(root)
    known, fresh, taught = places(root), made(found, of_claims), lessons.pages(root)
    whole = known | {name: lessons.place(name) for name in taught}
    decks = {
        lessons.deck(name): (f"notebooks/{name}.ipynb", slides.deck(each)) for name, each in lessons.read(root).items()
    }
    after = {file: "\n\n".join(map(vega.place, drawn)) for file, drawn in of_reports.items()}
    links = Links(root, pages, whole, {*fresh, *decks, *whole.values()}, after)
    written = {page: (page, text) for page, text in fresh.items()}
    written |= decks | {lessons.place(name): (name, text) for name, text in taught.items()}
    more = {"docs/ablations/index.md": f"## Every question, in every profile\n\n{reports_table(root)}"}
    filled = {lessons.LISTED: lessons.listed(root), lessons.ANSWERS: lessons.answered(root)}
    filled[LEDGER] = to_claims((root / LEDGER).read_text(encoding="utf-8"), found.claims)
    for source, page in known.items():
        text = filled.get(source) or boxed((root / source).read_text(encoding="utf-8"))
        written[page] = (source, text + (f"\n{more[source]}\n" if source in more else ""))
    titles = {}
    for page, (source, text) in written.items():
        titles[page] = title(text)
        atomic_write(pages / page, headed(page, titles[page], links.move(text, source, page)))
    for name, data in lessons.files(root).items():
        atomic_write(pages / name, data)
    shutil.copytree(root / ASSETS, pages / "assets", dirs_exist_ok=True)
    for name, chart in ChainMap(*of_claims.values(), *of_reports.values()).items():
        atomic_write(pages / "charts" / f"{name}.js", vega.script(name, chart))
    config = {
        "INHERIT": str(root / "mkdocs.yml"),
        "docs_dir": "pages",
        "site_dir": str(site),
        "theme": {"custom_dir": str(root / "workbook/site/theme")},
        "nav": nav(titles),
    }
    atomic_write(out / "mkdocs.yml", yaml.safe_dump(config, sort_keys=False, allow_unicode=True))
    return titles


def nav(titles: Mapping[str, str]) -> list[dict]:
    """The site's map. Raises: ValueError where it names a page that there is none of."""

    def some(*names: str) -> list[dict[str, str]]:
        wanted = [f"{name}/index.md" for name in names]
        if missing := [page for page in wanted if page not in titles]:
            raise ValueError(f"the site's map names {', '.join(missing)}: expected pages that there are")
        return [{titles[page].replace("`", ""): page} for page in wanted]

    def below(folder: str) -> list[str]:
        return sorted(page.removesuffix("/index.md") for page in titles if page.startswith(f"{folder}/"))

    claims = [
        {shorten(titles[page].replace("`", ""), LABEL, placeholder=" …"): page}
        for page in titles
        if page.startswith("claims/")
    ]
    api = [name for name in below("reference/api") if name != "reference/api"]
    profiles = {p: [n for n in below(f"reports/{p}") if not n.endswith("/samples")] for p in ABOUT}
    told = ("settled", "ledger", "length", "full", "second_paper", "real_reviews", "grue")
    wrote = ["texts/index.md"] if "texts/index.md" in titles else []
    board = [name for name in benchmark.PAGES if f"{name}/index.md" in titles]
    answers = some(*(f"findings/{name}" for name in told), *board)
    return [
        {"Home": "index.md"},
        {"Findings": ["findings/index.md", *answers, *wrote, {"Claim by claim": claims}]},
        {"Ablations": ["ablations/index.md", *({p: some(*names)} for p, names in profiles.items() if names)]},
        {"Learn": ["learn/lessons/index.md", *some(*(n for n in below("learn") if n != "learn/lessons"))]},
        {
            "Teach": some(
                *(f"teach/{n}" for n in ("checklist", "slides", "project", "guide", "students")),
                *(f"teach/{n}" for n in ("consent", "licence_and_data")),
            )
        },
        {
            "Use": some(
                *(f"use/{n}" for n in ("install", "twelve_lines", "own_model", "write_your_own", "change", "machines"))
            )
        },
        {
            "Reference": [
                *some(*(f"reference/{n}" for n in ("settings", "metrics", "learners", "layout", "speed", "data"))),
                {"API": ["reference/api/index.md", *some(*api)]},
            ]
        },
        {"How sure are we": some(*SURE)},
        {"Differences": "differences/index.md"},
    ]


def build(root: Path, out: Path) -> None:
    """MkDocs over `write`'s pages; a warning is an error. The charts' library is put beside them first; of the theme's
    files, those that this site never asks for are taken away.

    Raises: CalledProcessError.
    """
    atomic_write(out / "pages/assets/vega.js", vega.library())
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-f", str(out / "mkdocs.yml")]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}  # the theme's word on a later MkDocs; the lock has this one
    subprocess.run(command, cwd=root, env=quiet, check=True)
    site = Path(yaml.safe_load((out / "mkdocs.yml").read_text(encoding="utf-8"))["site_dir"])
    for file in site.glob("assets/**/*.map"):  # of the theme's scripts, for debuggers of the theme
        file.unlink()
    shutil.rmtree(site / "assets/javascripts/lunr", ignore_errors=True)  # other languages' stems
