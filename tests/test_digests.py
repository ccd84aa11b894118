"""Digests: a report is made again when a run that it shows changes, and for no other."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from workbook.stages import digests

PARAMS = """
root: .
profile: x
runs: {a: {}, b: {}, c: {}}
continued: {d: {start: a}}
reports: {gamma: {conditions: [b, a]}, mask: {conditions: [c, d]}}
claims: []
"""


def write(folder: Path, texts: dict[str, str]) -> None:
    """The committed tables of runs, each with a row and a text of its own."""
    out = folder / "reports/x"
    out.mkdir(parents=True, exist_ok=True)
    (out / "per_seed.csv").write_text("condition,score\n" + "".join(f"{c},0.5\n" for c in texts))
    (out / "curves.csv").write_text("condition,update\n" + "".join(f"{c},1\n" for c in texts))
    lines = (json.dumps({"condition": c, "response": text}) + "\n" for c, text in texts.items())
    (out / "samples.jsonl").write_text("".join(lines))
    for name in ("conditions", "episodes"):
        (out / f"{name}.json").write_text(json.dumps({c: {"of": c} for c in texts}))
    if not (out / "facts.json").exists():
        (out / "facts.json").write_text("{}")


@pytest.fixture
def profile(tmp_path):
    (tmp_path / "params.yaml").write_text(PARAMS)
    write(tmp_path, dict.fromkeys("abcd", "text"))

    def make() -> dict[str, dict]:
        assert digests.main([str(tmp_path / "params.yaml"), str(tmp_path / "out")]) == 0
        found = {path.stem: json.loads(path.read_text()) for path in (tmp_path / "out").glob("*.json")}
        return found

    return tmp_path, make


def runs(found: dict) -> set[str]:
    return set(found) - {"facts.json"}


def test_a_report_follows_the_runs_it_shows(profile):
    folder, make = profile
    before = make()
    assert {name: runs(found) for name, found in before.items()} == {
        "gamma": {"a", "b"},
        "mask": {"c", "d"},
        "claims": set(),
    }
    assert len({found[c] for found in before.values() for c in runs(found)}) == 4  # all different
    write(folder, {**dict.fromkeys("abcd", "text"), "a": "another text"})
    after = make()
    assert after["gamma"]["a"] != before["gamma"]["a"] and after["gamma"]["b"] == before["gamma"]["b"]
    assert after["mask"] == before["mask"]


def test_what_is_said_of_the_models_is_in_every_report(profile):
    folder, make = profile
    before = make()
    (folder / "reports/x/facts.json").write_text('{"models": {}}')
    assert all(found["facts.json"] != before[name]["facts.json"] for name, found in make().items())


def test_a_missing_run_is_named(profile):
    folder, make = profile
    write(folder, dict.fromkeys("abd", "text"))
    found = make()["mask"]
    assert found["c"] == "missing" and len(found["d"]) == 64


def test_a_value_taken_out_of_the_settings_leaves_the_digest_and_a_report_its_file(profile):
    folder, make = profile
    make()
    text = (folder / "params.yaml").read_text()
    (folder / "params.yaml").write_text(text.replace("[b, a]", "[b]").replace(", mask: {conditions: [c, d]}", ""))
    assert {name: runs(found) for name, found in make().items()} == {"gamma": {"b"}, "claims": set()}


def test_the_ledger_reads_what_the_listed_claims_compare_and_this_profile_has():
    values = {
        "runs": {"a": {}, "b": {}, "c": {}},
        "continued": {"d": {}},
        "reports": {},
        "claims": ["P01", "P02", "P99"],
    }
    compared = {"P01": ("mask", ["d", "a"]), "P02": ("gamma", ["a", "nowhere"]), "P03": ("mask", ["c"])}
    assert digests.shown(values, compared) == {"claims": ["a", "d"]}


def test_a_report_also_follows_the_runs_that_its_claims_compare():
    values = {
        "runs": {"a": {}, "b": {}, "c": {}},
        "reports": {"mask": {"conditions": ["b"]}, "gamma": {"conditions": ["a"]}},
        "claims": ["P01"],
    }
    compared = {
        "P01": ("mask", ["c", "b"]),
        "P02": ("gamma", ["c"]),
    }  # P02 is not listed: this profile does not judge it
    assert digests.shown(values, compared) == {"mask": ["b", "c"], "gamma": ["a"], "claims": ["b", "c"]}


def test_it_starts_quickly():
    code = (
        "import sys, workbook.stages.digests; print([m for m in ('torch', 'transformers', 'pandas', 'scipy') if "
        "m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_it_says_how_it_is_called(capsys):
    assert digests.main([]) == 2 and "usage: python -m workbook.stages.digests" in capsys.readouterr().err
