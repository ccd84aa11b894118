"""Blocks of Markdown that several pages have."""

from __future__ import annotations

UNSEARCHED = "{ data-search-exclude }"  # behind a heading: the search leaves out what stands below it, as texts of runs


def shell(*lines: str) -> str:
    """Commands, to be copied."""
    return "\n".join(["```sh", *lines, "```"])


def folded(title: str, body: str) -> str:
    """A block that opens when asked for."""
    inner = "\n".join(f"    {line}" if line else "" for line in body.splitlines())
    return f'??? note "{title}"\n\n{inner}'
