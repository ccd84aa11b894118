"""What the scheduler is made of: order, the plan and time left in words, the ends of logs, the pages at the end."""

from __future__ import annotations

import functools
import json
import lzma
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from workbook.ledger import judge, ruling
from workbook.results.tables import PLURAL
from workbook.runs import checks, conditions
from workbook.stages import afterwards
from workbook.stages import scheduler as scheduling
from workbook.stages.pipeline import Pipeline, read_graph
from workbook.stages.progress import (
    Durations,
    clock,
    executed_notebook,
    in_words,
    last_words,
    log_tail,
    progress_of,
    to_do,
)
from workbook.stages.reproduce import tell_pages, tell_wrong
from workbook.stages.scheduler import Scheduler
from workbook.store.files import atomic_json

ROOT = Path(__file__).resolve().parents[1]


def test_the_graph_of_dvc():
    text = 'strict digraph {\n"check";\n"profiles/x/dvc.yaml:data@0";\n"check" -> "data@0";\n"data@0" -> "runs@a";\n}\n'
    assert read_graph(text) == {"check": set(), "data@0": {"check"}, "runs@a": {"data@0"}}


def test_unchanged_stages_are_passed_over_and_the_longest_goes_first(tmp_path):
    needs = {"data@0": set(), "runs@a": {"data@0"}, "runs@b": {"data@0"}, "tune@x": {"data@0"}, "report": {"runs@a"}}
    scheduler = Scheduler(tmp_path, tmp_path, needs, {"runs@a", "tune@x"}, 2)
    assert scheduler.affected() == {"runs@a", "tune@x", "report"}
    assert scheduler.next_stage() == "tune@x" and scheduler.done == {"data@0", "runs@b"}


def test_reports_start_at_once_when_nothing_before_them_changed(tmp_path):
    needs = {"runs@a": set(), "digests": {"runs@a"}, "report@kl": {"digests"}, "claims": {"digests"}}
    scheduler = Scheduler(tmp_path, tmp_path, needs, {"report@kl"}, 2)
    assert scheduler.next_stage() == "report@kl" and scheduler.done == {"runs@a", "digests", "claims"}


def test_workers_get_units_while_the_heads_hands_are_full(tmp_path, monkeypatch):
    """The head's only process does a stage of its own for long; what else is ready goes into the workers' queue."""
    asked = []

    class Sweep:
        def ready(self, stage):
            asked.append(stage)
            return stage == "data@1"

        def step(self):
            raise KeyboardInterrupt  # the end, after the first round

        variables, open = staticmethod(lambda stage: {}), {}

    going = SimpleNamespace(poll=lambda: None)
    monkeypatch.setattr(scheduling, "start", lambda *given: going)
    monkeypatch.setattr(scheduling, "stop", lambda processes: None)
    needs = {"data@1": set(), "tune@x": set()}
    head = Scheduler(tmp_path, tmp_path, needs, {*needs}, 1, order=["tune@x"], sweep=Sweep())
    monkeypatch.setattr(head, "say", print)
    with pytest.raises(KeyboardInterrupt):
        head.run()
    assert [job.stage for job in head.running] == ["data@1"] and "tune@x" in asked


def test_the_plan_in_words():
    stages = [
        "check",
        "data@0",
        "data@1",
        "tune@ppo",
        "tune@nlpo",
        "runs@zero",
        "runs@a",
        "runs@b",
        "runs@n",
        "continued@c",
        "digests",
    ]
    updates = {"zero": 0, "a": 5, "b": 3, "unplanned": 5, "n": 0, "c": 5}
    text = "2 data, 2 searches, 5 runs (6 trainings: 3 conditions x 2 seeds), 1 report"
    assert to_do([*stages, "report@x"], updates, 2) == text
    assert to_do(["runs@a"], updates, 1) == "1 run (1 training: 1 condition x 1 seed)"
    assert to_do(["check", "digests"]) == "" and to_do(["claims", "runs@a"]) == "1 run, 1 ledger"
    assert [in_words(s) for s in (4, 40, 61 * 52, 3.5 * 3600)] == [
        "about 10 seconds",
        "about 40 seconds",
        "about 53 minutes",
        "about 3.5 hours",
    ]


def test_whether_a_run_trains_is_what_the_check_of_the_settings_found(tmp_path):
    runs = {"runs.best": {"algorithm": "best_of_n"}, "runs.brief": {"algorithm": "ppo", "updates": 3}}
    for place, value in conditions.files(checks.load(ROOT / "tests/fixtures/params.yaml", **runs)).items():
        atomic_json(tmp_path / "check" / place, value)
    pipeline = Pipeline.__new__(Pipeline)
    pipeline.scratch, pipeline.values = tmp_path, runs
    assert (pipeline.updates["best"], pipeline.updates["brief"]) == (0, 3)


def ledger(reports: Path, profile: str, *words: str) -> None:
    effect = dict.fromkeys(("published_low", "published_high", "effect_low", "effect_high"), 0.0)
    effect |= {"name": "t", "role": "decides", "unit": "yardsticks", "published": 0.5, "effect": 0.7, "n": 5}
    rows = [
        {
            "id": f"P{i:02d}",
            "claim": "c",
            "source": "s",
            "published_text": "p",
            "word": w,
            "sentence": f"{w}.",
            "turns": False,
            "rule": "r",
            "components": [effect],
        }
        for i, w in enumerate(words)
    ]
    (reports / profile / "claims").mkdir(parents=True)
    text = json.dumps({"rule": "r", "summary": judge.summary(rows), "rows": rows}, sort_keys=True)
    (reports / profile / "claims/claims.json").write_text(text)
    (reports / profile / "claims/report.html").write_text("")


def test_the_end_names_the_pages_that_are_up_to_date_and_counts_the_ledger(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["open, leans for", "holds", "awaiting", "holds", "opposite", "open, leans for", "too small"]
    ledger(tmp_path / "reports", "mini", *words)
    for name in ("kl", "gamma"):
        (tmp_path / "reports/mini" / name).mkdir()
        (tmp_path / "reports/mini" / name / "report.html").write_text("")
    values = {"root": ".", "profile": "mini"}
    tell_pages(tmp_path, values, set())
    pages = [
        "ledger: reports/mini/claims/report.html",
        "report: reports/mini/gamma/report.html",
        "report: reports/mini/kl/report.html",
    ]
    assert capsys.readouterr().out.splitlines() == [
        *pages,
        "claims: 2 hold; 1 too small; 1 opposite; 2 open, leaning for; 1 awaiting",
    ]
    tell_pages(tmp_path, values, {"report@gamma", "claims", "runs@kl_0"})
    assert capsys.readouterr().out.splitlines() == pages[2:]
    assert tuple(PLURAL) == ruling.WORDS


def test_ledgers_stand_side_by_side_without_those_that_mean_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(afterwards, "read_carefully", lambda *_: "")  # the other page: the next test's
    ledger(tmp_path / "reports", "mini", "holds")
    ledger(tmp_path / "reports", "smoke", "opposite")
    smoke, mini = ({"root": root, "profile": name} for name, root in (("smoke", "../.."), ("mini", ".")))
    made = tmp_path / "reports/claims.json"
    assert afterwards.make(tmp_path / "profiles/smoke", smoke, {"claims"}) == {} and not made.exists()
    assert afterwards.make(tmp_path, mini, {"claims"}) == {}
    assert json.loads(made.read_text())["rows"][0]["words"] == {"mini": "holds"}
    assert (
        "mini: the published direction in 1 of 1" in json.loads((tmp_path / "reports/alt.json").read_text())["forest"]
    )
    one = (tmp_path / "reports/mini/claims/claims.json").read_text()
    (tmp_path / "reports/mini/claims/claims.json").write_text("{}")
    wrong = afterwards.make(tmp_path, mini, {"claims"})
    assert [*wrong] == ["reports/claims.json"] and "expected a ledger" in wrong["reports/claims.json"]
    assert not made.exists()  # of the ledger before; the next command tries again
    assert afterwards.make(tmp_path, mini, {"claims"}, missing=True) == wrong
    (tmp_path / "reports/mini/claims/claims.json").write_text(one)
    assert afterwards.make(tmp_path, mini, {"claims"}, missing=True) == {} and made.exists()


def test_what_a_careful_reader_sees_is_made_with_the_tables(tmp_path, capsys):
    """Every report leads to this page, so that a profile without it is a site with dead links."""
    profile, reports = tmp_path / "profiles/imdb", tmp_path / "reports/imdb"
    shutil.copytree(ROOT / "reports/imdb", reports, ignore=shutil.ignore_patterns("careful"))
    table = lzma.decompress((reports / "per_seed.csv.xz").read_bytes())
    (reports / "per_seed.csv.xz").unlink()
    (reports / "per_seed.csv").write_bytes(table)
    profile.mkdir(parents=True)
    shutil.copy(ROOT / "profiles/imdb/params.yaml", profile)
    make = functools.partial(afterwards.make, profile, {"root": "../..", "profile": "imdb"}, {"report@kl"})
    made, page = reports / "careful/verdict.md", "reports/imdb/careful/verdict.md"
    assert make() == {} and "texts: " in capsys.readouterr().out
    assert made.read_text() == (ROOT / page).read_text()
    assert make(missing=True) == {} and capsys.readouterr().out == ""
    (reports / "per_seed.csv").unlink()
    assert "per_seed.csv: no such file; run the pipeline" in make()[page]
    assert not made.exists()  # of older tables; the next command tries again
    (reports / "per_seed.csv").write_text("")
    assert "per_seed.csv: No columns to parse from file; run the pipeline" in make(missing=True)[page]
    (reports / "per_seed.csv").write_bytes(table)
    assert make(missing=True) == {} and made.exists()  # mended


def test_what_failed_is_told_with_what_it_kept_from_starting(capsys):
    assert tell_wrong({}) and capsys.readouterr().out == ""
    assert not tell_wrong({"runs@b": "no memory", "runs@a": "no disk"}, {"report@kl", "claims"})
    assert capsys.readouterr().out.splitlines() == [
        "runs@b: no memory",
        "runs@a: no disk",
        "not started, as they need what failed: claims, report@kl",
        "FAILED: runs@a, runs@b. Mend it and type the same command: finished work is kept.",
    ]


def test_the_notebook_of_a_failure_is_the_one_its_log_names(tmp_path):
    log = tmp_path / "a.log"
    log.write_text(
        "Traceback\nbuild/run.ipynb: cell 3 failed; see executed/runs/a.ipynb\nValueError: x\nERROR: failed to "
        "reproduce\n"
    )
    assert executed_notebook(log) == "executed/runs/a.ipynb" and last_words(log_tail(log)) == "ValueError: x"
    log.write_text("Killed\n")
    assert (
        executed_notebook(log) == "" == executed_notebook(tmp_path / "none") and last_words(log_tail(log)) == "Killed"
    )


def test_time_left_is_that_of_a_schedule_and_is_corrected(tmp_path):
    durations = Durations(tmp_path / "d.json")
    durations.known = {"a": 100.0, "b": 50.0, "c": 50.0, "d": 10.0}
    needs = {"a": set(), "b": set(), "c": set(), "d": {"a", "b", "c"}}
    assert durations.left(needs, {}, jobs=2) == pytest.approx(110)  # a beside b, c; then d
    assert durations.left(needs, {}, jobs=1) == pytest.approx(210)
    assert durations.left({"d": {"a"}}, {"a": 30.0}, jobs=2) == pytest.approx(80)
    durations.record("b", 650.0)  # 600 s later than expected: everything is slower, by less than the one ratio of 13
    assert 2 * 110 < durations.left(needs, {}, jobs=2)
    assert Durations(tmp_path / "d.json").known["b"] == 650.0
    first = {name: Durations(tmp_path / name / "none.json") for name in ("smoke", "mini", "imdb", "new")}
    assert first["mini"].guess("models@3") > first["mini"].guess("nb@run")
    assert [first[n].guess("models@3") / first["mini"].guess("models@3") for n in first] == [
        pytest.approx(11 / 95),
        1,
        pytest.approx(2200 / 95),
        1,
    ]


def test_the_useful_end_of_a_log(tmp_path):
    log = tmp_path / "a.log"
    log.write_text(
        "one\n\nsteps:  50%|#####     | 3/6 [00:03<00:03,  1.0it/s]\rsteps:  83%|########  | 5/6 [00:05<00:01]\ntwo\n"
    )
    assert log_tail(log) == ["one", "two"] and log_tail(tmp_path / "none") == []
    assert progress_of(log) == "steps:  83% 5/6 [00:05<00:01]" and progress_of(tmp_path / "none") == ""
    assert [clock(5), clock(65), clock(3725)] == ["0:05", "1:05", "1:02:05"]
