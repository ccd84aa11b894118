"""Run lessons and keep what their cells gave, small, for the site (``docs/learn/outputs``).

    python -m workbook.stages.lessons               those whose code has changed since
    python -m workbook.stages.lessons 06_nlpo       these, whether or not

The models that lessons start from are made first, so that no lesson's time or output has their training in it.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from rlnlp.settings import nearest
from workbook.site import outputs
from workbook.store.files import read_json
from workbook.store.identity import Code

OUT = "out.ipynb"
ROOT = Path(__file__).resolve().parents[2]
# Both pictures of a figure, of which one is kept; letters stay letters, and no id is random. The last line is for
# pictures inside a widget's page, which do not pack.
KERNEL = """c = get_config()
c.InlineBackend.figure_formats = {"svg", "png"}
c.InlineBackend.rc = {"svg.fonttype": "none", "svg.hashsalt": "rlnlp", "figure.facecolor": "white", "savefig.dpi": 72}
"""


def run(root: Path, name: str) -> tuple[dict, float]:
    """(the executed notebook, seconds of one core that it took). Raises: RuntimeError with what the lesson said."""
    with tempfile.TemporaryDirectory(prefix="lesson-") as place:
        profile = Path(place) / "ipython" / "profile_default"
        profile.mkdir(parents=True)
        (profile / "ipython_kernel_config.py").write_text(KERNEL, encoding="utf-8")
        variables = {name: value for name, value in os.environ.items() if name != "MPLBACKEND"}
        variables |= {"IPYTHONDIR": str(profile.parent), "HF_HUB_OFFLINE": "1"}
        command = [sys.executable, "-m", "workbook.stages.nb", "run", str(root / "notebooks" / f"{name}.ipynb"), OUT]
        before = _seconds()
        done = subprocess.run(command, cwd=place, env=variables, stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{name}: status {done.returncode}\n{done.stderr[-3000:]}")
        return read_json(Path(place) / OUT), _seconds() - before


def _seconds() -> float:
    """Of one core, that processes which we started and which have ended took."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def wanted(root: Path, asked: list[str], code: Code) -> list[str]:
    """The lessons to run: those asked for, else those that have no outputs of this code. Raises: ValueError."""
    known = outputs.names(root)
    for name in asked:
        if name not in known:
            raise ValueError(f"no lesson {name!r}, expected one of {', '.join(known)}{nearest(name, known)}")
    return asked or [name for name in known if not outputs.current(root, name, code)]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m workbook.stages.lessons", description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="LESSON")
    asked, code = parser.parse_args(argv).names, Code(ROOT)
    try:
        todo = wanted(ROOT, asked, code)
        if todo:
            from workbook.draws import small

            small.start()
        for name in todo:
            executed, seconds = run(ROOT, name)
            file = outputs.write(ROOT, name, executed, round(seconds), code)
            print(f"{name}: {seconds:.0f} s of one core, {file.stat().st_size:,} bytes", flush=True)
    except (OSError, ValueError, RuntimeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"{outputs.FOLDER}: {len(todo)} made, {len(outputs.names(ROOT)) - len(todo)} as they were")
    return 0


if __name__ == "__main__":
    sys.exit(main())
