"""A stage is given what it reads and nothing else: a file changes exactly when a value that its stage reads does."""

import json
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from workbook.runs import algorithms, checks, conditions, origins

ROOT = Path(__file__).resolve().parents[1]
SEARCHED = {"ppo": {}, "nlpo": {}, "a2c": {"updates": 60}, "reinforce": {"updates": 60}, "grpo": {}}


def shipped(**changes):
    """The profile mini, with a search, which it has not."""
    return checks.load(ROOT / "params.yaml", **{"tune.own": SEARCHED, **changes})


SHIPPED = shipped()
RUNS = SHIPPED.all_runs


def of(*names: str, world: str | None = None) -> set[str]:
    """The files of the conditions that run these algorithms, all if none is named."""
    found = (name for name, e in RUNS.items() if world is None or e.get("world", "") == world)
    return {f"conditions/{name}.json" for name in found if not names or RUNS[name]["algorithm"] in names}


def settings(*names: str) -> set[str]:
    return {f"settings/{name}.json" for name in names}


def written(params) -> dict[str, str]:
    return {name: json.dumps(value) for name, value in conditions.files(params).items() if "origins" not in name}


@pytest.fixture(scope="module")
def before() -> dict[str, str]:
    return written(SHIPPED)


SEARCHES = settings("tune_ppo", "tune_nlpo", "tune_a2c", "tune_reinforce", "tune_grpo")
LIKE_PPO = ("ppo", "nlpo", "dropout", "mismatch", "masked")
REVIEWS = of(world="")


@pytest.mark.parametrize(
    "change, expected",
    [
        ({"algorithms.dqn.scale": 0.1}, of("dqn") | settings("report")),
        (
            {"worlds.numbers.learner.gamma": 0.5},
            of(*LIKE_PPO, "a2c", "trpo", world="numbers") - {"conditions/numbers_ppo_end.json"} | settings("report"),
        ),
        ({"worlds.numbers.steps": 3}, settings("worlds", "report")),
        ({"language_model.steps": 3}, settings("models", "variants", "worlds")),
        ({"nlpo.mask_min_tokens": 2}, of("nlpo") | settings("tune_nlpo", "report")),
        (
            {"supervised.updates": 3},
            (of("supervised", "filtered") - {"conditions/supervised_long.json"}) | settings("report"),
        ),
        ({"evaluation.human_reviews": 3}, settings("data", "report")),
        (
            {"evaluation.beams": 3},
            {f"conditions/{n}.json" for n, e in RUNS.items() if "beam" in e.get("decodings", ())} | settings("report"),
        ),
        ({"evaluation.samples": 3}, of() | SEARCHES | settings("report")),
        ({"task.judge_reviews": 300}, settings("data", "report")),
        ({"task.test_prompts": 5000}, of(world="numbers") | settings("data", "report")),
        ({"variants.dropout": 0.1}, settings("variants", "report")),
        ({"reward_model.epochs": 1}, settings("models", "variants")),
        ({"reward_model.max_tokens": 65}, REVIEWS | SEARCHES | settings("models", "variants")),
        ({"tune.updates": 3}, SEARCHES - settings("tune_a2c", "tune_reinforce") | settings("report")),
        ({"runs.ppo_kl_0.kl_coef": 0.001}, {"conditions/ppo_kl_0.json"}),
        ({"seeds": [101]}, of() | settings("report", "claims")),
        ({"claims": []}, settings("report", "claims")),
        ({"threads": 2}, of() | SEARCHES | settings("models", "variants", "worlds")),
        ({"reports.kl.note": "another"}, set()),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_value_changes_the_files_of_the_stages_that_read_it(before, change, expected):
    after = written(shipped(**change))
    assert before.keys() == after.keys()
    assert {name for name in before if before[name] != after[name]} == expected


def test_a_settings_description_is_in_no_file(before, monkeypatch):
    for name in algorithms.names():
        for field in algorithms.module(name).Config.model_fields.values():
            monkeypatch.setattr(field, "description", "another meaning")
    assert written(shipped()) == before


@pytest.mark.parametrize(
    "path", [ROOT / "params.yaml", *sorted(ROOT.glob("profiles/*/params.yaml"))], ids=lambda path: path.parent.name
)
def test_a_file_read_back_gives_the_run_and_the_learner_of_the_settings(path, tmp_path):
    params = checks.load(path)
    names = list(params.all_runs)[:: max(1, len(params.all_runs) // 12)]
    (tmp_path / "build/conditions").mkdir(parents=True)
    for name in names:
        text = json.dumps(conditions.condition(params, name).model_dump(mode="json", exclude_none=True))
        (tmp_path / f"build/conditions/{name}.json").write_text(text)
        given = conditions.load_condition(name, tmp_path)
        tuned = {"learning_rate": 0.0123} if given.searched else {}
        assert given.config(**tuned) == params.learner_config(name, tuned) and given.run == params.run(name)
        assert given.folder == tmp_path and given.seeds == params.seeds
    for name in params.tune.own:
        assert conditions.search(params, name).config() == params.algorithm_config(name)
    with pytest.raises(FileNotFoundError, match=r"nothing.json: no such file.*dvc repro"):
        conditions.load_condition("nothing", tmp_path)


def test_each_value_has_a_line_and_the_line_has_the_value():
    """Of a profile: in its overlay where that says it, else in the file below it."""
    folder = ROOT / "profiles/smoke"
    params = checks.load(folder / "params.yaml")
    where = origins.Origins(params)
    found = where.of(conditions.condition(params, "numbers_ppo"))
    said = {"gamma": "params.yaml", "kl_coef": "overlay.yaml", "learning_rate": "overlay.yaml", "clip": "params.yaml"}
    for name, file in said.items():
        place, line = found[f"learner.{name}"].split(" ")[0].rsplit(":", 1)
        assert place.endswith(file), found[f"learner.{name}"]
        assert name in (folder / place).read_text().splitlines()[int(line) - 1]
    assert found["evaluation.batch_size"].startswith("overlay.yaml:")
    assert found["run.vocabulary"] == "default of a run"
    found = where.of(given := conditions.condition(params, "ppo_kl_0"))
    assert found["learner.learning_rate"].startswith("tune/ppo.json, the best of overlay.yaml:")
    assert "(runs.ppo_kl_0.kl_coef)" in found["learner.kl_coef"]
    assert where.of(conditions.condition(params, "dqn_mlp"))["learner.tau"] == "default of rlnlp.learners.dqn.Config"
    rows = {row["setting"]: row for row in origins.table(given, {"learning_rate": 0.5})}
    assert rows["learner.learning_rate"]["value"] == 0.5 and "beta" in rows["learner.kl_coef"]["meaning"]
    assert rows["reward_model.max_tokens"]["meaning"].startswith("tokens;")


def test_of_all_settings_a_stage_depends_on_its_own_file():
    """But for the first stage, and what it makes of them."""
    stages = YAML(typ="safe", pure=True).load(ROOT / "dvc.yaml")["stages"]
    for name, given in {
        "runs": "build/conditions/${key}.json",
        "continued": "build/conditions/${key}.json",
        "tune": "build/settings/tune_${key}.json",
        **{stage: f"build/settings/{stage}.json" for stage in ("data", "models", "variants", "worlds")},
    }.items():
        stage = stages[name].get("do", stages[name])
        read = {d for d in stage["deps"] if d.startswith(("build/settings", "build/conditions", "build/origins"))}
        assert read == {given} and "params" not in stage, name
    assert not [d for s in stages.values() for d in s.get("do", s).get("deps", ()) if "origins" in d]
