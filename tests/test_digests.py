"""Digests: a report is made again when a run that it shows changes, and for no other."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rlnlp import digests

PARAMS = """
root: .
runs: {a: {}, b: {}, c: {}}
continued: {d: {start: a}}
reports: {gamma: {conditions: [b, a]}, mask: {conditions: [c, d]}}
claims: []
"""


def run(folder: Path, condition: str, **files: str) -> None:
    (folder / "runs" / condition).mkdir(parents=True, exist_ok=True)
    for name, text in {"per_seed": f"condition\n{condition}\n", **files}.items():
        (folder / "runs" / condition / (name + (".csv" if name != "samples" else ".jsonl"))).write_text(text)


@pytest.fixture
def profile(tmp_path):
    (tmp_path / "params.yaml").write_text(PARAMS)
    for condition in "abcd":
        run(tmp_path, condition)

    def make() -> dict[str, dict]:
        assert digests.main([str(tmp_path / "params.yaml"), str(tmp_path / "out")]) == 0
        return {path.stem: json.loads(path.read_text()) for path in (tmp_path / "out").glob("*.json")}

    return tmp_path, make


def test_a_report_follows_the_runs_it_shows(profile):
    folder, make = profile
    before = make()
    assert {name: set(found) for name, found in before.items()} == {"gamma": {"a", "b"}, "mask": {"c", "d"}, "claims": set()}
    assert len({value for found in before.values() for value in found.values()}) == 4  # 64 hexadecimal digits, all different
    run(folder, "a", samples='{"prompt": ""}\n')
    after = make()
    assert after["gamma"]["a"] != before["gamma"]["a"] and after["gamma"]["b"] == before["gamma"]["b"]
    assert after["mask"] == before["mask"]
    run(folder, "a", notes="a file that no report reads")
    assert make() == after


def test_a_missing_run_is_named(profile):
    folder, make = profile
    for path in (folder / "runs" / "c").iterdir():
        path.unlink()
    found = make()["mask"]
    assert found["c"] == "missing" and len(found["d"]) == 64


def test_a_value_taken_out_of_the_settings_leaves_the_digest_and_a_report_its_file(profile):
    folder, make = profile
    make()
    text = (folder / "params.yaml").read_text()
    (folder / "params.yaml").write_text(text.replace("[b, a]", "[b]").replace(", mask: {conditions: [c, d]}", ""))
    assert {name: set(found) for name, found in make().items()} == {"gamma": {"b"}, "claims": set()}


def test_the_ledger_reads_what_the_listed_claims_compare_and_this_profile_has():
    values = {"runs": {"a": {}, "b": {}, "c": {}}, "continued": {"d": {}}, "reports": {}, "claims": ["P01", "P02", "P99"]}
    compared = {"P01": ("mask", ["d", "a"]), "P02": ("gamma", ["a", "nowhere"]), "P03": ("mask", ["c"])}
    assert digests.shown(values, compared) == {"claims": ["a", "d"]}


def test_a_report_also_follows_the_runs_that_its_claims_compare():
    values = {"runs": {"a": {}, "b": {}, "c": {}}, "reports": {"mask": {"conditions": ["b"]}, "gamma": {"conditions": ["a"]}}, "claims": ["P01"]}
    compared = {"P01": ("mask", ["c", "b"]), "P02": ("gamma", ["c"])}  # P02 is not listed: this profile does not judge it
    assert digests.shown(values, compared) == {"mask": ["b", "c"], "gamma": ["a"], "claims": ["b", "c"]}


def test_it_starts_quickly():
    code = "import sys, rlnlp.digests; print([m for m in ('torch', 'transformers', 'pandas', 'scipy') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_it_says_how_it_is_called(capsys):
    assert digests.main([]) == 2 and "usage: python -m rlnlp.digests" in capsys.readouterr().err
