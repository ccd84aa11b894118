"""Every tool says what it is for and what it takes, and does nothing else, when it is asked."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TOOLS = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__main__")
    for room in ("workbook", "bench")
    for path in (ROOT / room).rglob("*.py")
    if '\nif __name__ == "__main__":\n' in path.read_text(encoding="utf-8")
)
ONLY_USAGE = {"workbook.runs.conditions", "workbook.stages.digests"}  # stages of DVC: what they run is in its lock


@pytest.mark.filterwarnings("ignore:.*found in sys.modules:RuntimeWarning")
@pytest.mark.parametrize("name", TOOLS)
def test_help_is_a_text_and_no_work(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module(name, run_name="__main__")
    said = capsys.readouterr()
    assert ended.value.code == (2 if name in ONLY_USAGE else 0), said.err
    assert re.match(rf"usage: (python|torchrun) -m {re.escape(name)} ", said.out + said.err)
    assert not [*tmp_path.iterdir()]
