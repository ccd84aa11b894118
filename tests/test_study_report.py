"""The study's report and pipeline: the checks of its tests, the paper's p-values, real preferences, stages and their
code."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
import torch
from ruamel.yaml import YAML

from tests.executed import reached
from workbook.stages import study_pipeline as pipeline
from workbook.study import preference_model, protocol, real, report
from workbook.texts.hub import DataError

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def values():
    return YAML(typ="safe", pure=True).load(ROOT / "study" / "params.yaml")


def test_the_settings_of_the_study_are_sound_and_the_pilots_seed_is_not_among_them(values):
    config = protocol.Config.model_validate(values["study"])
    assert set(values["study"]) == set(protocol.Config.model_fields), (
        "every value is written down, none left to a default"
    )
    assert len(set(values["seeds"])) == 5 and 100 not in values["seeds"] and config.min_new_tokens == 12


@pytest.mark.parametrize("seed", ["$(touch x)0", "0'; touch x; '", "../0", -1, True])
def test_a_seed_that_is_no_whole_number_reaches_no_command(tmp_path, monkeypatch, values, seed):
    (tmp_path / "study").mkdir()
    with open(tmp_path / "study" / "params.yaml", "w", encoding="utf-8") as file:
        YAML(typ="safe").dump({**values, "seeds": [0, seed]}, file)
    monkeypatch.setattr(pipeline, "ROOT", tmp_path)
    with pytest.raises(ValueError, match="study/params.yaml: seeds: expected whole numbers"):
        pipeline.everything(1)


def test_every_stage_depends_on_its_code_and_a_draw_not_on_what_shows_it(tmp_path, values):
    pipeline.code(tmp_path)
    stages = YAML(typ="safe", pure=True).load(ROOT / "study" / "dvc.yaml")["stages"]
    deps = [d for stage in stages.values() for d in stage.get("do", stage)["deps"] if d.startswith("build/code/")]
    assert (
        sorted(deps)
        == sorted(f"build/code/{name}.json" for name in pipeline.USES)
        == sorted(f"build/code/{p.name}" for p in tmp_path.iterdir())
    )
    used = {name: reached(roots) for name, roots in pipeline.USES.items()}
    assert {
        "workbook.study.protocol:run",
        "rlnlp.learners.ppo:train",
        "workbook.texts.corpus:generate",
        "workbook.study.raters:simulate_choices",
    } <= used["draw"]
    shows = ("workbook.study.results", "workbook.study.agreement", "workbook.study.report", "workbook.stages")
    assert not [name for name in used["draw"] if name.startswith(shows)]
    assert all(
        any(name.startswith(f"{module}:") for name in used["report"]) for module in (*shows[:3], "workbook.stages.nb")
    )


def test_data_that_are_given_or_taken_away_are_noticed(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    seen = []
    for text in ("", "one", "two"):
        if text:
            (tmp_path / "datasets" / "mine").mkdir(parents=True, exist_ok=True)
            (tmp_path / "datasets" / "mine" / "train.parquet").write_text(text)
        monkeypatch.setenv("RLNLP_MIRROR", str(tmp_path))
        pipeline.mirror_digest(tmp_path / "study", "mine")
        seen.append((tmp_path / "study" / "build" / "given.json").read_text())
    assert len(set(seen)) == 3 and json.loads(seen[0]) == {"mine": None} and str(tmp_path) not in seen[2]


def test_false_positives_are_counted_and_the_naive_test_has_too_many():
    found = report.calibrate(40, 2)
    assert found["Likert ratings"]["naive"]["of"] == 40 and found["Likert ratings"]["mixed"]["of"] == 2
    for tests in found.values():
        assert tests["naive"]["found"] > 5 > tests["clustered"]["found"], (
            tests
        )  # 2 of 40 are honest; 40 draws exceed 4 once in 20
    table = report.calibration_table({"choices": {"naive": {"found": 10, "of": 40}, "mixed": {"found": 0, "of": 0}}})
    assert table.loc["choices", "every judgement for itself"].startswith("25.0% [14.2%, 40.2%]")
    assert "raters 12" in table.loc["choices", "sizes"]


def test_the_papers_comparison_and_the_cells_that_cannot_be():
    assert report.paper_comparison()["p"].tolist() == ["0.008", "0.033"]
    for question, printed in (("coherence", 0.008), ("commonsense", 0.007)):
        rows = report.published(question)
        cell = rows[(rows["first"] == "NLPO+Supervised") & (rows["second"] == "PPO+Supervised")].iloc[0]
        assert cell["p"] == printed and cell["implied"] > 0.7
        kept = rows[(rows["p"] > 0.1) & (rows["p"] < 0.9)]
        assert (kept["p"] - kept["implied"]).abs().max() < 0.02, "what the curve goes through fits it"
        assert rows["implied"].is_monotonic_decreasing
    assert "printed p 0.008, on the curve 0.80" in report.impossible().get_label()


def written(folder, n=40):
    """A made-up data set in which the right answer says "good"; the longer one is right in a quarter of the pairs."""
    home = folder / "datasets" / "mine"
    home.mkdir(parents=True)
    for split, numbers in (("train", range(n)), ("test", range(n, 2 * n))):
        rows = [{"prompt": f"say {i}", "chosen": "good" + " word" * (i % 4 == 0), "rejected": "bad"} for i in numbers]
        rows = [{**row, "rejected": row["rejected"] + " word" * (i % 4 > 0)} for i, row in zip(numbers, rows)]
        rows += [{"prompt": "say 0", "chosen": "good", "rejected": "bad"}] * (split == "test")  # a prompt of both
        pd.DataFrame(rows).to_parquet(home / f"{split}.parquet")
    return str(folder)


def test_real_preferences_are_measured_beside_length_and_no_text_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(real, "SHAPE", {**real.SHAPE, "width": 16, "learning_rate": 1e-2, "max_tokens": 32})
    found = real.measure("mine", [0, 1], 10, "bradley-terry", 300, written(tmp_path))
    assert (
        found["given"]
        and (found["train"], found["test"], found["prompts in both, left out"]) == (40, 40, 1)
        and set(found["accuracy by seed"]) == {"0", "1"}
    )
    over = found["over prompts"]
    assert over["longer"]["estimate"] == 0.25 and over["learned, mean of seeds"]["estimate"] > 0.8
    assert over["difference"]["estimate"] == pytest.approx(over["learned, mean of seeds"]["estimate"] - 0.25)
    assert "**better than** choosing the longer one" in real.said(found) and "good" not in json.dumps(found)
    worse = {**over, "difference": {"estimate": -0.1, "low": -0.2, "high": -0.01}}
    assert "**worse than**" in real.said({**found, "over prompts": worse})


def test_without_real_preferences_the_report_says_how_to_give_them(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    found = real.measure("mine", [0], 1, "bradley-terry", 300, str(tmp_path))
    assert found == {"given": False, "data set": "mine"} and "$RLNLP_MIRROR/datasets/mine" in real.said(found)
    (tmp_path / "datasets" / "mine").mkdir(parents=True)
    pd.DataFrame({"prompt": ["p"], "chosen": ["a"], "reject": ["b"]}).to_parquet(
        tmp_path / "datasets" / "mine" / "train.parquet"
    )
    with pytest.raises(DataError, match="no column 'rejected'"):
        real.measure("mine", [0], 1, "bradley-terry", 300, str(tmp_path))


def test_a_tie_of_scores_is_half_right():
    assert real._right(torch.tensor([2.0, 1.0, 0.0]), torch.tensor([1.0, 1.0, 1.0])) == [1.0, 0.5, 0.0]
    quality = preference_model.quality(torch.tensor([2.0, 1.0, 0.0]), torch.tensor([1.0, 1.0, 1.0]))
    assert quality.accuracy == 0.5


def test_samples_are_the_first_ones_of_every_policy(tmp_path):
    texts = {name: [f"{name} {i}" for i in range(30)] for name in report.COLUMNS}
    (tmp_path / "texts.json").write_text(json.dumps({"prompts": [f"prompt {i}" for i in range(30)], "texts": texts}))
    rows = report.samples(tmp_path, 3)
    assert [row["prompt"] for row in rows] == ["prompt 0", "prompt 1", "prompt 2"] and rows[2][
        protocol.BOTH
    ] == f"{protocol.BOTH} 2"
    page = report.samples_markdown(tmp_path, 7)
    assert (
        "Seed 7, the first 20 prompts" in page
        and page.count("\n## ") == 4
        and "before RL 19" in page
        and "before RL 20" not in page
    )
