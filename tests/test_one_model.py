"""Profiles whose seeds share one base model: their pages say so, nothing pools them, without it one error."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from rlnlp.settings import ConfigError
from tests.executed import ROOT
from workbook.ledger import combine, forest, one_model, page, profile
from workbook.results.files import PER_SEED
from workbook.runs import checks, conditions, made_here
from workbook.store.files import atomic_json
from workbook.synthesis import sources

REVIEWS = ROOT / "profiles" / "reviews" / "params.yaml"


@pytest.fixture(scope="module")
def rows():
    return json.loads((ROOT / "reports" / "full" / "claims" / "claims.json").read_text(encoding="utf-8"))["rows"]


@pytest.fixture(scope="module")
def marked(rows):
    return [{**row, "profile": "reviews", "one_model": True} for row in rows]


@pytest.mark.parametrize("name, expected", [("reviews", True), ("imdb", False), ("full", False), ("smoke", False)])
def test_seeds_share_a_model_where_the_task_says_that_draws_are_one(name, expected):
    assert one_model.shared(checks.load(ROOT / "profiles" / name / "params.yaml")) is expected


def test_the_ledgers_page_says_for_what_its_words_hold(rows, marked):
    assert one_model.SAID in page.markdown(marked) and one_model.SAID not in page.markdown(rows)
    said = page.answer(marked)
    assert "seeds of one base model:" in said and said.endswith(one_model.SAID)
    assert "base model" not in page.answer(rows)


def test_side_by_side_it_is_marked_and_the_others_are_not(tmp_path, rows, marked):
    for name, found in (("mini", rows), ("reviews", marked)):
        atomic_json(tmp_path / f"{name}.json", {"rows": found})
    combine.combine({name: tmp_path / f"{name}.json" for name in ("mini", "reviews")}, tmp_path)
    text = (tmp_path / "claims.md").read_text(encoding="utf-8")
    assert "| mini | reviews (one base model) |" in text and f"reviews: {one_model.SAID}" in text
    before = f"a\n{combine.BEGIN}\n{combine.END}\nb"
    shown = combine.readme(before, tmp_path / "claims.json")
    assert "| mini | reviews (one base model) |" in shown and f"reviews: {one_model.SAID}" in shown
    combine.combine({"mini": tmp_path / "mini.json"}, tmp_path)
    assert "one base model" not in combine.readme(before, tmp_path / "claims.json")
    assert set(json.loads((tmp_path / "claims.json").read_text())) == {"rules", "rows"}


def test_the_forest_names_it_in_its_legend(rows, marked):
    labels = [text.get_text() for text in forest.forest({"mini": rows, "reviews": marked}).legends[0].get_texts()]
    assert [label.endswith("of one base model)") for label in labels] == [False, False, True]


def test_the_rows_of_a_profile_are_marked_when_its_ledger_is_written(tmp_path, rows, monkeypatch):
    monkeypatch.setattr(profile.judge, "ledger", lambda *_: rows)
    monkeypatch.setattr(profile.judge, "runs_of", lambda *_: [])
    monkeypatch.setattr(profile.tables, "load", lambda *_: None)
    monkeypatch.setattr(profile.forest, "contrasts", lambda _: [])
    for name, expected in (("reviews", True), ("imdb", False)):
        params = checks.load(ROOT / "profiles" / name / "params.yaml")
        given = SimpleNamespace(
            folder=params.folder, root=params.root, task=params.task, seeds=params.seeds, claims=(), profile=name,
            all_runs=params.all_runs, reports_folder=tmp_path / name,
        )  # fmt: skip
        assert one_model.marked(profile.write(given)) is expected
        assert (one_model.SAID in (tmp_path / name / "claims" / "claims.md").read_text(encoding="utf-8")) is expected


def test_it_is_not_pooled(tmp_path):
    (tmp_path / PER_SEED).write_text("x")
    for name, expected in (("reviews", False), ("imdb", True)):
        task = SimpleNamespace(name=name)
        params = SimpleNamespace(task=task, seeds=(1, 2), claims=("P01",), profile="x", reports_folder=tmp_path)
        assert sources.counts(params) is expected


def test_without_the_base_model_the_pipeline_stops_at_its_first_stage_with_one_error(tmp_path, capsys):
    folder = tmp_path / "profiles" / "reviews"
    folder.mkdir(parents=True)
    for name in ("params.yaml", "base_model.yaml", "overlay.yaml"):
        (folder / name).write_text((REVIEWS.parent / name).read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "params.yaml").write_text((ROOT / "params.yaml").read_text(encoding="utf-8"), encoding="utf-8")
    assert conditions.main([str(folder / "params.yaml"), str(folder / "build")]) == 1
    said = capsys.readouterr().err.strip()
    assert "has not been made yet" in said and "workbook.stages.base_model train" in said and "\n" not in said
    (folder / "base").mkdir()
    (folder / "base" / "model.safetensors").touch()
    (folder / "base" / "config.json").write_text("{}")
    assert conditions.main([str(folder / "params.yaml"), str(folder / "build")]) == 0
    (folder / "base" / "config.json").unlink()
    made_here.check(checks.load(folder / "params.yaml", **{"bring.model": "somebody/else"}))
    (folder / "base" / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match="language_model.context.* as it is the evaluator's; found 32"):
        checks.load(folder / "params.yaml", **{"language_model.context": 32})


def test_the_profile_asks_what_it_was_made_to_ask():
    params = checks.load(REVIEWS)
    assert len(params.all_runs) >= 20 and len(params.seeds) == 5 and not params.tune.own
    assert params.sampling.min_new_tokens == params.sampling.max_new_tokens == 24
    configs = {name: params.learner_config(name) for name in params.all_runs}
    for algorithm in ("ppo", "nlpo"):
        assert {configs[f"{algorithm}_kl_{b}"].kl_coef for b in ("0", "default", "large")} == {0.0, 0.1, 0.4}
        assert {configs[f"{algorithm}_gamma_{g}"].gamma for g in ("050", "095", "100")} == {0.5, 0.95, 1.0}
    assert {configs[n].mask_top_p for n in ("nlpo_p_050", "nlpo_kl_default", "nlpo_p_100")} == {0.5, 0.9, 1.0}
    assert {params.run(n).reward for n in ("labels_10", "labels_50")} == {"reward_10", "reward_50"}
    assert {params.run(n).start for n in ("sup_ppo", "sup_nlpo")} == {"supervised"} and "grpo" in configs
