"""How to cite the workbook, one of its claims, and the papers whose claims it measures: from CITATION.cff."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

ADDRESS = "SITE_URL"  # of the environment: where the site is served, as in mkdocs.yml


def read(root: Path) -> Mapping[str, Any]:
    """CITATION.cff. Raises: OSError."""
    return yaml.safe_load((root / "CITATION.cff").read_text(encoding="utf-8"))


def address(page: str = "") -> str:
    """Where a page of the site is served; "" where nobody said."""
    return f"{base.rstrip('/')}/{page}" if (base := os.environ.get(ADDRESS, "")) else ""


def whole(root: Path) -> str:
    """BibTeX of the workbook and of what it is about."""
    ours = read(root)
    entries = [entry("software", "rlnlp", ours, ours["date-released"].year, url=address())]
    for at, paper in enumerate(ours["references"], 1):
        number = next((each["value"] for each in paper.get("identifiers", ())), "")
        told = {"eprint": number.removeprefix("arXiv:"), "institution": paper.get("institution", {}).get("name")}
        entries.append(entry("misc", f"rlnlp-paper-{at}", paper, paper.get("year"), **told, note=paper.get("notes")))
    return "\n".join(["```bibtex", *entries, "```"])


def entry(kind: str, key: str, about: Mapping[str, Any], year: int | None, **more: str | None) -> str:
    """One entry of BibTeX; what there is not is left out."""
    people = [a["name"] if "name" in a else f"{a['family-names']}, {a['given-names']}" for a in about["authors"]]
    authors = " and ".join(f"{{{name}}}" if "," not in name else name for name in people)
    fields = {
        "title": f"{{{about['title']}}}",
        "author": authors,
        "year": year,
        "version": about.get("version"),
        **more,
    }
    lines = [f"  {name} = {{{value}}}," for name, value in fields.items() if value]
    return "\n".join([f"@{kind}{{{key},", *lines, "}"])


def claim(root: Path, name: str) -> str:
    """A claim's page, cited in a line; the entries are on the first page."""
    ours = read(root)
    where = address(f"claims/{name}/")
    return (
        f"{ours['authors'][0]['name']}: *{ours['title']}*, version {ours['version']}, {ours['date-released'].year}, "
        f"claim {name}{f', <{where}>' * bool(where)}. [BibTeX, of the papers too](/index.md#cite-this)."
    )
