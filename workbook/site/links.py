"""Links of a page on the way to the site: a page of the repository becomes its place there, another file a copy.

In a page, a link is relative to the file it stands in, or, with a slash before it, to the repository's root.
"""

from __future__ import annotations

import posixpath
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from rlnlp.settings import nearest

COPIES = "files"  # where files that are no pages lie on the site
LINK = re.compile(r"`[^`\n]+`|(?P<open>!?\[(?:[^\[\]]|\[[^\]]*\])*\]\()(?P<target>[^)\s]+)\)")
OUTSIDE = re.compile(r"^(?:[a-z][a-z0-9+.-]*:|#)")
BLOCK = re.compile(r"(^ *```.*?^ *```$)", re.MULTILINE | re.DOTALL)


class LinkError(ValueError):
    """A link that leads nowhere."""


class Links:
    """places: file of the repository -> its page on the site; pages: every page of the site; out: where the pages
    are; after: picture of the repository -> Markdown that follows it wherever it is shown."""

    def __init__(
        self, root: Path, out: Path, places: Mapping[str, str], pages: set[str], after: Mapping[str, str] | None = None
    ) -> None:
        self.root, self.out, self.places, self.pages, self.after = root, out, places, pages, after or {}

    def move(self, text: str, source: str, page: str) -> str:
        """The text of `source` (a file of the repository, or its page's own place) with the links that it has as
        `page`; code is left alone.

        A picture also becomes a link to itself: on a phone it is small. Raises: LinkError for a link to nothing.
        """

        def changed(match: re.Match) -> str:
            target = match["target"]
            if target is None or OUTSIDE.match(target):  # None: code outside a link
                return match[0]
            path, mark, anchor = target.partition("#")
            here = posixpath.dirname(source)
            path = path.lstrip("/") if path.startswith("/") else posixpath.normpath(posixpath.join(here, path))
            found = posixpath.relpath(self._place(path, source), posixpath.dirname(page))
            whole = f"{match['open']}{found}{mark}{anchor})"
            if not match["open"].startswith("!"):
                return whole
            more = f"\n\n{self.after[path]}" if path in self.after else ""
            return f"[{whole}]({found}){more}"

        parts = BLOCK.split(text)
        return "".join(part if i % 2 else LINK.sub(changed, part) for i, part in enumerate(parts))

    def _place(self, path: str, source: str) -> str:
        """Where a file of the repository is on the site; it is copied there if it is no page."""
        if path in self.places:
            return self.places[path]
        if path in self.pages:
            return path
        index = next((p for p in (f"{path}/README.md", f"{path}/{Path(path).name}.md") if p in self.places), None)
        if index is not None:  # a folder stands for the page that it opens with
            return self.places[index]
        file = self.root / path
        if not file.is_file():
            near = nearest(path, [*self.places, *self.pages])
            raise LinkError(f"{source}: link to {path}: expected a file of the repository or a page of the site{near}")
        copy = self.out / COPIES / path
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, copy)
        return f"{COPIES}/{path}"
