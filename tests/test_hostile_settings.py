"""Whatever stands in a settings file, `check` answers with settings or with a message, soon and without a traceback."""

import copy
import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from rlnlp.settings import ConfigError
from workbook.runs import brought, checks, conditions, reading
from workbook.runs.settings import Bring

ROOT = Path(__file__).resolve().parents[1]
FIXTURE = ROOT / "tests" / "fixtures" / "params.yaml"
RAW, LINES = reading.read(FIXTURE)


def leaves(value, keys=()):
    """Every place of the settings: values, sections and elements of lists."""
    for key, item in value.items() if isinstance(value, dict) else enumerate(value):
        yield (*keys, key)
        if isinstance(item, (dict, list)):
            yield from leaves(item, (*keys, key))


def at(value, keys):
    for key in keys:
        value = value[key]
    return value


def changed(keys, value):
    raw = copy.deepcopy(RAW)
    at(raw, keys[:-1])[keys[-1]] = value
    return raw


def is_number(value) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


STAGES = {
    name: stage.get("do", stage)
    for name, stage in YAML(typ="safe", pure=True)
    .load((ROOT / "dvc.yaml").read_text(encoding="utf-8"))["stages"]
    .items()
}
PLACES = list(leaves(RAW))
NUMBERS = [keys for keys in PLACES if is_number(at(RAW, keys))]
NONSENSE = (-1, -1e300, 1e300, 10**12, 10**400, float("inf"), float("nan"), "much", True, None, [], [1], {}, {"a": 1})
ANYTHING = (
    "",
    "\x00",
    "a" * 500,
    "../../x",
    "$(touch x)",
    -1,
    1e300,
    True,
    None,
    [],
    [[]],
    [None],
    {},
    {"": 1},
    {"a": {}},
)


def answer(raw) -> str:
    """The problems of a file, "" for a sound one; any exception but ConfigError fails the test."""
    try:
        params = checks.checked(raw, LINES, FIXTURE)
    except ConfigError as error:
        return str(error)
    json.dumps(conditions.files(params))  # what is sound can be written
    return ""


@pytest.mark.parametrize("keys", NUMBERS, ids=lambda keys: ".".join(map(str, keys)))
def test_no_number_may_be_nonsense(keys):
    accepted = [value for value in NONSENSE if not answer(changed(keys, value))]
    assert not accepted, accepted


@pytest.mark.parametrize("part", range(10))
def test_nothing_at_any_place_brings_a_traceback(part):
    """Some 700 files; of names and texts of runs, none that could leave its folder or a command is accepted."""
    for i, keys in enumerate(PLACES[part::10]):
        for value in ANYTHING[i % 3 :: 3]:
            said = answer(changed(keys, value))
            if keys[0] in ("root", "profile", "runs", "continued") and isinstance(value, str) and value:
                assert said, (keys, value)


@pytest.mark.parametrize("section", ["sizes", "runs", "continued", "reports", "worlds", "algorithms"])
def test_what_stands_under_a_name_of_the_users_is_a_section(section):
    for value in ("x", [1], 3, None):
        assert answer({**RAW, section: {"numbers": value}, "size": "numbers" * (section == "sizes")}), value


@pytest.mark.parametrize("part", range(4))
def test_what_is_left_out_is_named_or_not_needed(part):
    """Also by DVC, which reads some names itself."""
    text = (ROOT / "dvc.yaml").read_text(encoding="utf-8")
    needed = {tuple(re.split(r"[.\[]", name)[:2]) for name in re.findall(r"\$\{([\w.\[\]]+)\}", text)}
    for keys in [keys for keys in PLACES if not isinstance(keys[-1], int)][part::4]:
        raw = copy.deepcopy(RAW)
        del at(raw, keys[:-1])[keys[-1]]
        said = answer(raw)
        assert said or keys not in {name[: len(keys)] for name in needed if name[0] in RAW}, keys


@pytest.mark.parametrize(
    "name", sorted({n.split(".")[0] for s in STAGES.values() for n in s.get("params", ()) if isinstance(n, str)})
)
def test_what_dvc_tracks_is_in_the_file(name, tmp_path, capsys):
    """A name that is left out and has a default would end the pipeline later, in a message of DVC's."""
    path = tmp_path / "params.yaml"
    path.write_text(json.dumps({key: value for key, value in RAW.items() if key != name}))
    assert conditions.main([str(path), str(tmp_path / "build")]) == 1 and name in capsys.readouterr().err


@pytest.mark.parametrize("name", ["", "..", "a/b", "a b", "a.b", "$(x)", "a;b", "a\n", "-a", "é", "a" * 81, "'", "`x`"])
def test_names_that_could_leave_their_folder_or_a_command_are_refused(name):
    entry = RAW["runs"]["ppo_kl_0"]
    assert answer(changed(("runs", name), entry))
    assert answer(changed(("profile",), name))
    assert answer(changed(("device",), name))
    assert "profile" in answer(changed(("profile",), "$(touch x)mini"))


@pytest.mark.parametrize("root", ["..", "/", "/tmp", "../../x", "../..", "~", "./x", "../../../..", ""])
def test_nothing_is_written_outside_the_repository(root, tmp_path):
    """`../..` leads there only from profiles/<name>."""
    assert "root" in answer(changed(("root",), root))
    path = tmp_path / "profiles" / "mini" / "params.yaml"
    path.parent.mkdir(parents=True)
    raw = changed(("root",), root)
    if root == "../..":
        assert checks.checked(raw, LINES, path).reports_folder == tmp_path / "reports" / "mini"
    else:
        with pytest.raises(ConfigError, match="root"):
            checks.checked(raw, LINES, path)


BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 10)}]\n" for old, new in zip("abcdefghi", "bcdefghij")
)
TEXTS = {  # text: what the message says
    "algorithm: [ppo]": "",
    "? [a, b]\n: 1": "",
    "? {a: 1}\n: 1": "",
    "seeds: " + "9" * 5000: "5,000 characters",
    "seeds: 1" + "0" * 390: "",
    "a: " + "[" * 2000 + "]" * 2000: "levels",
    "a: " + "{b: " * 500 + "1" + "}" * 500: "levels",
    "\n".join("  " * i + f"a{i}:" for i in range(60)): "levels",
    BOMB: "30,000 values",
    "a: &a [*a]": "part of itself",
    "a: &a {b: *a}": "part of itself",
    "x: " + "y" * 30_000: "too long",
    "#" * 400_000: "300,000 characters",
    "\n".join(f"k{i}: 1" for i in range(40_000)): "",
    "a: 2020-99-99": "",
    "a: 2020-13-01T00:00:00Z": "",
    "a: !!python/object/apply:os.system [x]": "",
    "a: !!binary '###'": "",
    "a: !!int x": "",
    "a: !!float x": "",
    "a: !!bool x": "",
    "? !!seq [[a, b]]\n: 1": "",
    "a: !!set {b, c}": "",
    "a: !!omap [b: 1]": "",
    "!!str": "",
    "<<: 1": "",
    "a: *nothing": "",
    "%YAML 9.9\n---\na: 1": "",
    "a: 0x" + "f" * 100: "",
    "a: 1_0_0:99:99": "",
    "\ufeffa: 1": "",
    "a: \ud7ff": "",
    "=: 1": "",
    "null: 1": "",
    "1.5: 1": "",
    "true: 1": "",
}


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: repr(text[:24]))
def test_no_text_is_answered_with_a_traceback(text, tmp_path):
    path = tmp_path / "params.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        checks.load(path)
    assert str(caught.value).startswith(f"{path}:") and TEXTS[text] in str(caught.value)


@pytest.mark.parametrize("text", ["a: !!int ''", "? !!float _\n: 1"])
def test_an_empty_number_is_said_by_check(text, tmp_path, capsys):
    path = tmp_path / "params.yaml"
    path.write_text(text, encoding="utf-8")
    assert conditions.main([str(path), str(tmp_path / "build")]) == 1
    assert capsys.readouterr().err.startswith(f"{path}: not valid YAML")


def test_the_algorithm_may_not_be_a_list():
    assert "runs.ppo_kl_0.algorithm" in answer(changed(("runs", "ppo_kl_0", "algorithm"), ["ppo"]))


def test_shares_of_labels_with_one_name_are_refused():
    for shares in ([0.1, 0.10000000001], [0.1, 0.1], [0.5, 1.0], [-0.1]):
        assert "variants.label_fractions" in answer(changed(("variants", "label_fractions"), shares))
    assert not answer(changed(("variants", "label_fractions"), [0.0, 0.1, 0.101]))


def test_a_claim_that_is_not_in_the_ledger_is_named(tmp_path):
    (tmp_path / "claims.yaml").write_text("P01:\n  text: one\nP10:\n  text: two\n")
    for claims, said in ((["P01"], ""), (["P1O"], "claims[0]: expected an entry of claims.yaml, found 'P1O'")):
        try:
            checks.checked(changed(("claims",), claims), {}, tmp_path / "params.yaml")
            assert not said
        except ConfigError as error:
            assert said and said in str(error) and "did you mean" in str(error)


@pytest.mark.parametrize("world", ["", "numbers"])
def test_a_learners_own_length_beyond_the_context_is_named(world):
    raw = copy.deepcopy(RAW)
    raw["runs"]["values"] = {"algorithm": "dqn", **({"world": world} if world else {})}
    raw["worlds"] = {"numbers": {"texts": 100, "steps": 10, "sampling": {"max_new_tokens": 20}}}
    assert not answer(raw)
    long = {"algorithms": {"dqn": {"max_new_tokens": 100}}}
    if world:
        raw["worlds"]["numbers"] |= long
    else:
        raw |= long
    place = "worlds.numbers.algorithms.dqn.max_new_tokens" if world else "algorithms.dqn.max_new_tokens"
    said = answer(raw)
    assert "100" in said and (place in said or (world and "runs.values.world" in said)), said


def test_a_searched_algorithms_length_beyond_the_context_is_named():
    raw = changed(("algorithms",), {"grpo": {"max_new_tokens": 100}})
    raw["tune"]["own"]["grpo"] = {}
    assert "algorithms.grpo.max_new_tokens" in answer(raw)


REWARDS = {  # the file: what check says
    "def other(prompts, responses, references, meta):\n    return [0.0] * len(responses)\n": "score",
    "def score(prompts, responses, references, meta):\n    raise RuntimeError('no way')\n": "no way",
    "def score(prompts, responses, references, meta) return 1\n": "bring.reward",
    "def score(prompts, responses, references, meta):\n    return [0.0]\n": "bring.reward",
    "import nothing_of_the_kind\n": "nothing_of_the_kind",
}


@pytest.mark.parametrize("text", REWARDS, ids=lambda text: text[:30])
def test_check_tries_a_brought_reward(text, tmp_path):
    sound = "def score(prompts, responses, references, meta):\n    return [float(len(r)) for r in responses]\n"
    raw = changed(("bring", "reward"), "mine/reward.py:score")
    raw["runs"] = {name: entry for name, entry in raw["runs"].items() if "reward" not in entry}
    kept = set(raw["runs"])
    raw["continued"] = {}
    raw["reports"] = {"kl": {"conditions": ["ppo_kl_0"]}}
    assert "ppo_kl_0" in kept
    (tmp_path / "mine").mkdir()
    (tmp_path / "params.yaml").write_text(json.dumps(raw))
    command = [sys.executable, "-m", "workbook.runs.conditions", str(tmp_path / "params.yaml"), str(tmp_path / "build")]
    for content, wrong in ((sound, ""), (text, REWARDS[text])):
        (tmp_path / "mine/reward.py").write_text(content)
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert "Traceback" not in done.stderr and wrong in done.stderr
        assert done.returncode == (1 if wrong else 0), done.stderr


@pytest.mark.parametrize("where", ["while True: pass", "def score(*four):\n    while True: pass"])
def test_a_reward_that_never_answers_is_named(where, tmp_path, monkeypatch):
    monkeypatch.setattr(brought, "LONGEST_S", 0.3)
    (tmp_path / "mine.py").write_text(where)
    with pytest.raises(ConfigError, match=r"bring\.reward: .*no scores for two prompts within 0\.3 s"):
        brought.tried(tmp_path, Bring(reward="mine.py:score"))
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


@pytest.mark.parametrize("name", ["model", "reward"])
@pytest.mark.parametrize("value", ["./nothing", "/nothing", "a/b/c", "~/x"])
def test_a_folder_that_is_not_there_is_named(name, value):
    assert f"bring.{name}" in answer(changed(("bring", name), value))


def test_everything_from_the_settings_is_quoted_in_the_pipelines_commands():
    study = YAML(typ="safe", pure=True).load(ROOT / "study" / "dvc.yaml")["stages"]
    commands = [stage.get("do", stage)["cmd"] for stage in [*STAGES.values(), *study.values()]]
    assert len([c for c in commands if "${" in c]) > 5
    assert not [c for c in commands if "${" in re.sub(r"'[^']*'", "", c)]
