"""Records of edits that change no digit: chains, what they refuse, and which units show that an edit is one."""

from __future__ import annotations

import json

import pytest

from rlnlp.settings import ConfigError
from tests.executed import ROOT
from workbook.runs import checks
from workbook.stages import depends, rekey_choice, rerun
from workbook.stages.rekey_choice import again, choose, cover, paired
from workbook.store import rekeyed


def add(root, *pairs, kind="seed"):
    return rekeyed.add(root, {"old": "1", "new": "2", "code": {kind: [list(pair) for pair in pairs]}})


def test_without_a_record_code_is_known_by_its_own_name(tmp_path):
    assert rekeyed.names(tmp_path) == {} and rekeyed.others(tmp_path, "a") == []


def test_edits_after_each_other_lead_back_to_the_first_name(tmp_path):
    add(tmp_path, ("a", "b"), ("x", "y"))
    add(tmp_path, ("b", "c"))
    assert rekeyed.names(tmp_path) == {"b": "a", "c": "a", "y": "x"}
    assert rekeyed.others(tmp_path, "c") == ["a", "b"] and rekeyed.others(tmp_path, "a") == ["b", "c"]
    assert rekeyed.others(tmp_path, "d") == []


def test_a_record_whose_new_code_is_not_todays_says_nothing_of_todays(tmp_path):
    add(tmp_path, ("a", "b"))
    assert "c" not in rekeyed.names(tmp_path)


TAMPERED = {
    "a pair": lambda records: records[0]["code"]["seed"].append(["z", "w"]),
    "a commit": lambda records: records[1].update(new="3"),
    "a record taken out": lambda records: records.pop(0),
    "the order": lambda records: records.reverse(),
    "no digest": lambda records: records[0].pop("digest"),
    "no record": lambda records: records.insert(0, "b is a"),
}


@pytest.mark.parametrize("what", TAMPERED)
def test_a_record_that_was_tampered_with_counts_for_nothing_and_is_named(tmp_path, what):
    add(tmp_path, ("a", "b"))
    path = add(tmp_path, ("b", "c"))
    records = json.loads(path.read_text())
    TAMPERED[what](records)
    path.write_text(json.dumps(records))
    with pytest.raises(ConfigError, match=r"rekeyed\.json: (record 1|record 2|expected records)"):
        rekeyed.names(tmp_path)


def test_a_record_cut_short_is_named(tmp_path):
    path = add(tmp_path, ("a", "b"))
    path.write_text(path.read_text()[:-9])
    with pytest.raises(ConfigError, match="rekeyed.json: expected records of workbook.stages.rekey"):
        rekeyed.names(tmp_path)


def test_only_what_is_new_is_recorded(tmp_path):
    add(tmp_path, ("a", "b"))
    assert rekeyed.unknown(tmp_path, {"seed": [["a", "b"]]}) == {}
    assert rekeyed.unknown(tmp_path, {"seed": [["b", "a"]]}) == {}  # taken back: it is known by its own name
    assert rekeyed.unknown(tmp_path, {"seed": [["a", "b"], ["b", "c"]]}) == {"seed": [["b", "c"]]}


def test_code_has_one_earlier_name(tmp_path):
    """Else rows of both would count as one's, and neither was compared with the other."""
    add(tmp_path, ("a", "b"))
    for code in (
        {"seed": [["z", "b"]]},
        {"draw": [["m", "n"], ["o", "n"]]},
        {"draw": [["m", "n"]], "seed": [["o", "n"]]},
    ):
        with pytest.raises(ConfigError, match="already, so it cannot be that of"):
            rekeyed.unknown(tmp_path, code)


# which units ---------------------------------------------------------------------------------------------------------

SHOWN = {
    "first": {"ppo", "plain"},
    "second": {"ppo", "greedy", "plain"},
    "third": {"dqn", "plain"},
    "fourth": {"dqn", "masked", "logits"},
    "fifth": {"logits", "ppo"},
}


def test_a_cover_shows_all_and_none_of_it_could_go():
    found = cover(SHOWN)
    assert found == ["second", "fourth"]
    assert cover({"a": set(), "b": set()}) == [] and cover({}) == []
    assert cover({"one": {1}, "other": {2}, "both": {1, 2}}) == ["both"]
    mixed = {"big": {1, 2, 3, 4}, "left": {1, 2, 5}, "right": {3, 4, 6}}  # the biggest is superfluous in the end
    assert cover(mixed) == ["left", "right"]


def unit(code: str, *features: str, needs=(), outside=()):
    named = {"stage": f"stage {code}", "seed": code}
    return {"code": named, "features": features, "needs": list(needs), "outside": dict(outside)}


def about(units, lacks=""):
    return {"lacks": lacks, "seeds": 2, "threads": 1, "units": units}


def both(change, **profiles):
    """Facts of two commits: the units, and the same with their code changed."""
    before = {name: about(units) for name, units in profiles.items()}
    after = json.loads(json.dumps(before))
    for facts in after.values():
        for one in facts["units"].values():
            if one["code"]["seed"] in change:
                one["code"] = {what: identity + "'" for what, identity in one["code"].items()}
    return before, after


MINI = {
    "data@1": unit("d", "data"),
    "models@1": unit("m", "models", needs=["data@1"]),
    "runs@sup": unit("s", "supervised", needs=["models@1"]),
    "runs@a": unit("p", "ppo", "plain", needs=["models@1"]),
    "runs@b": unit("p", "ppo", "plain", "greedy", needs=["models@1"]),
    "continued@c": unit("p", "ppo", "start", needs=["models@1", "runs@sup"]),
}
FULL = {"data@1": unit("d", "data"), "runs@x": unit("p", "ppo", "plain"), "runs@y": unit("q", "ppo", "beam")}


def test_a_profile_runs_what_those_before_it_lack_with_what_that_needs_and_no_code_that_is_as_it_was():
    before, after = both("pq", mini=MINI, full=FULL)
    found = [(one.profile, one.stage, one.why) for one in choose(before, after)]
    assert found == [
        ("mini", "data@1", "models@1 needs it"),
        ("mini", "models@1", "continued@c needs it"),
        ("mini", "runs@sup", "continued@c needs it"),
        ("mini", "runs@b", "greedy; plain"),
        ("mini", "continued@c", "start"),
        ("full", "runs@y", "beam"),
    ]
    assert choose(*both("", mini=MINI)) == []


def test_what_is_not_here_is_not_rerun_not_recorded_and_said():
    before, after = both("pq", mini=MINI, full=FULL)
    after["mini"]["lacks"] = "imdb is not here"
    chosen = choose(before, after)
    assert {one.profile for one in chosen} == {"full"}
    pairs = paired(before, after, chosen)
    assert pairs == {"stage": [["stage p", "stage p'"], ["stage q", "stage q'"]], "seed": [["p", "p'"], ["q", "q'"]]}
    names = {"p'": "p", "stage p'": "stage p"}
    assert list(again(before, after, names)) == ["full: runs@y will run again: its code changed"]
    said = "mini: runs@a, runs@b, continued@c will run again: imdb is not here"
    assert list(again(before, after, {})) == [said, "full: runs@x, runs@y will run again: its code changed"]


def test_a_stage_whose_notebook_is_run_by_other_code_is_not_recorded_as_a_stage():
    before, after = both("p", mini=MINI)
    after["mini"]["units"]["runs@b"]["outside"] = {"workbook.stages.nb:run": "1"}
    before["mini"]["units"]["runs@b"]["outside"] = {"workbook.stages.nb:run": "0"}
    only = [one for one in choose(before, after) if one.stage == "runs@b"]
    assert paired(before, after, only) == {"seed": [["p", "p'"]]}
    found = list(again(before, after, {"p'": "p"}))
    assert "mini: runs@b will run again: workbook.stages.nb:run changed" in found
    assert rekey_choice.STAGE == "stage"


# what units show -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def committed():
    """Facts of the profiles with committed rows, as if their code had changed, without its identities; their runs."""
    about, facts, runs = rerun.Facts(ROOT, ROOT), {}, {}
    for name, folder in rerun.committed(ROOT).items():
        params = checks.load(folder / "params.yaml")
        units = {**about.before(params), **about.searches(params), **about.runs(params)}
        facts[name] = {"lacks": "", "units": {stage: {**one, "code": {}} for stage, one in units.items()}}
        runs |= {(name, stage.partition("@")[2]): params for stage in units if stage.startswith(("runs", "continued"))}
    before = json.loads(json.dumps(facts))
    for one in (one for profile in before.values() for one in profile["units"].values()):
        one["code"] = {"seed": "another"}
    return choose(before, facts), facts, runs


def test_what_would_be_rerun_has_every_trained_learner_and_decoding_of_the_committed_profiles(committed):
    plan, facts, runs = committed
    chosen = {(one.profile, one.stage.partition("@")[2]) for one in plan if one.stage.startswith(("runs", "conti"))}

    def shown(names) -> set:
        found = set()
        for profile, name in names:
            params = runs[profile, name]
            run, config = params.run(name), params.learner_config(name).model_dump()
            place = run.world or params.task.name
            found |= {("decoding", d) for d in (*params.evaluation.everywhere, *run.decodings)}
            if config.get("updates", 1):
                rules = {k: config[k] for k in ("mask_rule", "max_rule", "head", "mode", "mask_source") if k in config}
                found |= {("learner", run.algorithm, place), ("reward", run.reward), *rules.items()}
        return found

    assert shown(chosen) == shown(runs) and len(chosen) < len(runs) / 3
    assert {"mini", "follow_up", "full", "imdb", "settle"} <= facts.keys()
    assert ("smoke" in facts) == (
        ROOT / "reports/smoke/per_seed.csv"
    ).is_file()  # committed by nobody, there once it was run here


def test_what_a_unit_needs_comes_before_it(committed):
    plan, facts, _ = committed
    for i, one in enumerate(plan):
        earlier = {(other.profile, other.stage) for other in plan[:i]}
        assert {(one.profile, need) for need in facts[one.profile]["units"][one.stage]["needs"]} <= earlier


def test_an_untrained_run_shows_its_decodings_and_nothing_of_its_learner(committed):
    _, facts, _ = committed
    units = facts["mini"]["units"]
    untrained, trained = (set(units[f"runs@{name}"]["features"]) for name in ("zero_shot", "ppo_kl_0"))
    assert {"untrained: ppo, generated_reviews", "decoding: greedy", "decoding: plain"} <= untrained
    assert {"learner: ppo, generated_reviews", "kl_coef: 0", "top_p: 1", "learning_rate: a number"} <= trained
    assert not {feature for feature in untrained if feature.startswith(("learner", "kl_coef", "gamma"))}


def test_what_a_profile_brings_is_found_in_the_repository(tmp_path, monkeypatch):
    """It need not be in git: the commit's folder lacks it."""
    commit, home = tmp_path / "commit", tmp_path / "home"
    monkeypatch.setattr(depends, "ROOT", commit)
    for folder in (commit / "profiles/x", home / "profiles/x/base"):
        folder.mkdir(parents=True)
    (home / "profiles/x/mine.py").write_text("")
    path = commit / "profiles/x/params.yaml"
    path.write_text("bring: {model: base, reward: 'mine.py:score', prompts: ''}\n")
    found = rerun.brings(path.parent, home)
    assert found == {
        "bring.model": f"{home}/profiles/x/base",
        "bring.reward": f"{home}/profiles/x/mine.py:score",
    }
    path.write_text("bring: {model: 'someone/on-the-hub'}\n")
    assert rerun.brings(path.parent, home) == {}
