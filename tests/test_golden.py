"""The golden runs can be trusted: the same code gives the same digests, and other numbers give others."""

from __future__ import annotations

import json

import pytest

from tests import golden


@pytest.mark.parametrize(("case", "architecture"), [("masked: mirostat", "causal"), ("sac", "encoder-decoder")])
def test_a_run_repeats_and_a_learning_rate_shows(case, architecture):
    once, again = (golden.run(case, architecture, updates=2) for _ in range(2))
    assert once == again
    other = golden.run(case, architecture, updates=2, learning_rate=golden.SETTINGS["learning_rate"] * 1.001)
    assert all(other[what] != once[what] for what in ("metrics", "policy", "state"))


def test_what_differs_is_named_and_ends_with_an_error(tmp_path, capsys):
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    old.write_text(json.dumps({"same": "1", "other": "1", "gone": "1"}))
    new.write_text(json.dumps({"same": "1", "other": "2", "fresh": "1"}))

    def compared(*files):
        return golden.main([*map(str, files), "--compare"]), capsys.readouterr().out.splitlines()

    assert compared(old, old) == (0, ["0 differ of 3"])
    assert compared(old, new) == (1, ["fresh", "gone", "other", "3 differ of 4"])
