"""The page that README's five results lead to: read where the repository is, so that it needs no built site.

`python -m workbook.site readme` writes it; a claim's own page on the site has more.
"""

from __future__ import annotations

from collections.abc import Sequence

from workbook.site import claim_page, front, opening
from workbook.site.committed import Committed

PAGE = "docs/findings/five.md"
UP = "../../"  # from the page to the repository's root
HEAD = """# Five results, and what decides them

README's five, each with what was published and with every deciding test in every profile that makes it. On the site
(`make site`) a claim's page, `claims/P20/` and so on, adds figures, settings, texts and the command that runs just
this again."""


def page(found: Committed, claims: Sequence[str] = tuple(front.FIVE)) -> str:
    """Markdown: a section a claim, headed by its id alone, so that its address stays whatever its words are."""
    parts = [claim_page.KEY.replace(claim_page.PICTURED, "")]
    for claim in claims:
        about, rows = found.claims[claim], found.rows(claim)
        parts += [f"## {claim}", f"**{' '.join(about['claim'].split())}**", opening.of(found, claim, rows)]
        if any(claim_page.supervised(found, profile, row) for profile, row in rows.items()):
            parts.append(claim_page.MAY_END)
        parts += ["**What was published**", claim_page.published(about)]
        parts += claim_page.tests(found, claim, "decides", drawn=False)
    body = "\n\n".join(parts).replace("](/", f"]({UP}")
    return f"{HEAD}\n\n{front.BEGIN}\n{body}\n{front.END}\n"
