"""What lessons start from is trained once, kept, and the same when it is found again."""

from __future__ import annotations

import csv
import runpy

import pytest
import torch

from workbook.draws import small
from workbook.lab import lesson


def test_the_start_is_trained_once_and_found_again(tmp_path, monkeypatch, capsys):
    first = small.start(reviews=60, steps=3, folder=tmp_path)
    assert "once" in capsys.readouterr().out
    monkeypatch.setattr(small, "train_language_model", lambda *a, **k: pytest.fail("trained a second time"))
    again = small.start(reviews=60, steps=3, folder=tmp_path)
    assert not capsys.readouterr().out
    weights, found = first.policy.state_dict(), again.policy.state_dict()
    assert all(torch.equal(weights[name], found[name]) for name in weights)
    assert len(first.texts) == len(first.labels) == 60 and set(first.labels) == {0, 1}
    assert first.prompts.ids.shape == (256, 10) and first.prompts.mask.all()
    scores = first.reward(["the plot is"], ["superb ."])
    assert torch.equal(scores, again.reward(["the plot is"], ["superb ."])) and 0 < scores.item() < 1


def test_other_sizes_are_other_models(tmp_path):
    small.start(reviews=60, steps=3, folder=tmp_path)
    small.start(reviews=60, steps=4, folder=tmp_path)
    assert len(list(tmp_path.glob("*/finished"))) == 2


@pytest.mark.parametrize("sizes", [{"reviews": 0}, {"steps": 0}])
def test_sizes_below_one_are_refused(tmp_path, sizes):
    with pytest.raises(ValueError, match="at least one"):
        small.start(**sizes, folder=tmp_path)


def test_an_interrupted_training_leaves_nothing_half_made(tmp_path, monkeypatch):
    monkeypatch.setattr(small, "train_classifier", lambda *a, **k: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        small.start(reviews=60, steps=3, folder=tmp_path)
    monkeypatch.undo()
    assert not list(tmp_path.glob("*/finished"))
    assert small.start(reviews=60, steps=3, folder=tmp_path).texts


def test_verdicts_are_those_of_the_committed_ledger():
    found = lesson.verdicts("P10", "P41", profiles=["settle", "imdb"])
    rows = {row["id"]: row for row in csv.DictReader((lesson.REPORTS / "claims.csv").open(encoding="utf-8"))}
    assert found.loc["P10"].tolist() == [rows["P10"][name] for name in ("claim", "settle", "imdb")]
    assert list(found.index) == ["P10", "P41"] and list(found.columns) == ["claim", "settle", "imdb"]
    with pytest.raises(ValueError, match="no 'P411'.*P41"):
        lesson.verdicts("P411")
    with pytest.raises(ValueError, match="no 'setle'.*settle"):
        lesson.verdicts("P10", profiles=["setle"])


def test_models_go_where_the_variable_says_and_else_to_the_repository(tmp_path, monkeypatch):
    for value, expected in ((str(tmp_path), tmp_path), ("", small.ROOT / ".scratch" / "lessons")):
        monkeypatch.setenv("RLNLP_LESSONS", value)
        assert runpy.run_path(small.__file__)["FOLDER"] == expected
