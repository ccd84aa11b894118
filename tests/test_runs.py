"""Never lose work: fingerprints, atomic files, state that survives kills, one writer, tables."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from rlnlp import runs

ROOT = Path(__file__).resolve().parents[1]


def start(code: str, *arguments) -> subprocess.Popen:
    """A Python process running `code` with this package importable."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-u", "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)


def alive(pid: int) -> bool:
    return runs._born(pid) is not None


def gone(pid: int, within_s: float = 10.0) -> bool:
    deadline = time.monotonic() + within_s
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not alive(pid)


# fingerprints


@pytest.fixture
def inputs(tmp_path, monkeypatch):
    """Settings, a package, a data folder and a model folder, and the fingerprint of it all."""
    monkeypatch.chdir(tmp_path)
    files = {
        "toy/__init__.py": "",
        "toy/train.py": "from .maths import add\n\ndef go():\n    import toy.lazy\n",
        "toy/maths.py": "from . import deep\n\ndef add(): ...\n",
        "toy/deep/__init__.py": "from ..base import x\n",
        "toy/base.py": "x = 1\n",
        "toy/lazy.py": "import importlib\nimportlib.import_module('toy.named')\n",
        "toy/named.py": "import json, torch\n",
        "toy/unrelated.py": "from .train import go\n",
        "toy/skipped.py": "from . import behind\n",
        "toy/behind.py": "",
        "data/draw1/train.jsonl": '{"text": "good"}\n',
        "models/draw1/policy/model.safetensors": "weights",
        "models/draw1/reward/config.json": "{}",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    settings = {"learner.gamma": 0.95, "seeds": [1, 2], "name": "ppo"}

    def now(**changes):
        package = runs.package_files("toy.train", package=tmp_path / "toy")
        return runs.fingerprint({**settings, **changes}, package, ["data/draw1", "models/draw1"])

    return now


def test_fingerprint_repeats(inputs):
    assert inputs() == inputs() and len(inputs()) == 64


@pytest.mark.parametrize(
    "name",
    ["toy/__init__", "toy/train", "toy/maths", "toy/deep/__init__", "toy/base", "toy/lazy", "toy/named"],
)
def test_a_package_file_used_changes_the_fingerprint(inputs, name):
    before = inputs()
    with open(f"{name}.py", "a") as file:
        file.write("y = 2\n")
    assert inputs() != before


def test_an_unrelated_package_file_does_not(inputs):
    before = inputs()
    Path("toy/unrelated.py").write_text("changed = True\n")
    Path("toy/new.py").write_text("")
    assert inputs() == before


@pytest.mark.parametrize(
    "path", ["data/draw1/train.jsonl", "models/draw1/policy/model.safetensors", "models/draw1/reward/config.json"]
)
def test_data_and_models_change_the_fingerprint(inputs, path):
    before, text = inputs(), Path(path).read_text()
    Path(path).write_text(text + " ")
    assert inputs() != before
    Path(path).write_text(text)
    assert inputs() == before
    os.rename(path, path + ".moved")
    assert inputs() != before


def test_same_size_edit_is_seen(inputs):
    before = inputs()
    Path("models/draw1/policy/model.safetensors").write_text("weighty")
    assert inputs() != before


def test_settings_change_the_fingerprint(inputs):
    before = inputs()
    for changes in ({"learner.gamma": 0.9}, {"seeds": [2, 1]}, {"name": "nlpo"}, {"extra": None}, {"seeds": "[1, 2]"}):
        assert inputs(**changes) != before
    assert inputs(name="ppo") == before


def test_library_versions_are_part_of_it(inputs, monkeypatch):
    before = inputs()
    monkeypatch.setattr(runs.importlib.metadata, "version", lambda name: "0")
    assert inputs() != before


def test_missing_folder_and_module(inputs):
    with pytest.raises(FileNotFoundError, match="draw9"):
        runs.fingerprint(folders=["data/draw9"])
    with pytest.raises(ModuleNotFoundError, match=r"toy\.trian"):
        runs.package_files("toy.trian", package=Path("toy"))


def test_modules_left_out_are_not_followed(inputs):
    names = {p.name for p in runs.package_files("toy.train", without=("toy.lazy",), package=Path("toy"))}
    assert names == {"__init__.py", "train.py", "maths.py", "base.py"}
    names = [p.name for p in runs.package_files("toy.skipped", package=Path("toy"))]
    assert sorted(names) == ["__init__.py", "behind.py", "skipped.py"]


def test_closure_of_the_real_package():
    ppo = {p.relative_to(runs.PACKAGE).as_posix() for p in runs.package_files("rlnlp.learners.ppo")}
    assert {
        "learners/ppo.py",
        "learners/__init__.py",
        "__init__.py",
        "losses.py",
        "advantages.py",
        "settings.py",
    } <= ppo
    assert not {"learners/nlpo.py", "config.py", "corpus.py"} & ppo
    nlpo = {p.relative_to(runs.PACKAGE).as_posix() for p in runs.package_files("rlnlp.learners.nlpo")}
    assert nlpo > ppo and "learners/nlpo.py" in nlpo


def test_moved_checkout_keeps_the_fingerprint(tmp_path):
    digests = []
    for name in ("here", "there"):
        folder = tmp_path / name / "draw1"
        folder.mkdir(parents=True)
        (folder / "a.txt").write_text("a")
        digests.append(runs.fingerprint({}, [runs.PACKAGE / "runs.py"], [folder]))
    assert digests[0] == digests[1]


def test_two_folders_of_one_name_both_count(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name / "policy").mkdir(parents=True)
        (tmp_path / name / "policy" / "w").write_text(name)
    a, b = (tmp_path / name / "policy" for name in "ab")
    assert len({runs.fingerprint(folders=f) for f in ([a], [b], [a, b], [b, a])}) == 4


def test_keyed_folder_and_what_changed(tmp_path):
    first = runs.fingerprint_inputs({"learner.gamma": 0.95, "kl": 0.1})
    second = runs.fingerprint_inputs({"learner.gamma": 0.5, "kl": 0.1})
    assert runs.why_new(tmp_path, first) == []
    folder = runs.keyed_folder(tmp_path, first)
    assert folder == runs.keyed_folder(tmp_path, first) and folder != runs.keyed_folder(tmp_path / "x", second)
    assert runs.why_new(tmp_path, second) == ["setting learner.gamma: 0.95 -> 0.5"]
    runs.atomic_json(folder / "inputs.json", second)
    with pytest.raises(RuntimeError, match="other inputs"):
        runs.keyed_folder(tmp_path, first)


# atomic files and state


def test_atomic_write_keeps_the_old_file_if_it_fails(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    runs.atomic_json(path, {"b": 0.1, "a": [1, None]})
    before = path.read_bytes()
    with pytest.raises(ValueError):
        runs.atomic_json(path, {"a": float("nan")})
    monkeypatch.setattr(os, "fsync", lambda handle: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        runs.atomic_write(path, "new")
    assert path.read_bytes() == before and [p.name for p in tmp_path.iterdir()] == ["a.json"]


def state(n: int) -> dict[str, torch.Tensor]:
    return {"w": torch.full((3, 4), n + 0.1), "step": torch.tensor(n), "rng": torch.arange(5, dtype=torch.uint8)}


def test_state_round_trip_is_exact(tmp_path):
    assert runs.load_state(tmp_path) is None
    tensors = {
        "x": torch.randn(7, 3),
        "h": torch.randn(4).bfloat16(),
        "b": torch.tensor([True]),
        "e": torch.zeros(0, 2),
    }
    tensors |= {"view": torch.randn(6, 2).t(), "grad": torch.randn(2, requires_grad=True)}
    meta = {"update": 3, "kl_coef": 0.1 + 0.2, "curve": [{"a": 1e-300}], "none": None, "text": "é\n"}
    runs.save_state(tmp_path, tensors, meta)
    loaded, loaded_meta = runs.load_state(tmp_path)
    assert loaded_meta == meta and loaded.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert loaded[name].dtype == tensor.dtype and torch.equal(loaded[name], tensor.detach()), name


def test_tied_weights_stay_tied_and_overlaps_are_allowed(tmp_path):
    base = torch.arange(10.0)
    runs.save_state(tmp_path, {"wte": base, "lm_head": base, "part": base[2:5], "same": base.clone()})
    loaded, _ = runs.load_state(tmp_path)
    assert loaded["wte"] is loaded["lm_head"] and loaded["same"] is not loaded["wte"]
    assert loaded["part"].tolist() == [2, 3, 4] and torch.equal(loaded["same"], base)


def test_newest_state_wins_and_old_ones_go(tmp_path):
    for n in range(5):
        runs.save_state(tmp_path, state(n), {"n": n})
    assert runs.load_state(tmp_path)[1] == {"n": 4}
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("damage", ["truncate", "flip", "empty", "garbage"])
def test_damaged_state_falls_back_to_the_one_before(tmp_path, damage):
    runs.save_state(tmp_path, state(1), {"n": 1})
    newest = runs.save_state(tmp_path, state(2), {"n": 2})
    data = bytearray(newest.read_bytes())
    if damage == "truncate":
        data = data[:-1]
    elif damage == "flip":
        data[-3] ^= 1
    else:
        data = b"" if damage == "empty" else os.urandom(100)
    newest.write_bytes(data)
    with pytest.warns(UserWarning, match="damaged"):
        tensors, meta = runs.load_state(tmp_path)
    assert meta == {"n": 1} and torch.equal(tensors["w"], state(1)["w"])
    runs.save_state(tmp_path, state(3), {"n": 3})  # the whole one before is kept, the damaged one is not counted
    assert len(list(tmp_path.glob("state-*"))) == 2 and not list(tmp_path.glob("damaged-*"))
    newest = max(tmp_path.glob("state-*"))
    newest.write_bytes(b"")
    with pytest.warns(UserWarning, match="damaged"):
        assert runs.load_state(tmp_path)[1] == {"n": 1}


def test_all_states_damaged(tmp_path):
    runs.save_state(tmp_path, state(1)).write_bytes(b"x")
    with pytest.warns(UserWarning):
        assert runs.load_state(tmp_path) is None


def test_meta_must_be_json(tmp_path):
    for bad in ({"a": float("nan")}, {"a": object()}):
        with pytest.raises((ValueError, TypeError)):
            runs.save_state(tmp_path, state(1), bad)
    assert list(tmp_path.iterdir()) == []


WRITER = """
import sys, torch
from rlnlp import runs
torch.set_num_threads(1)
folder = sys.argv[1]
with runs.writer_lock(folder, 30):
    found = runs.load_state(folder)
    n = found[1]["n"] if found else 0
    print(n, flush=True)
    while True:
        n += 1
        runs.save_state(folder, {"w": torch.full((200_000,), float(n)), "n": torch.tensor(n)}, {"n": n})
        runs.append_rows(folder + "/curve.csv", [{"n": n, "half": n / 2}], key=["n"])
"""


def test_kill_a_writer_at_any_moment(tmp_path):
    """SIGKILL in the middle of saving, many times: the state is always whole, and never older than what was read."""
    chance, last, resumed = random.Random(0), 0, 0
    for _ in range(9):
        writer = start(WRITER, tmp_path)
        begun = int(writer.stdout.readline() or -1)
        time.sleep(chance.uniform(0.0, 0.15))
        writer.kill()
        _, errors = writer.communicate()
        assert begun == last, errors
        tensors, meta = runs.load_state(tmp_path) or ({}, {"n": 0})
        assert meta["n"] >= last
        resumed += meta["n"] > last
        last = meta["n"]
        if tensors:
            assert tensors["n"].item() == last and tensors["w"].eq(last).all()
        if (tmp_path / "curve.csv").exists():
            rows = runs.read_table(tmp_path / "curve.csv")
            assert [row["n"] for row in rows] == list(range(1, len(rows) + 1))
            assert last - len(rows) in (0, 1) and rows[-1]["half"] == rows[-1]["n"] / 2
            if last > len(rows):  # killed between the two: the row of a saved update is missing, as the curve is not in
                runs.append_rows(tmp_path / "curve.csv", [{"n": last, "half": last / 2}])  # the state; complete it
    assert resumed >= 4 and last > 9


# publish


def test_publish_replaces_the_whole_folder(tmp_path):
    scratch, out = tmp_path / "scratch", tmp_path / "deep" / "out"
    (scratch / "policy").mkdir(parents=True)
    (scratch / "policy" / "w").write_text("1")
    (scratch / ".lock").write_text("")
    runs.save_state(scratch, state(1))
    runs.publish(scratch, out)
    (out / "stale").write_text("")
    (tmp_path / "deep" / ".out.1.new.publish").mkdir()  # left by a killed writer
    (scratch / "policy" / "w").write_text("2")
    runs.publish(scratch, out)
    assert [p.relative_to(out).as_posix() for p in sorted(out.rglob("*"))] == ["policy", "policy/w"]
    assert (out / "policy" / "w").read_text() == "2" and [p.name for p in out.parent.iterdir()] == ["out"]
    with pytest.raises(FileNotFoundError, match="nothing to publish"):
        runs.publish(tmp_path / "none", out)


def test_publish_that_fails_leaves_the_old_result(tmp_path, monkeypatch):
    scratch, out = tmp_path / "scratch", tmp_path / "out"
    for folder, text in ((scratch, "new"), (out, "old")):
        folder.mkdir()
        (folder / "a").write_text(text)
    monkeypatch.setattr(runs, "_sync", lambda path: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        runs.publish(scratch, out)
    assert (out / "a").read_text() == "old" and sorted(p.name for p in tmp_path.iterdir()) == ["out", "scratch"]


# one writer

HOLDER = """
import sys, time
from rlnlp import runs
with runs.writer_lock(sys.argv[1], 5):
    print("held", flush=True)
    time.sleep(60)
"""


def test_two_writers_cannot_coexist(tmp_path):
    holder = start(HOLDER, tmp_path)
    try:
        assert holder.stdout.readline() == "held\n"
        began = time.monotonic()
        message = f"process {holder.pid} .*is writing here"
        with pytest.raises(runs.LockError, match=message), runs.writer_lock(tmp_path, wait_s=0.5):
            pytest.fail("two writers")
        assert 0.4 < time.monotonic() - began < 5
        holder.kill()
        holder.wait()
        with runs.writer_lock(tmp_path, wait_s=0):  # the kernel gave it back
            pass
        with runs.writer_lock(tmp_path, wait_s=0):
            pass
    finally:
        holder.kill()
        holder.communicate()


def test_waiting_writer_gets_its_turn(tmp_path, capsys):
    holder = start(HOLDER.replace("60", "1"), tmp_path)
    assert holder.stdout.readline() == "held\n"
    with runs.writer_lock(tmp_path, wait_s=20):
        assert holder.wait(5) == 0
    assert f"waiting for process {holder.pid}" in capsys.readouterr().err
    holder.communicate()


def test_lock_is_not_inherited(tmp_path):
    with runs.writer_lock(tmp_path):
        child = subprocess.Popen(["sleep", "30"])
    try:
        with runs.writer_lock(tmp_path, wait_s=0):
            pass
    finally:
        child.kill()
        child.wait()


# A stand-in for dvc -> shell -> this package's process -> kernel: the middle ones do nothing special.
INNER = "import time; from rlnlp import runs; w = runs.die_with_parent(); print('inner', __import__('os').getpid(), w, flush=True); time.sleep(60)"
SHELL = f'import subprocess, sys; subprocess.run([sys.executable, "-u", "-c", {INNER!r}])'


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("who", ["outer", "shell"])
def test_killing_an_outer_process_kills_the_writer(tmp_path, who):
    """dvc (here a script of that name) -> a shell -> the writer; SIGKILL to either one alone ends the writer."""
    script = tmp_path / "dvc"
    script.write_text(
        "import subprocess, sys\n"
        f"p = subprocess.Popen([sys.executable, '-u', '-c', {SHELL!r}])\n"
        "print('shell', p.pid, flush=True)\np.wait()\n"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    outer = subprocess.Popen([sys.executable, "-u", str(script)], stdout=subprocess.PIPE, text=True, env=env)
    shell = inner = None
    try:
        lines = sorted(outer.stdout.readline().split(maxsplit=2) for _ in range(2))
        inner, shell = int(lines[0][1]), int(lines[1][1])
        watched = lines[0][2]
        assert str(shell) in watched and str(outer.pid) in watched
        os.kill(outer.pid if who == "outer" else shell, signal.SIGKILL)
        if who == "outer":
            outer.wait()
        assert gone(inner), "the writer outlived the process that started it"
    finally:
        for pid in (inner, shell):
            if pid and alive(pid):
                os.kill(pid, signal.SIGKILL)
        outer.kill()
        outer.communicate()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_a_closed_terminal_does_not_kill_a_run(tmp_path):
    """Processes above the pipeline (a shell that mentions dvc in its text) are not watched beyond the parent.

    The terminal's own parent ends at once, so that a `make test` above this test is not among its ancestors.
    """
    script = tmp_path / "dvc"
    script.write_text(f"import subprocess, sys\nsubprocess.run([sys.executable, '-u', '-c', {INNER!r}])\n")
    code = f"import subprocess, sys; 'dvc repro'; subprocess.run([sys.executable, '-u', {str(script)!r}])"
    launch = f"import subprocess, sys; print(subprocess.Popen([sys.executable, '-u', '-c', {code!r}]).pid, flush=True)"
    launcher, inner = start(launch), None
    terminal = int(launcher.stdout.readline())
    try:
        launcher.wait(20)
        _, inner, watched = launcher.stdout.readline().split(maxsplit=2)
        inner = int(inner)
        assert runs._parent(terminal) != launcher.pid and str(terminal) not in watched
        os.kill(terminal, signal.SIGKILL)
        time.sleep(1.0)
        assert alive(inner)
    finally:
        for pid in (inner, runs._parent(inner) if inner else None, terminal):
            if pid and pid > 1 and alive(pid):
                os.kill(pid, signal.SIGKILL)
        launcher.kill()
        launcher.communicate()


# tables


def test_table_round_trip(tmp_path):
    path = tmp_path / "t.csv"
    rows = [
        {"name": 'a, "b"\nc\r', "n": 1, "x": 0.1 + 0.2, "flag": True, "none": None},
        {"name": "é", "n": -(10**20), "x": 1e-300, "flag": False, "none": float("-inf")},
        {"name": "1.2.3", "n": 0, "x": -0.0, "flag": True, "none": 1e22},
    ]
    runs.write_table(path, rows)
    back = runs.read_table(path)
    assert back == rows and [list(map(type, r.values())) for r in back] == [list(map(type, r.values())) for r in rows]
    first = path.read_bytes()
    runs.write_table(path, back)
    assert path.read_bytes() == first
    runs.write_table(path, [{"x": torch.tensor(0.5), "nan": float("nan")}])
    assert path.read_text() == "x,nan\n0.5,nan\n"
    runs.write_table(path, [])
    assert runs.read_table(path) == []


@pytest.mark.parametrize("text", ["", "1", "-1.5", "1e5", "nan", "True", "007"])
def test_text_that_reads_back_as_something_else_is_refused(tmp_path, text):
    with pytest.raises(ValueError, match="row 0, a"):
        runs.write_table(tmp_path / "t.csv", [{"a": text}])


def test_ragged_tables_are_refused(tmp_path):
    path = tmp_path / "t.csv"
    with pytest.raises(ValueError, match="row 1: expected columns"):
        runs.write_table(path, [{"a": 1}, {"b": 2}])
    path.write_text("a,b\n1,2\n3\n")
    with pytest.raises(ValueError, match="row 1: expected 2 cells"):
        runs.read_table(path)


def test_rows_of_equal_key_replace(tmp_path):
    path = tmp_path / "t.csv"
    runs.append_rows(path, [{"seed": 1, "update": u, "x": u * 0.5} for u in range(3)], key=["seed", "update"])
    runs.append_rows(
        path, [{"seed": 1, "update": 2, "x": 9.0}, {"seed": 2, "update": 2, "x": 8.0}], key=["seed", "update"]
    )
    assert [(r["seed"], r["update"], r["x"]) for r in runs.read_table(path)] == [
        (1, 0, 0.0), (1, 1, 0.5), (1, 2, 9.0), (2, 2, 8.0),
    ]  # fmt: skip
