"""A stage's file of settings changes exactly when a value that the stage reads does."""

import json
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from rlnlp import config, experiment, sections

ROOT = Path(__file__).parent.parent
SHIPPED = YAML(typ="safe", pure=True).load((ROOT / "params.yaml").read_text(encoding="utf-8"))


def files(folder: Path, **changes) -> dict[str, bytes]:
    """What is written for the shipped settings with other values; `a__b=v` sets b in the section a, `a__b__c` goes deeper."""
    values = json.loads(json.dumps(SHIPPED))
    for name, value in changes.items():
        *sections_, key = name.split("__")
        place = values
        for section in sections_:
            place = place[section]
        place[key] = value
    folder.mkdir()
    (folder / "params.yaml").write_text(json.dumps(values))
    assert sections.main([str(folder / "params.yaml"), str(folder / "out")]) == 0
    return {path.stem: path.read_bytes() for path in (folder / "out").iterdir()}


SEARCHES = {f"tune_{algorithm}" for algorithm in ("ppo", "nlpo", "a2c", "reinforce", "grpo")}


@pytest.mark.parametrize("change, stages", [
    ({"learner__gamma": 0.5}, {"run", *SEARCHES, "report"}),
    ({"nlpo__mask_top_p": 0.5}, {"run", "tune_nlpo", "report"}),
    ({"supervised__updates": 3}, {"run", "report"}),
    ({"language_model__steps": 3}, {"models", "variants", "worlds"}),
    ({"evaluation__human_reviews": 3}, {"data", "run", *SEARCHES, "report"}),
    ({"algorithms__dqn__scale": 0.1}, {"run", *SEARCHES, "report"}),
    ({"worlds__numbers__learner__gamma": 0.5}, {"run", "report"}),
    ({"worlds__numbers__steps": 3}, {"worlds", "run", "report"}),
    ({"worlds": {}}, {"worlds", "run", "report"}),
    ({"tune__own": {}}, {*SEARCHES, "report"}),
    ({"claims": []}, {"report", "claims"}),
    ({"seeds": [1]}, {"run", "report", "claims"}),
    ({"device": "cuda"}, {"models", "variants", "worlds", *SEARCHES, "run"}),
    ({"runs__ppo_kl_0": {"algorithm": "ppo"}}, set()),  # a stage of its own reads that
])  # fmt: skip
def test_a_value_changes_the_files_of_the_stages_that_read_it(tmp_path, change, stages):
    before, after = files(tmp_path / "before"), files(tmp_path / "after", **change)
    assert before.keys() == after.keys() == sections.READ.keys()
    assert {name for name in before if before[name] != after[name]} == stages


def test_a_run_follows_all_that_its_fingerprint_holds():
    names = {*experiment.SETTINGS_READ, *experiment.READ_IN_A_WORLD, *config.OWN_SECTIONS, "algorithms", "worlds"}
    assert {name.partition(".")[0] for name in names} <= set(sections.READ["run"])


def test_every_search_has_its_settings():
    assert {f"tune_{algorithm}" for algorithm in config.SEARCHED.values()} == {name for name in sections.READ if name.startswith("tune")}


def test_a_star_takes_the_value_of_every_entry():
    values = {"worlds": {"a": {"texts": 1, "learner": {}}, "b": {"texts": 2}}}
    assert sections.picked(values, ["worlds.*.texts"]) == {"worlds.*.texts": {"a": 1, "b": 2}}
    assert sections.picked({"worlds": {}}, ["worlds.*.texts"]) == {"worlds.*.texts": {}}
    with pytest.raises(KeyError, match=r"worlds\.\*\.steps"):
        sections.picked(values, ["worlds.*.steps"])


def test_what_is_not_there_is_named():
    with pytest.raises(KeyError, match="params.yaml has no learner.gama"):
        sections.picked({"learner": {"gamma": 1.0}}, ["learner.gama"])


def test_a_wrong_call_says_what_was_expected(capsys):
    assert sections.main([]) == 2 and "usage: python -m rlnlp.sections" in capsys.readouterr().err
