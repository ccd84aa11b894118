"""A stage's file of settings changes exactly when a value that the stage reads does."""

import json
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from rlnlp import experiment, sections

ROOT = Path(__file__).parent.parent
SHIPPED = YAML(typ="safe", pure=True).load((ROOT / "params.yaml").read_text(encoding="utf-8"))


def files(folder: Path, **changes) -> dict[str, bytes]:
    """What is written for the shipped settings with other values; `a__b=v` sets b in the section a."""
    values = json.loads(json.dumps(SHIPPED))
    for name, value in changes.items():
        section, _, key = name.partition("__")
        if key:
            values[section][key] = value
        else:
            values[section] = value
    folder.mkdir()
    (folder / "params.yaml").write_text(json.dumps(values))
    assert sections.main([str(folder / "params.yaml"), str(folder / "out")]) == 0
    return {path.stem: path.read_bytes() for path in (folder / "out").iterdir()}


@pytest.mark.parametrize("change, stages", [
    ({"learner__gamma": 0.5}, {"run", "tune_ppo", "tune_nlpo", "report"}),
    ({"nlpo__mask_top_p": 0.5}, {"run", "tune_nlpo", "report"}),
    ({"supervised__updates": 3}, {"run", "report"}),
    ({"language_model__steps": 3}, {"models", "variants"}),
    ({"evaluation__human_reviews": 3}, {"data", "run", "tune_ppo", "tune_nlpo", "report"}),
    ({"claims": []}, {"report", "claims"}),
    ({"seeds": [1]}, {"run", "report", "claims"}),
    ({"device": "cuda"}, {"models", "variants", "tune_ppo", "tune_nlpo", "run"}),
    ({"runs__ppo_kl_0": {"algorithm": "ppo"}}, set()),  # a stage of its own reads that
])  # fmt: skip
def test_a_value_changes_the_files_of_the_stages_that_read_it(tmp_path, change, stages):
    before, after = files(tmp_path / "before"), files(tmp_path / "after", **change)
    assert before.keys() == after.keys() == sections.READ.keys()
    assert {name for name in before if before[name] != after[name]} == stages


def test_a_run_follows_all_that_its_fingerprint_holds():
    assert set(experiment.SETTINGS_READ) <= set(sections.READ["run"])


def test_what_is_not_there_is_named():
    with pytest.raises(KeyError, match="params.yaml has no learner.gama"):
        sections.picked({"learner": {"gamma": 1.0}}, ["learner.gama"])


def test_a_wrong_call_says_what_was_expected(capsys):
    assert sections.main([]) == 2 and "usage: python -m rlnlp.sections" in capsys.readouterr().err
