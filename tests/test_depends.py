"""What each stage depends on of the code: which edits make what run again, and how that is explained."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from rlnlp import losses
from tests.executed import ROOT, change, copied, mutated
from workbook.runs import algorithms, checks, conditions
from workbook.stages import depends
from workbook.store.files import atomic_json
from workbook.store.identity import Code

pytestmark = pytest.mark.xdist_group("depends")  # what it sets up takes seconds: once, not once a worker

VALUES = depends.read(ROOT / "params.yaml")
SEARCHED = "{ppo: {}, nlpo: {}, a2c: {}, reinforce: {}, grpo: {}}"  # a search, which this profile has not
VALUES["tune"]["own"] = YAML(typ="safe", pure=True).load(SEARCHED)
PIPELINE = depends.read(ROOT / "dvc.yaml")["stages"]
LOSSES = Path(losses.__file__).relative_to(ROOT)


@pytest.fixture(scope="module")
def here() -> Code:
    return Code(ROOT)


@pytest.fixture
def copy(tmp_path):
    shutil.copytree(ROOT / "notebooks", tmp_path / "notebooks")
    return copied(tmp_path)


def test_why_of_a_profile_that_is_none_names_the_nearest(capsys):
    assert depends.main(["why", "setle"]) == 1
    said = capsys.readouterr().err
    assert "profiles/setle/params.yaml: no such file; did you mean" in said and "(settle)?" in said
    assert depends.main(["why", "nope"]) == 1
    said = capsys.readouterr().err
    assert "nope/params.yaml: no such file" in said and "'mini'" in said and said.count("\n") == 1


def identities(root: Path) -> dict[str, str]:
    code, known = Code(root), {}
    for name, (roots, without) in depends.stages(VALUES, code).items():
        key = json.dumps([roots, without])
        known.setdefault(key, [code.identity(roots, without)]).append(name)
    return {name: identity for identity, *names in known.values() for name in names}


def again(copy: Path, before: dict[str, str]) -> set[str]:
    after = identities(copy)
    assert after.keys() == before.keys()
    return {name for name in after if after[name] != before[name]}


def runs_of(*names: str) -> set[str]:
    every = {**VALUES["runs"], **VALUES["continued"]}
    return {f"runs/{condition}" for condition, run in every.items() if run["algorithm"] in names}


def test_every_stage_that_runs_code_depends_on_its_identity_and_on_no_file_of_code(here):
    files = depends.stages(VALUES, here)
    for name, stage in PIPELINE.items():
        body = stage.get("do", stage)
        code = [
            d.removeprefix("build/code/").removesuffix(".json") for d in body["deps"] if d.startswith("build/code/")
        ]
        if name in ("check", "nb", "code", "settings"):
            continue
        assert len(code) == 1, name
        items = {"tune": VALUES["tune"]["own"], "report": VALUES["reports"]}.get(name) or VALUES.get(name, [""])
        assert {code[0].replace("${key}", item) for item in items} <= files.keys()
        assert not [d for d in body["deps"] if "rlnlp/" in d or "workbook" in d or "notebooks" in d], name
        for notebook in re.findall(r"notebooks/(\w+)\.ipynb", body["cmd"]):
            roots, _ = files[code[0].replace("${key}", next(iter(items)))]
            assert roots[0] == f"notebooks/{notebook}.ipynb"


def test_what_five_edits_make_again(copy, tmp_path):
    """A comment, a moved function, one learner and the clip's formula; the fifth, a setting, is the next test's."""
    before, said = identities(copy), {}
    path = copy / LOSSES
    text = path.read_text(encoding="utf-8")
    path.write_text("# a comment\n" + text.replace("def ppo_clip(", "# another\ndef ppo_clip("), encoding="utf-8")
    said["a comment"] = again(copy, before)
    path.write_text(text, encoding="utf-8")

    moved = re.search(r"^def ppo_clip\(.*?(?=^def |\Z)", text, re.MULTILINE | re.DOTALL)[0]
    head = text[: text.index("\ndef ")]
    path.with_name("surrogate.py").write_text(head + "\n\n" + moved, encoding="utf-8")
    path.write_text(text.replace(moved, "") + "\n\nfrom rlnlp.surrogate import ppo_clip\n", encoding="utf-8")
    said["a function moved"] = again(copy, before)
    path.write_text(text, encoding="utf-8")

    sac = copy / "rlnlp" / "learners" / "sac.py"
    kept = sac.read_text(encoding="utf-8")
    change(sac, "update")
    said["a learner (sac)"] = again(copy, before)
    sac.write_text(kept, encoding="utf-8")

    path.write_text(mutated(text, "ppo_clip"), encoding="utf-8")
    said["the clip's formula"] = again(copy, before)
    for edit, names in said.items():
        print(f"{edit}: {len(names)} of {len(before)}: {', '.join(sorted(names)) or 'nothing'}")
    assert said["a comment"] == said["a function moved"] == set()
    assert said["a learner (sac)"] == runs_of("sac") != set()
    clipped = said["the clip's formula"]
    unclipped = runs_of("sac", "dqn", "supervised", "best_of_n")
    assert runs_of("ppo", "nlpo", "masked") <= clipped and "tune/ppo" in clipped and unclipped
    assert not clipped & {*unclipped, "data", "models", "variants", "worlds", "claims", "tidy", "digests"}


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """A profile's folder after everything has run: its dvc.lock names what each stage depended on."""
    copy = copied(tmp_path_factory.mktemp("finished"))
    shutil.copytree(ROOT / "notebooks", copy / "notebooks")
    for name in ("params.yaml", "claims.yaml"):
        shutil.copy(ROOT / name, copy)
    text = (copy / "params.yaml").read_text(encoding="utf-8")
    (copy / "params.yaml").write_text(text.replace("  own: {} ", f"  own: {SEARCHED} "), encoding="utf-8")
    build, stages = copy / "build", {}
    depends.write(VALUES, build / "code", depends.record_of(copy, VALUES), copy)
    for name, value in conditions.files(checks.load(copy / "params.yaml")).items():
        atomic_json(build / name, value)

    def stage(name: str, code: str, given: str, outs: list[str], deps: list[str] = (), **params) -> None:
        files = [f"build/code/{code}.json", f"build/{given}.json"]
        md5 = {file: hashlib.md5((copy / file).read_bytes()).hexdigest() for file in files}
        stages[name] = {
            "cmd": "x",
            "deps": [{"path": f, "hash": "md5", "md5": md5.get(f, "0")} for f in [*files, *deps]],
            "params": {"params.yaml": params},
            "outs": [{"path": out, "hash": "md5", "md5": "0"} for out in outs],
        }

    stage("data@1", "data", "settings/data", ["data/draw1"])
    stage("models@1", "models", "settings/models", ["models/draw1"], ["data/draw1"])
    for name in VALUES["runs"]:
        stage(f"runs@{name}", f"runs/{name}", f"conditions/{name}", [f"runs/{name}"], ["data", "models"])
    report = {"reports.kl": VALUES["reports"]["kl"]}
    stage("report@kl", "report/kl", "settings/report", ["reports/kl"], ["runs"], **report)
    has = {name: PIPELINE[name] for name in ("check", "nb", "code", "runs")}
    has |= {name: {**PIPELINE[name], "matrix": {"draw": [1]}} for name in ("data", "models")}
    has["report"] = {**PIPELINE["report"], "foreach": {"kl": None}}
    for name, value in {"dvc.lock": {"schema": "2.0", "stages": stages}, "dvc.yaml": {"stages": has}}.items():
        with open(copy / name, "w", encoding="utf-8") as file:
            YAML(typ="safe").dump(value, file)
    return copy


@pytest.fixture
def ran(finished, tmp_path) -> Path:
    """A copy of it, to edit."""
    return Path(shutil.copytree(finished, tmp_path / "ran"))


def why(folder: Path) -> tuple[dict[str, list[str]], set[str], str]:
    found, after = depends.why(folder, folder)
    return found, after, "\n".join(depends.told(found, after))


def test_why_says_nothing_where_nothing_changed(ran):
    assert why(ran) == ({}, set(), "nothing: all that has run is as the code and the settings say")


def test_why_names_definitions_that_changed_and_not_those_that_moved(ran):
    file = ran / LOSSES
    file.write_text(mutated("# moved\n" + file.read_text(encoding="utf-8"), "ppo_clip"), encoding="utf-8")
    found, after, text = why(ran)
    assert found["runs@ppo_kl_0"] == ["rlnlp.losses:ppo_clip changed"]
    dqn = {f"runs@{name}" for name, run in VALUES["runs"].items() if run["algorithm"] == "dqn"}
    assert dqn and not dqn & found.keys() and "models@1" not in found and after == {"report@kl"}
    assert "would run again:\n    rlnlp.losses:ppo_clip changed" in text and "report@kl" in text.splitlines()[-1]


def test_why_names_what_is_new_and_not_what_is_gone(ran):
    """DVC's lock goes on knowing the stages of a run that was taken out."""
    lock = depends.read(ran / "dvc.lock")
    text = json.dumps(lock["stages"]["runs@ppo_kl_0"])
    lock["stages"]["runs@gone"] = json.loads(text.replace("ppo_kl_0", "gone"))
    lock["stages"]["data@7"] = {**lock["stages"]["data@1"], "outs": []}
    for name, value in {
        "dvc.lock": lock,
        "params.yaml": {**VALUES, "runs": {**VALUES["runs"], "brand_new": VALUES["runs"]["ppo_kl_0"]}},
    }.items():
        with open(ran / name, "w", encoding="utf-8") as file:
            YAML(typ="safe").dump(value, file)
    change(ran / "workbook" / "texts" / "data.py", "build")
    found, after, text = why(ran)
    assert found["runs@brand_new"] == ["it has not run yet"] and "runs@brand_new would run:\n" in text
    assert "data@1" in found and not {"data@7", "runs@gone"} & {*found, *after} and "report@kl" in after


def test_the_stages_are_those_that_dvc_makes_of_the_pipeline():
    for folder in (ROOT, ROOT / "profiles" / "smoke"):
        made = depends.pipeline(depends.read(folder / "dvc.yaml")["stages"], depends.read(folder / "params.yaml"))
        command = [sys.executable, "-m", "dvc", "stage", "list", "dvc.yaml", "--name-only"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
        assert sorted(made) == sorted(done.stdout.split())
        assert made["nb@claims"] == ["build/claims.ipynb"] and made["tidy"] == []
    assert made["runs@zero_shot"] == ["runs/zero_shot", "executed/runs/zero_shot.ipynb"]


def set_value(folder: Path, section: str, name: str, value) -> None:
    with open(folder / "params.yaml", "w", encoding="utf-8") as file:
        YAML(typ="safe").dump({**VALUES, section: {**VALUES[section], name: value}}, file)


def test_why_names_the_settings_that_differ_with_both_values(ran):
    before = json.dumps(VALUES["language_model"]["learning_rate"])
    set_value(ran, "language_model", "learning_rate", 0.25)
    found, after, text = why(ran)
    assert found == {"models@1": [f"language_model.learning_rate: {before} -> 0.25"]}
    assert "runs@ppo_kl_0" in after and "data@1" not in after and "comes out different" in text


def test_a_setting_makes_only_the_runs_again_that_are_given_it(ran):
    """The fifth of the five edits."""
    before = VALUES["evaluation"]["top_k"]
    set_value(ran, "evaluation", "top_k", before + 1)
    found, *_ = why(ran)
    decoded = {f"runs@{name}" for name, run in VALUES["runs"].items() if "top_k" in run.get("decodings", ())}
    print(f"a setting (evaluation.top_k): {len(found)} of {len(VALUES['runs'])} runs: {', '.join(sorted(found))}")
    assert {name for name in found if name.startswith("runs@")} == decoded != set()
    assert all(found[name] == [f"evaluation.top_k: {before} -> {before + 1}"] for name in decoded)


def test_why_says_so_where_the_earlier_code_is_not_known(ran):
    shutil.rmtree(depends.record_of(ran, VALUES))
    change(ran / LOSSES, "ppo_clip")
    found, *_ = why(ran)
    assert "not known" in found["runs@ppo_kl_0"][0]


def test_new_versions_of_libraries_make_everything_again(ran, monkeypatch):
    monkeypatch.setattr(depends, "libraries", lambda: {"python": "3.11", "torch": "9.9"})
    found, *_ = why(ran)
    assert any(line.startswith("torch: ") and line.endswith('-> "9.9"') for line in found["data@1"])


def test_files_of_runs_that_are_no_more_are_removed(ran):
    code = ran / "build" / "code"
    assert (code / "runs/ppo_kl_0.json").is_file()
    fewer = {**VALUES, "runs": {k: v for k, v in VALUES["runs"].items() if k != "ppo_kl_0"}}
    depends.write(fewer, code, depends.record_of(ran, VALUES), ran)
    assert not (code / "runs/ppo_kl_0.json").exists() and (code / "runs/nlpo_kl_0.json").is_file()


def test_what_a_stage_depends_on_holds_no_names(ran):
    found = json.loads((ran / "build/code/runs/ppo_kl_0.json").read_text(encoding="utf-8"))
    assert re.fullmatch("[0-9a-f]{64}", found.pop("code")) and {"python", "torch", "numpy"} <= found.keys()
    assert algorithms.files()["ppo"] not in str(found)
