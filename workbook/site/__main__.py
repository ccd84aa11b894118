"""The site and README's front, from committed tables.

python -m workbook.site                 site/, from a disk or any web server
python -m workbook.site readme          the front of README.md, its picture, and the page its five results lead to
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from workbook.store.files import atomic_write

PAGES = Path(".scratch/site")  # below the root


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m workbook.site", description=__doc__.partition("\n")[0])
    parser.add_argument("what", nargs="?", default="build", choices=("build", "pages", "readme"))
    what, root = parser.parse_args(argv).what, Path(__file__).resolve().parents[2]
    from workbook.site import build, committed, five, front, picture  # seconds, for which no `--help` should wait

    try:
        if what == "readme":
            found, file = committed.read(root), root / "README.md"
            atomic_write(root / front.PICTURE, picture.draw(picture.three(root / "reports" / front.KEPT)))
            atomic_write(file, front.readme(file.read_text(encoding="utf-8"), found))
            atomic_write(root / five.PAGE, five.page(found))
            print(f"README.md and {five.PAGE}: up to date")
            return 0
        pages = build.write(root, root / PAGES, root / "site")
        print(f"{len(pages)} pages in {PAGES}")
        if what == "build":
            build.build(root, root / PAGES)
            print("site: open site/index.html")
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except subprocess.CalledProcessError:
        print("error: MkDocs refused the pages; its lines above say which", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
