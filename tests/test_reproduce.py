"""The scheduler, on a toy DVC repository: order, two at once, nothing twice, failures, stopping."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rlnlp.settings import ConfigError
from workbook.stages.pipeline import Pipeline, keep_lock, mend_lock, whole
from workbook.stages.processes import start, stop
from workbook.stages.reproduce import check, collecting, reproduce
from workbook.stages.scheduler import Scheduler
from workbook.store.locks import LockError, writer_lock

from .waiting import DEADLINE_S, alive, text_of, until

ROOT = Path(__file__).resolve().parents[1]

TOY = """
stages:
  check:
    cmd: echo ok > checked.txt
    params: [params.yaml: ]
    outs: [checked.txt]
  runs:
    foreach: ${runs}
    do:
      cmd: >-
        %s
      deps: [checked.txt]
      params: ["runs.${key}"]
      outs: ["out/${key}"]
  table:
    cmd: cat out/a out/b > table.txt
    deps: [out/a, out/b]
    outs: [table.txt]
"""
BOTH = "trace/a.began trace/b.began"  # each run ends only if the other one has begun
COMMAND = (
    f"mkdir -p out trace; touch trace/${{key}}.began; {sys.executable} {ROOT}/tests/waiting.py ${{item.meets}}; "
    "test ${item.value} -lt 9 || { echo 'RuntimeError: value ${item.value} is too large'; exit 1; }; echo "
    "${item.value} > out/${key}"
)


def values(a: int, b: int, meets: str = "") -> str:
    """Settings of two runs. meets: files that both wait for before they end."""
    return f"runs:\n  a: {{value: {a}, meets: {meets!r}}}\n  b: {{value: {b}, meets: {meets!r}}}\n"


@pytest.fixture
def toy(tmp_path):
    subprocess.run(["git", "init", "-q", "."], cwd=tmp_path, check=True)
    (tmp_path / ".dvc").mkdir()
    (tmp_path / ".dvc/config").write_text("[core]\n    analytics = false\n")
    (tmp_path / "dvc.yaml").write_text(TOY % COMMAND)
    (tmp_path / "params.yaml").write_text(values(1, 2))
    return tmp_path


def go(folder: Path, jobs: int = 2) -> bool:
    return reproduce(folder, folder / ".scratch", jobs, ours=False)


def test_it_runs_all_then_nothing_then_only_what_changed(toy, capfd):
    (toy / "params.yaml").write_text(values(1, 2, BOTH))
    assert go(toy)
    assert (toy / "table.txt").read_text() == "1\n2\n"
    said = capfd.readouterr().out
    assert re.search(r"\[4/4\] table done in \d+:\d\d", said) and re.search(
        r"runs@a started .*about \d+:\d\d left", said
    )

    assert go(toy)
    assert capfd.readouterr().out.startswith("nothing changed: all 4 stages are up to date")

    (toy / "params.yaml").write_text(values(1, 3, BOTH))
    assert go(toy)
    said = capfd.readouterr().out
    assert "runs@a" not in said and "runs@b done" in said and (toy / "table.txt").read_text() == "1\n3\n"


def test_a_failure_stops_only_what_needs_it_and_the_rest_is_kept(toy, capfd):
    (toy / "params.yaml").write_text(values(9, 2))
    assert not go(toy)
    said = capfd.readouterr().out
    assert "runs@a FAILED" in said and "RuntimeError: value 9 is too large" in said
    assert "not started, as they need it: table" in said and "FAILED: runs@a." in said
    assert (toy / "out/b").read_text() == "2\n" and not (toy / "table.txt").exists()
    (toy / "params.yaml").write_text(values(1, 2))
    assert go(toy)
    said = capfd.readouterr().out
    assert "runs@b" not in said and (toy / "table.txt").read_text() == "1\n2\n"


# collecting: what is made of many runs serves when one of them failed
# ---------------------------------------------------

GRID = """
stages:
  models:
    cmd: exec python work.py models models
    params: [fail]
    outs: [models]
  runs:
    foreach: ${runs}
    do:
      cmd: exec python work.py runs ${key} ${item.value}
      deps: [work.py, models]
      params: ["runs.${key}"]
      outs: ["runs/${key}", "executed/runs/${key}.ipynb"]
  continued:
    foreach: ${continued}
    do:
      cmd: exec python work.py continued ${key} ${item.value}
      deps: [work.py, "runs/${item.start}"]
      params: ["continued.${key}"]
      outs: ["runs/${key}", "executed/runs/${key}.ipynb"]
  digests:
    cmd: exec python work.py digests all
    deps: [runs]
    params: [runs, continued, reports, claims]
    outs: [build/digests]
  report:
    foreach: ${reports}
    do:
      cmd: exec python work.py report ${key}
      deps: ["build/digests/${key}.json"]
      params: ["reports.${key}"]
      outs:
      - "reports/x/${key}": {cache: false}
  claims:
    cmd: exec python work.py claims claims
    deps: [build/digests/mask.json]
    outs:
    - reports/x/claims: {cache: false}
"""
WORK = """
import json, pathlib, sys
kind, key, *value = sys.argv[1:]
if kind != "digests":  # what collects results is made whenever a run was
    with open("ran", "a") as file:
        file.write(f"{kind}@{key} ")
def out(path, text):
    pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
    pathlib.Path(path).write_text(text)
if kind == "models":
    assert "fail: models" not in open("params.yaml").read()
    out("models", "ok")
elif kind in ("runs", "continued"):
    out(f"executed/runs/{key}.ipynb", "as far as it came")
    if int(value[0]) > 8:
        where = f"build/run.ipynb: cell 3 failed; see executed/runs/{key}.ipynb"
        print(f"{where}\\nRuntimeError: {value[0]} is too large", flush=True)
        sys.exit(1)
    out(f"runs/{key}/per_seed.csv", value[0])
elif kind == "digests":
    from ruamel.yaml import YAML
    for name, report in YAML(typ="safe").load(open("params.yaml"))["reports"].items():
        there = {c: pathlib.Path(f"runs/{c}/per_seed.csv") for c in report["conditions"]}
        found = {c: path.read_text() if path.is_file() else "missing" for c, path in there.items()}
        out(f"build/digests/{name}.json", json.dumps(found))
else:
    found = json.load(open(f"build/digests/{'mask' if key == 'claims' else key}.json"))
    missing = [c for c, digest in found.items() if digest == "missing"]
    if kind == "claims" and missing:
        sys.exit(f"ClaimError: no results of {missing}")
    out(f"reports/x/{key}/report.html", f"missing: {missing}")
"""


def settings(a=1, b=2, c=3, d=4, fail="nothing") -> str:
    return (
        f"runs:\n  a: {{value: {a}}}\n  b: {{value: {b}}}\n  c: {{value: {c}}}\ncontinued:\n  d: {{start: b, value: "
        f"{d}}}\n"
        f"reports:\n  gamma: {{conditions: [a, b]}}\n  mask: {{conditions: [c, d]}}\nclaims: []\nfail: {fail}\n"
    )


@pytest.fixture
def grid(toy):
    (toy / "dvc.yaml").write_text(GRID)
    (toy / "work.py").write_text(WORK)
    (toy / "params.yaml").write_text(settings())

    def again(**changed) -> tuple[bool, set[str]]:
        """Whether all went well, and what ran."""
        (toy / "params.yaml").write_text(settings(**changed))
        (toy / "ran").write_text("")
        good = go(toy)
        return good, set((toy / "ran").read_text().split())

    return toy, again


def page(folder: Path, name: str) -> str:
    return (folder / f"reports/x/{name}/report.html").read_text()


def test_changing_one_run_makes_again_only_the_reports_that_show_it(grid, capfd):
    folder, again = grid
    good, ran = again()
    assert good and len(ran) == 8 and page(folder, "gamma") == "missing: []"
    assert "plan: 1 models, 4 runs, 2 reports, 1 ledger; about " in capfd.readouterr().out
    assert again(a=2) == (True, {"runs@a", "report@gamma"})
    assert again(a=2, d=5) == (True, {"continued@d", "report@mask", "claims@claims"})


def test_a_failed_run_leaves_reports_that_name_it_and_a_ledger_that_refuses(grid, capfd):
    folder, again = grid
    assert again()[0]
    capfd.readouterr()
    good, ran = again(b=9, c=4)  # d continues b: it cannot be made either, and its old result must not be shown
    said = capfd.readouterr().out
    assert not good and ran == {"runs@b", "runs@c", "report@gamma", "report@mask", "claims@claims"}
    assert page(folder, "gamma") == "missing: ['b']" and page(folder, "mask") == "missing: ['d']"
    assert not (folder / "runs/d").exists() and (folder / "runs/c/per_seed.csv").read_text() == "4"
    notebook = os.path.relpath(folder / "executed/runs/b.ipynb")
    assert (folder / "executed/runs/b.ipynb").read_text() == "as far as it came"
    end = said.splitlines()[-4:]
    assert (
        end[0].startswith(f"runs@b: RuntimeError: 9 is too large (notebook {notebook}, log ") and "runs@b.log" in end[0]
    )
    assert end[1].startswith("claims: ClaimError: no results of ['d'] (log ")
    assert end[2] == "not started, as they need what failed: continued@d"
    assert end[3] == "FAILED: claims, runs@b. Mend it and type the same command: finished work is kept."

    good, ran = again(b=9, c=4)  # nothing new: only what failed is tried again
    assert not good and ran == {"runs@b", "claims@claims"}
    good, ran = again(b=3, c=4)
    assert good and ran == {"runs@b", "continued@d", "report@gamma", "report@mask", "claims@claims"}
    assert page(folder, "gamma") == page(folder, "mask") == page(folder, "claims") == "missing: []"


def test_a_failure_of_what_all_runs_need_makes_no_reports_of_old_runs(grid, capfd):
    folder, again = grid
    assert again()[0]
    good, ran = again(fail="models", a=5)
    assert not good and ran == {"models@models"} and (folder / "runs/a/per_seed.csv").read_text() == "1"
    assert "FAILED: models." in capfd.readouterr().out


def test_runs_start_in_the_order_of_the_settings_and_after_all_else(tmp_path):
    needs = {name: set() for name in ("runs@short", "runs@long", "data@1", "continued@x")}
    scheduler = Scheduler(tmp_path, tmp_path, needs, set(needs), 1, order=["runs@short", "runs@long", "continued@x"])
    scheduler.durations.known = {"runs@long": 100.0, "data@1": 1.0}
    started = []
    while stage := scheduler.next_stage():
        started.append(stage)
        del scheduler.waiting[stage]
    assert started == ["data@1", "runs@short", "runs@long", "continued@x"]


def test_reports_are_made_between_two_sittings_from_what_is_finished(grid, capfd):
    folder, again = grid
    again(b=9)  # b and d are not there
    capfd.readouterr()
    (folder / "params.yaml").write_text(settings(a=7, b=9))  # and what there is of a is out of date
    (folder / "ran").write_text("")
    assert not reproduce(
        folder, folder / ".scratch", ours=False, reports_only=True
    )  # the toy has no claims.yaml: it tries
    said = capfd.readouterr().out
    assert "missing, as not finished or out of date: continued@d, runs@a, runs@b" in said
    assert set((folder / "ran").read_text().split()) == {"report@gamma", "claims@claims"}, (
        "no run, and no report that is up to date"
    )
    assert page(folder, "gamma") == "missing: ['a', 'b']" and page(folder, "mask") == "missing: ['d']"
    good, ran = again(a=1, b=2)
    assert good and ran == {"runs@b", "continued@d", "report@gamma", "report@mask", "claims@claims"}, (
        "a came back from DVC's cache"
    )


NEEDS = {
    "models": set(),
    "runs@a": {"models"},
    "runs@b": {"models"},
    "digests": {"runs@a", "runs@b"},
    "report@x": {"digests"},
    "claims": {"digests"},
}


@pytest.mark.parametrize(
    "affected, said",
    [
        ({"models", "runs@a", "runs@b", "digests"}, "no reports made: models has to run first"),
        ({"runs@a", "runs@b", "digests"}, "no reports made: no run is finished yet"),
    ],
)
def test_reports_are_not_made_of_nothing_and_nothing_is_taken_away(tmp_path, affected, said, capsys):
    (tmp_path / "runs/a").mkdir(parents=True)
    assert collecting(tmp_path, NEEDS, affected, None) is None
    assert said in capsys.readouterr().out and (tmp_path / "runs/a").is_dir()


@pytest.mark.parametrize("compared, ledger", [("a", True), ("b", False)])
def test_the_ledger_is_made_only_with_every_run_of_its_claims(tmp_path, monkeypatch, compared, ledger, capsys):
    (tmp_path / "runs/b").mkdir(parents=True)
    monkeypatch.setattr("workbook.stages.digests.lists", lambda values, root: {"claims": [compared]})
    found = collecting(tmp_path, NEEDS, {"runs@b", "digests", "report@x", "claims"}, {"root": "."})
    assert found == {"digests": set(), "report@x": {"digests"}, **({"claims": {"digests"}} if ledger else {})}
    assert ("the ledger is left as it is" in capsys.readouterr().out) != ledger and not (tmp_path / "runs/b").exists()


def test_the_order_of_the_runs_is_that_of_the_settings():
    pipeline = Pipeline.__new__(Pipeline)
    for values, order in [
        ({"runs": {"b": {}, "a": {}}, "continued": {"c": {}}}, ["runs@b", "runs@a", "continued@c"]),
        ({"runs": {"b": {}}, "continued": None}, ["runs@b"]),
        (None, []),
    ]:
        pipeline.values = values
        assert pipeline.order() == order


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGKILL])
def test_ending_it_ends_what_it_started(toy, sign):
    (toy / "params.yaml").write_text(values(1, 2))
    (toy / "dvc.yaml").write_text(TOY % "exec python work.py ${key}")
    (toy / "work.py").write_text(
        "import os, signal, sys, pathlib\nfrom workbook.store.locks import die_with_parent\ndie_with_parent()\n"
        "pathlib.Path(sys.argv[1] + '.pid').write_text(str(os.getpid()))\nsignal.pause()\n"
    )
    code = (
        "import workbook.stages.reproduce as r, pathlib; r.real = r.reproduce;"
        "r.reproduce = lambda folder, scratch, jobs, **_: r.real(folder, scratch, jobs, ours=False); r.main(['mini'])"
    )
    outer = subprocess.Popen(
        [sys.executable, "-c", code, "workbook.stages.reproduce"],
        cwd=toy,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        pids = [int(text_of(toy / f"{key}.pid")) for key in "ab"]
        outer.send_signal(sign)
        error = outer.communicate(timeout=DEADLINE_S)[1].decode()
        assert sign == signal.SIGKILL or "the same command continues" in error
        until(lambda: not any(map(alive, pids)), "the end of what it started")
    finally:
        outer.kill()


def test_stopping_ends_whole_groups(tmp_path):
    (tmp_path / "parent.py").write_text(
        "import pathlib, signal, subprocess\nchild = subprocess.Popen(['sleep', '1000'])\n"
        "pathlib.Path('child.pid').write_text(str(child.pid))\nsignal.pause()\n"
    )
    process = start(["parent"], tmp_path, tmp_path / "parent.log")
    child = int(text_of(tmp_path / "child.pid"))
    stop([process])
    assert process.returncode == -signal.SIGTERM
    until(lambda: not alive(child), "the end of the child")


def test_only_one_at_a_time(tmp_path):
    with writer_lock(tmp_path / "reproduce"), pytest.raises(LockError, match=f"process {os.getpid()}"):
        reproduce(tmp_path, tmp_path)


def test_wrong_values_stop_it_before_anything(toy):
    with pytest.raises(SystemExit) as stopped:
        reproduce(toy, toy / ".scratch")  # with the check: this is no params.yaml of ours
    assert "params.yaml" in str(stopped.value) and not (toy / "checked.txt").exists()


def repository_of(folder: Path, setting: str, value: str, stage: str) -> None:
    """A repository of the check and one stage after it, by toy DVC; the real settings, one of them given."""
    text = (Path(__file__).parent / "fixtures" / "params.yaml").read_text()
    assert f'{setting}: ""' in text
    (folder / "params.yaml").write_text(text.replace(f'{setting}: ""', f"{setting}: {value}"))
    (folder / "dvc.yaml").write_text(
        "stages:\n  check:\n    cmd: python -m workbook.runs.conditions params.yaml build\n"
        f"    params: [params.yaml: ]\n    outs: [build/checked.txt, build/brought.json]\n{stage}"
    )
    subprocess.run(["git", "init", "-q", "."], cwd=folder, check=True)
    (folder / ".dvc").mkdir()
    (folder / ".dvc/config").write_text("[core]\n    analytics = false\n")


def test_an_edited_file_of_the_users_re_runs_the_check(tmp_path):
    """DVC cannot see it: the file's name is a value. Toy DVC answers; the real check."""
    cmd = "cat build/brought.json > used.txt; echo x >> count"
    stage = f"  use:\n    cmd: {cmd}\n    deps: [build/brought.json]\n    outs: [used.txt]\n"
    repository_of(tmp_path, "prompts", "mine.csv", stage)
    (tmp_path / "mine.csv").write_text("prompt\na\nb\nc\nd\ne\n")
    for count in (1, 1, 2):
        if count == 2:
            (tmp_path / "mine.csv").write_text("prompt\na\nb\nc\nd\nf\n")
        assert reproduce(tmp_path, tmp_path / ".scratch", 1)
        assert (tmp_path / "count").read_text().count("x") == count


def test_a_brought_model_that_is_nowhere_is_one_message_before_any_work(tmp_path, monkeypatch):
    """A word alone may be the name of a model on the hub: whether there is one, only asking says."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    stage = "  data:\n    cmd: echo x > made.txt\n    deps: [build/checked.txt]\n    outs: [made.txt]\n"
    repository_of(tmp_path, "model", "mymodle", stage)
    with pytest.raises(ConfigError, match=r"(?s)mymodle \(policy, .*the hub: not asked"):
        reproduce(tmp_path, tmp_path / ".scratch", 1)
    assert not (tmp_path / "made.txt").exists()


def test_a_claim_that_the_runs_cannot_decide_is_named_before_any_work(tmp_path):
    stages = "".join(
        f"  {name}:\n    cmd: echo x > {name}.txt\n    deps: [{needed}]\n    outs: [{name}.txt]\n"
        for name, needed in (("train", "build/checked.txt"), ("claims", "train.txt"))
    )
    repository_of(tmp_path, "prompts", '""', stages)
    shutil.copy(Path(__file__).parents[1] / "claims.yaml", tmp_path)
    settings = tmp_path / "params.yaml"
    settings.write_text(re.sub(r"^claims:.*$", "claims: [K03]", settings.read_text(), flags=re.MULTILINE))
    with pytest.raises(ConfigError, match=r"params.yaml: .*cannot decide\n  K03: needs .*the run.* ppo_reversed"):
        reproduce(tmp_path, tmp_path / ".scratch", 1)
    assert not (tmp_path / "train.txt").exists()
    settings.write_text(settings.read_text().replace("[K03]", "[]"))
    check(tmp_path, ["claims"])


def test_an_unknown_profile_is_named(tmp_path):
    (tmp_path / "profiles/smoke").mkdir(parents=True)
    (tmp_path / "profiles/smoke/params.yaml").write_text("")
    done = subprocess.run(
        [sys.executable, "-m", "workbook.stages.reproduce", "smok"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 2 and "no profile 'smok'" in done.stderr and "mini, smoke" in done.stderr


def test_a_lock_cut_short_by_a_kill_is_mended(tmp_path, capsys):
    entry = "    cmd: x\n    deps:\n    - path: a\n      hash: md5\n      md5: 12\n      size: 1\n"
    text = "schema: '2.0'\nstages:\n  one:\n" + entry + "  two:\n" + entry
    lock = tmp_path / "dvc.lock"
    bad = [n for n in range(len(text)) if not whole(text[:n])]
    assert whole(text) and {text.index("path: a"), text.rindex("path: a") + 5, text.rindex("hash")} <= set(bad)
    lock.write_text(text)
    keep_lock(tmp_path, tmp_path / "s")
    for n in bad:
        lock.write_text(text[:n])
        keep_lock(tmp_path, tmp_path / "s")  # a part is never kept
        mend_lock(tmp_path, tmp_path / "s")
        assert lock.read_text() == text
    assert "cut short" in capsys.readouterr().out
    lock.write_text(text[: bad[-1]])
    mend_lock(tmp_path, tmp_path / "none")
    assert not lock.exists()


def test_stages_get_the_variables_that_are_meant_for_them(toy):
    (toy / "dvc.yaml").write_text("stages:\n  a:\n    cmd: echo $RLNLP_FORKSERVER > a.txt\n    outs: [a.txt]\n")
    assert Scheduler(toy, toy / ".scratch", {"a": set()}, {"a"}, 1, variables={"RLNLP_FORKSERVER": "there"}).run()
    assert (toy / "a.txt").read_text() == "there\n"
