"""The cost of the benchmark's scores: at a small size it runs, on rows of any task, and counts what it says."""

from __future__ import annotations

import os

import pytest

from bench import scores
from workbook.grue import scoring, tasks


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(scores, "ANSWERS", 12)
    monkeypatch.setattr(scores, "TRAINING", 8)
    monkeypatch.setitem(os.environ, "RLNLP_MIRROR", "")
    monkeypatch.setitem(os.environ, "HF_HUB_OFFLINE", "1")


def test_a_row_counts_every_score_of_the_table_that_is_at_hand():
    task = tasks.task("common_gen")
    name, kind, _, _, count, seconds, reward, slowest, more, met, absent = scores.measured("common_gen")
    assert (name, kind, met) == ("common_gen", "generated", "met")
    assert int(count) + len(absent.split(", ")) == len(task.metrics) and absent == "bertscore"
    assert slowest.split()[0] in task.metrics and float(seconds) >= float(reward) >= 0 and float(more) >= 0


def test_more_time_or_memory_than_asked_is_not_met(monkeypatch):
    monkeypatch.setattr(scores, "LIMIT_S", 0)
    assert scores.measured("multi30k")[9] == "not met"


def test_answers_differ_and_training_rows_are_others():
    asked, training, kind = scores.examples_of(tasks.task("imdb"))
    assert kind == "generated" and len(asked) == 12 and len(training) == 8
    assert not {example.id for example in asked} & {example.id for example in training}
    assert scoring.ready(tasks.task("imdb"), tasks.task("imdb").reward, training).metrics  # both labels are there
