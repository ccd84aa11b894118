"""One table of all runs: nothing lost, nothing invented, the same columns everywhere."""

import json
import math
import shutil

import pytest

from tests.executed import ROOT
from workbook.ledger import careful
from workbook.results import files, pack, tidy
from workbook.results.results import load
from workbook.runs import checks
from workbook.site.committed import read_texts
from workbook.store.tables import read_table, write_table

RUN = {"condition": "a", "seed": 1, "split": "test", "decoding": "plain", "score": 0.5}


@pytest.fixture
def profile(tmp_path):
    """Two runs with different columns, one that failed, and one that params.yaml does not name any more."""
    folder = tmp_path / "profiles" / "x"
    rows = [
        {**RUN, "seed": s, "split": split, "score": v}
        for s, split, v in ((1, "test", 0.5), (2, "test", 0.25), (1, "half", 0.0))
    ]
    write_table(folder / "runs/a/per_seed.csv", [*rows, {**RUN, "decoding": "top_p", "score": 0.9}])
    write_table(
        folder / "runs/d/per_seed.csv",
        [{**RUN, "condition": "d", "score": None, "judge": 1 / 3, "kl_deployed": math.inf}],
    )
    write_table(folder / "runs/gone/per_seed.csv", [{**RUN, "condition": "gone"}])
    for condition in ("a", "d"):
        run = folder / "runs" / condition
        (run / "config.json").write_text(f'{{"condition": "{condition}", "run": {{}}, "learner": {{"updates": 2}}}}')
        line = {"condition": condition, "prompt": " ".join("abcdefghijklmnopqrstuvwxyz"), "score": 0.5}
        lines = [{**line, "seed": s, "response": f"x{i}"} for i in range(7) for s in (1, 2)]
        (run / "samples.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    curve = {"condition": "a", "seed": 1, "update": 1, "objective/score": 1 / 3, "policy/loss": 0.1}
    write_table(folder / "runs/a/curves.csv", [curve, {**curve, "seed": 2, "objective/score": 2 / 3}])
    (folder / "runs/a/episode.json").write_text('{"tokens": ["a"], "kl": [0.123456], "prompt": "x"}')
    (folder / "tune").mkdir()
    (folder / "tune/ppo.json").write_text('{"kl_coef": 0.05}')
    (folder / "models/draw1").mkdir(parents=True)
    (folder / "models/draw1/models.json").write_text('{"policy": {"vocabulary": 710}}')
    (folder / "params.yaml").write_text(
        "root: ../..\nprofile: x\nseeds: [1, 2]\nruns: {a: {}, failed: {}}\ncontinued: {d: {}}\n"
    )
    return folder


def test_every_row_of_every_listed_run_and_no_other(profile, tmp_path):
    assert tidy.main([str(profile / "params.yaml")]) == 0
    rows = read_table(tmp_path / "reports/x/per_seed.csv")
    assert [(r["condition"], r["seed"], r["split"], r["decoding"], r["score"], r["judge"]) for r in rows] == [
        ("a", 1, "test", "plain", 0.5, None),
        ("a", 2, "test", "plain", 0.25, None),
        ("a", 1, "half", "plain", 0.0, None),
        ("a", 1, "test", "top_p", 0.9, None),
        ("d", 1, "test", "plain", None, 1 / 3),
    ]


def test_means_are_over_seeds_and_never_over_some_of_them(profile, tmp_path):
    tidy.main([str(profile / "params.yaml")])
    found = json.loads((tmp_path / "reports/x/metrics.json").read_text())
    assert found == {"a": {"score": 0.375}, "d": {"judge": 0.333333}}


def test_a_learning_curve_is_the_mean_over_the_seeds_that_have_the_update():
    scores = {("a", 1, 1): 0.5, ("a", 2, 1): 0.25, ("a", 1, 2): 2 / 3, ("a", 2, 2): None, ("b", 1, 2): 0.125}
    rows = [{"condition": c, "seed": s, "update": u, "objective/score": v} for (c, s, u), v in scores.items()]
    silent = {"condition": "supervised", "seed": 1, "update": 1}  # samples nothing, so has no score
    assert tidy.mean_scores([*reversed(rows), silent]) == [
        {"update": 1, "a": 0.375, "b": None},
        {"update": 2, "a": 0.666667, "b": 0.125},
    ]


def test_the_other_tables_hold_what_reports_read_and_no_more(profile, tmp_path):
    tidy.main([str(profile / "params.yaml")])
    out = tmp_path / "reports/x"
    curves = read_table(out / "curves.csv")
    assert [(r["seed"], r["objective/score"]) for r in curves] == [(1, 0.333333), (2, 0.666667)]
    assert "policy/loss" not in curves[0]
    assert read_table(out / "learning_curves.csv") == [{"update": 1, "a": 0.5}]
    texts = [json.loads(line) for line in (out / "samples.jsonl").read_text().splitlines()]
    of = {(c, s): [t["response"] for t in texts if (t["condition"], t["seed"]) == (c, s)] for c in "ad" for s in (1, 2)}
    every = [f"x{i}" for i in range(7)]
    assert of == {("a", 1): every, ("a", 2): every[:5], ("d", 1): every, ("d", 2): every[:5]}
    assert {t["prompt"] for t in texts} == {"… " + " ".join("ghijklmnopqrstuvwxyz")}  # twenty words
    assert set(json.loads((out / "conditions.json").read_text())) == {"a", "d"}
    assert json.loads((out / "episodes.json").read_text()) == {"a": {"tokens": ["a"], "kl": [0.1235], "prompt": "x"}}
    facts = json.loads((out / "facts.json").read_text())
    assert facts == {
        "models": {"1": {"policy": {"vocabulary": 710}}},
        "tune": {"ppo": {"kl_coef": 0.05}},
        "variants": {},
    }


def test_a_packed_table_is_the_one_where_there_is_no_other(tmp_path):
    assert files.table_of(tmp_path) is None and files.per_seed(tmp_path) == tmp_path / "per_seed.csv"
    for name in ("per_seed.csv.xz", "per_seed.csv"):  # each goes before those that were there
        (tmp_path / name).touch()
        assert files.table_of(tmp_path) == files.per_seed(tmp_path) == tmp_path / name
    (tmp_path / "draws.csv.xz").touch()
    assert files.table_of(tmp_path) == tmp_path / "draws.csv.xz"


def test_a_wrong_call_says_what_was_expected(capsys):
    assert tidy.main([]) == 2 and "usage: python -m workbook.results.tidy params.yaml" in capsys.readouterr().err


def test_packing_what_no_profile_is_called_names_those_that_there_are(capsys):
    for name, said in (("minni", "; did you mean 'mini'?"), ("nope", "; expected one of follow_up, full, ")):
        assert pack.main([name]) == 2
        assert said in (told := capsys.readouterr().err) and told.count("\n") == 1


def test_a_profile_whose_tables_are_packed_reads_the_same(tmp_path, monkeypatch, capsys):
    """Every table of ``mini``, packed twice to the same bytes; numbers, curves, texts and episodes are those of the
    tables; a name that is none is told the nearest."""
    reports = tmp_path / "reports" / "mini"
    shutil.copytree(ROOT / "reports/mini", reports, ignore=shutil.ignore_patterns("*.svg", "*.md"))
    plain = {name: files.read_text(files.standing(reports, name)) for name in pack.LARGE}
    for name, text in plain.items():
        (reports / files.packed(name)).unlink(missing_ok=True)
        (reports / name).write_text(text, encoding="utf-8")
    shutil.copy(ROOT / "params.yaml", tmp_path)
    params = checks.load(tmp_path / "params.yaml")
    conditions = list(params.all_runs)
    before = load(params, conditions)
    texts, by_page = careful.samples(reports), read_texts(reports)
    monkeypatch.setattr(pack, "ROOT", tmp_path)
    assert pack.main(["mni"]) == 2 and "did you mean 'mini'?" in capsys.readouterr().err
    assert pack.main(["mini"]) == 0
    assert not any((reports / name).exists() for name in pack.LARGE) and len(pack.LARGE) == 5
    first = {name: (reports / files.packed(name)).read_bytes() for name in pack.LARGE}
    after = load(params, conditions)
    assert not after.lacking and after.samples == before.samples
    assert after.episodes == before.episodes and after.configs == before.configs
    assert after.per_seed.equals(before.per_seed) and after.curves.equals(before.curves)
    assert careful.samples(reports) == texts and read_texts(reports) == by_page
    assert pack.pack(reports) == []
    for name, text in plain.items():
        (reports / name).write_text(text, encoding="utf-8")
    assert pack.main(["mini", "curves.cvs"]) == 2 and "did you mean 'curves.csv'?" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in pack.pack(reports)} == {
        files.packed(n): b for n, b in first.items()
    }
