"""Never lose work: fingerprints, atomic files, state that survives kills, one writer, tables."""

import lzma
import os
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
import torch

from workbook.store import files, fingerprint, identity, locks, states, tables
from workbook.store.once import once

from .waiting import DEADLINE_S, alive, until

ROOT = Path(__file__).resolve().parents[1]


def start(code: str, *arguments) -> subprocess.Popen:
    """A Python process running `code` with this package importable."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-u", "-c", code, *map(str, arguments)]
    pipes = {name: subprocess.PIPE for name in ("stdin", "stdout", "stderr")}
    return subprocess.Popen(command, **pipes, text=True, env=env)


# fingerprints


def keyed(*given, **named) -> str:
    return fingerprint.digest(fingerprint.fingerprint_inputs(*given, **named))


@pytest.fixture
def inputs(tmp_path, monkeypatch):
    """Settings, a package, a data folder and a model folder, and the fingerprint of it all."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(identity, "here", lambda: identity.Code(tmp_path, ["toy"]))
    files = {
        "toy/__init__.py": "",
        "toy/train.py": "from .maths import add\n\ndef go():\n    return add()\n",
        "toy/maths.py": "def add():\n    return 1\n",
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
        return keyed({**settings, **changes}, [], ["data/draw1", "models/draw1"], ["toy.train:go"])

    return now


def test_fingerprint_repeats(inputs):
    assert inputs() == inputs() and len(inputs()) == 64


def test_the_code_that_is_named_is_part_of_it(inputs, monkeypatch):
    before = inputs()
    Path("toy/train.py").write_text("from .maths import add\n\n\ndef go():\n    # sum\n    return add()\n")
    monkeypatch.setattr(identity, "here", lambda: identity.Code(".", ["toy"]))
    assert inputs() == before
    Path("toy/maths.py").write_text("def add():\n    return 2\n")
    assert inputs() != before


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
    monkeypatch.setattr(fingerprint.importlib.metadata, "version", lambda name: "0")
    assert inputs() != before


def test_missing_folder_and_module(inputs):
    with pytest.raises(FileNotFoundError, match="draw9"):
        keyed(folders=["data/draw9"])
    with pytest.raises(identity.CodeError, match=r"toy\.trian"):
        keyed(code=["toy.trian:go"])


def test_moved_checkout_keeps_the_fingerprint(tmp_path):
    digests = []
    for name in ("here", "there"):
        folder = tmp_path / name / "draw1"
        folder.mkdir(parents=True)
        (folder / "a.txt").write_text("a")
        digests.append(keyed({}, [folder / "a.txt"], [folder]))
    assert digests[0] == digests[1]


def test_two_folders_of_one_name_both_count(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name / "policy").mkdir(parents=True)
        (tmp_path / name / "policy" / "w").write_text(name)
    a, b = (tmp_path / name / "policy" for name in "ab")
    assert len({keyed(folders=f) for f in ([a], [b], [a, b], [b, a])}) == 4


def test_keyed_folder_and_what_changed(tmp_path):
    first = fingerprint.fingerprint_inputs({"learner.gamma": 0.95, "kl": 0.1})
    second = fingerprint.fingerprint_inputs({"learner.gamma": 0.5, "kl": 0.1})
    folder = fingerprint.keyed_folder(tmp_path, first)
    assert folder == fingerprint.keyed_folder(tmp_path, first) and folder != fingerprint.keyed_folder(
        tmp_path / "x", second
    )
    assert fingerprint.changed(first, second) == ["setting learner.gamma: 0.95 -> 0.5"]
    files.atomic_json(folder / "inputs.json", second)
    with pytest.raises(RuntimeError, match="other inputs"):
        fingerprint.keyed_folder(tmp_path, first)


# atomic files and state


def test_atomic_write_keeps_the_old_file_if_it_fails(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    files.atomic_json(path, {"b": 0.1, "a": [1, None]})
    before = path.read_bytes()
    with pytest.raises(ValueError):
        files.atomic_json(path, {"a": float("nan")})
    monkeypatch.setattr(os, "fsync", lambda handle: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        files.atomic_write(path, "new")
    assert path.read_bytes() == before and [p.name for p in tmp_path.iterdir()] == ["a.json"]


def state(n: int) -> dict[str, torch.Tensor]:
    return {"w": torch.full((3, 4), n + 0.1), "step": torch.tensor(n), "rng": torch.arange(5, dtype=torch.uint8)}


def test_state_round_trip_is_exact(tmp_path):
    assert states.load_state(tmp_path) is None
    tensors = {
        "x": torch.randn(7, 3),
        "h": torch.randn(4).bfloat16(),
        "b": torch.tensor([True]),
        "e": torch.zeros(0, 2),
    }
    tensors |= {"view": torch.randn(6, 2).t(), "grad": torch.randn(2, requires_grad=True)}
    meta = {"update": 3, "kl_coef": 0.1 + 0.2, "curve": [{"a": 1e-300}], "none": None, "text": "é\n"}
    states.save_state(tmp_path, tensors, meta)
    loaded, loaded_meta = states.load_state(tmp_path)
    assert loaded_meta == meta and loaded.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert loaded[name].dtype == tensor.dtype and torch.equal(loaded[name], tensor.detach()), name


def test_tied_weights_stay_tied_and_overlaps_are_allowed(tmp_path):
    base = torch.arange(10.0)
    states.save_state(tmp_path, {"wte": base, "lm_head": base, "part": base[2:5], "same": base.clone()})
    loaded, _ = states.load_state(tmp_path)
    assert loaded["wte"] is loaded["lm_head"] and loaded["same"] is not loaded["wte"]
    assert loaded["part"].tolist() == [2, 3, 4] and torch.equal(loaded["same"], base)


def test_newest_state_wins_and_old_ones_go(tmp_path):
    for n in range(5):
        states.save_state(tmp_path, state(n), {"n": n})
    assert states.load_state(tmp_path)[1] == {"n": 4}
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("damage", ["truncate", "flip", "empty", "garbage"])
def test_damaged_state_falls_back_to_the_one_before(tmp_path, damage):
    states.save_state(tmp_path, state(1), {"n": 1})
    newest = states.save_state(tmp_path, state(2), {"n": 2})
    data = bytearray(newest.read_bytes())
    if damage == "truncate":
        data = data[:-1]
    elif damage == "flip":
        data[-3] ^= 1
    else:
        data = b"" if damage == "empty" else os.urandom(100)
    newest.write_bytes(data)
    with pytest.warns(UserWarning, match="damaged"):
        tensors, meta = states.load_state(tmp_path)
    assert meta == {"n": 1} and torch.equal(tensors["w"], state(1)["w"])
    states.save_state(tmp_path, state(3), {"n": 3})  # the whole one before is kept, the damaged one is not counted
    assert len(list(tmp_path.glob("state-*"))) == 2 and not list(tmp_path.glob("damaged-*"))
    newest = max(tmp_path.glob("state-*"))
    newest.write_bytes(b"")
    with pytest.warns(UserWarning, match="damaged"):
        assert states.load_state(tmp_path)[1] == {"n": 1}


def test_all_states_damaged(tmp_path):
    states.save_state(tmp_path, state(1)).write_bytes(b"x")
    with pytest.warns(UserWarning):
        assert states.load_state(tmp_path) is None


def test_meta_must_be_json(tmp_path):
    for bad in ({"a": float("nan")}, {"a": object()}):
        with pytest.raises((ValueError, TypeError)):
            states.save_state(tmp_path, state(1), bad)
    assert list(tmp_path.iterdir()) == []


WRITER = """
import os, signal, sys, torch
from workbook.store import files, fingerprint, locks, states, tables
torch.set_num_threads(1)
folder, left = sys.argv[1], int(sys.argv[2])

def count(event, given):
    global left
    if event.startswith(("open", "os.")):
        left -= 1
        if left == -1:
            os.kill(os.getpid(), signal.SIGKILL)

with locks.writer_lock(folder, 30):
    found = states.load_state(folder)
    n = found[1]["n"] if found else 0
    print(n, flush=True)
    sys.addaudithook(count)
    while True:
        n += 1
        states.save_state(folder, {"w": torch.full((200_000,), float(n)), "n": torch.tensor(n)}, {"n": n})
        tables.write_table(folder + "/curve.csv", [{"n": m, "half": m / 2} for m in range(1, n + 1)])
"""


def test_kill_a_writer_at_any_moment(tmp_path):
    """SIGKILL before some file is opened, renamed or removed, often: the state is whole, and none older than read."""
    chance, last, resumed = random.Random(0), 0, 0
    for _ in range(6):
        writer = start(WRITER, tmp_path, chance.randrange(60))
        said, errors = writer.communicate()
        assert writer.returncode == -signal.SIGKILL and int(said) == last, errors
        tensors, meta = states.load_state(tmp_path) or ({}, {"n": 0})
        assert meta["n"] >= last
        resumed += meta["n"] > last
        last = meta["n"]
        if tensors:
            assert tensors["n"].item() == last and tensors["w"].eq(last).all()
        if (tmp_path / "curve.csv").exists():
            rows = tables.read_table(tmp_path / "curve.csv")
            assert [row["n"] for row in rows] == list(range(1, len(rows) + 1))
            assert last - len(rows) in (0, 1) and rows[-1]["half"] == rows[-1]["n"] / 2
    assert resumed >= 4 and last > 6


# publish


def test_whole_leaves_the_old_result_where_the_block_fails(tmp_path):
    out = tmp_path / "out"
    with files.whole(out) as fresh:
        (fresh / "a").write_text("1")
        assert not out.exists()
    with pytest.raises(ZeroDivisionError), files.whole(out) as fresh:
        (fresh / "a").write_text("2")
        raise ZeroDivisionError
    assert (out / "a").read_text() == "1" and [p.name for p in tmp_path.iterdir()] == ["out"]


def test_once_makes_once_for_the_same_inputs(tmp_path):
    made = []

    def make(fresh, home):
        made.append(fresh)
        states.save_state(home, state(1))
        (fresh / "a").write_text(str(len(made)))

    first = once(tmp_path, {"x": "1"}, make)
    assert first == once(tmp_path, {"x": "1"}, make) and (first / "a").read_text() == "1" and len(made) == 1
    assert not list(first.parent.glob("state-*"))  # they are for a kill
    other = once(tmp_path, {"x": "2"}, make)
    assert other != first and (other / "a").read_text() == "2"
    with locks.writer_lock(first.parent, wait_s=0):  # who only reads what is finished waits for nobody
        assert once(tmp_path, {"x": "1"}, make, wait_s=0) == first


def test_once_that_fails_keeps_the_states_and_publishes_nothing(tmp_path):
    def fail(fresh, home):
        (fresh / "a").write_text("half")
        states.save_state(home, state(1), {"n": 1})
        raise ZeroDivisionError

    def go_on(fresh, home):
        (fresh / "a").write_text(str(states.load_state(home)[1]["n"]))

    with pytest.raises(ZeroDivisionError):
        once(tmp_path, {"x": "1"}, fail)
    assert not list(tmp_path.glob("*/finished"))
    assert (once(tmp_path, {"x": "1"}, go_on) / "a").read_text() == "1"


def test_publish_replaces_the_whole_folder(tmp_path):
    scratch, out = tmp_path / "scratch", tmp_path / "deep" / "out"
    (scratch / "policy").mkdir(parents=True)
    (scratch / "policy" / "w").write_text("1")
    (scratch / ".lock").write_text("")
    states.save_state(scratch, state(1))
    files.publish(scratch, out)
    (out / "stale").write_text("")
    (tmp_path / "deep" / ".out.part").mkdir()  # left by a killed writer
    (scratch / "policy" / "w").write_text("2")
    files.publish(scratch, out)
    assert [p.relative_to(out).as_posix() for p in sorted(out.rglob("*"))] == ["policy", "policy/w"]
    assert (out / "policy" / "w").read_text() == "2" and [p.name for p in out.parent.iterdir()] == ["out"]
    with pytest.raises(FileNotFoundError, match="nothing to publish"):
        files.publish(tmp_path / "none", out)


def test_publish_that_fails_leaves_the_old_result(tmp_path, monkeypatch):
    scratch, out = tmp_path / "scratch", tmp_path / "out"
    for folder, text in ((scratch, "new"), (out, "old")):
        folder.mkdir()
        (folder / "a").write_text(text)
    monkeypatch.setattr(files, "sync", lambda path: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        files.publish(scratch, out)
    assert (out / "a").read_text() == "old" and sorted(p.name for p in tmp_path.iterdir()) == ["out", "scratch"]


# one writer

HOLDER = """
import sys, time
from workbook.store import files, fingerprint, locks, states, tables
with locks.writer_lock(sys.argv[1], 5):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_two_writers_cannot_coexist(tmp_path):
    holder = start(HOLDER, tmp_path)
    try:
        assert holder.stdout.readline() == "held\n"
        began = time.monotonic()
        message = f"process {holder.pid} .*is writing here"
        with pytest.raises(locks.LockError, match=message), locks.writer_lock(tmp_path, wait_s=0.5):
            pytest.fail("two writers")
        assert time.monotonic() - began > 0.4
        holder.kill()
        holder.wait()
        with locks.writer_lock(tmp_path, wait_s=0):  # the kernel gave it back
            pass
        with locks.writer_lock(tmp_path, wait_s=0):
            pass
    finally:
        holder.kill()
        holder.communicate()


def test_waiting_writer_gets_its_turn(tmp_path, capsys):
    holder, said = start(HOLDER, tmp_path), ""
    assert holder.stdout.readline() == "held\n"

    def waiting() -> bool:
        nonlocal said
        said += capsys.readouterr().err
        return f"waiting for process {holder.pid}" in said

    with ThreadPoolExecutor() as pool:
        freed = pool.submit(lambda: until(waiting) and holder.stdin.close())
        with locks.writer_lock(tmp_path, wait_s=240):
            assert holder.wait(DEADLINE_S) == 0
        freed.result()
    holder.stdout.close(), holder.stderr.close()


def test_lock_is_not_inherited(tmp_path):
    with locks.writer_lock(tmp_path):
        child = subprocess.Popen(["cat"], stdin=subprocess.PIPE)  # until it is told to end
    try:
        with locks.writer_lock(tmp_path, wait_s=0):
            assert child.poll() is None
    finally:
        child.kill()
        child.communicate()


# A stand-in for dvc -> shell -> this package's process -> kernel: the middle ones do nothing special.
INNER = (
    "import os, signal; from workbook.store import locks; w = locks.die_with_parent(); "
    "signal.signal(signal.SIGUSR1, lambda *_: print('still here', flush=True)); "
    "print('inner', os.getpid(), w, flush=True)\nwhile True: signal.pause()"
)
SHELL = f'import subprocess, sys; subprocess.run([sys.executable, "-u", "-c", {INNER!r}])'


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="signals of POSIX")
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
        until(lambda: not alive(inner), "the writer outlived the process that started it")
    finally:
        for pid in (inner, shell):
            if pid and alive(pid):
                os.kill(pid, signal.SIGKILL)
        outer.kill()
        outer.communicate()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="signals of POSIX")
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
        launcher.wait(DEADLINE_S)
        _, inner, watched = launcher.stdout.readline().split(maxsplit=2)
        inner = int(inner)
        assert psutil.Process(terminal).ppid() != launcher.pid and str(terminal) not in watched
        os.kill(terminal, signal.SIGKILL)
        until(lambda: not alive(terminal))
        os.kill(inner, signal.SIGUSR1)
        assert launcher.stdout.readline() == "still here\n"
    finally:
        for pid in (inner, psutil.Process(inner).ppid() if inner and alive(inner) else None, terminal):
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
    tables.write_table(path, rows)
    back = tables.read_table(path)
    assert back == rows and [list(map(type, r.values())) for r in back] == [list(map(type, r.values())) for r in rows]
    first = path.read_bytes()
    tables.write_table(path, back)
    assert path.read_bytes() == first
    tables.write_table(path, [{"x": torch.tensor(0.5), "nan": float("nan")}])
    assert path.read_text() == "x,nan\n0.5,nan\n"
    tables.write_table(path, [])
    assert tables.read_table(path) == []
    small = tmp_path / "t.csv.xz"
    tables.write_table(small, rows)
    assert lzma.decompress(small.read_bytes()) == first and tables.read_table(small) == rows


@pytest.mark.parametrize("text", ["", "1", "-1.5", "1e5", "nan", "True", "007"])
def test_text_that_reads_back_as_something_else_is_refused(tmp_path, text):
    with pytest.raises(ValueError, match="row 0, a"):
        tables.write_table(tmp_path / "t.csv", [{"a": text}])


def test_ragged_tables_are_refused(tmp_path):
    path = tmp_path / "t.csv"
    with pytest.raises(ValueError, match="row 1: expected columns"):
        tables.write_table(path, [{"a": 1}, {"b": 2}])
    path.write_text("a,b\n1,2\n3\n")
    with pytest.raises(ValueError, match="row 1: expected 2 cells"):
        tables.read_table(path)


def test_states_take_a_twentieth_of_the_time_at_most_and_are_saved_by_time(monkeypatch):
    """On a clock of our own: updates of a second, states that take what ``cost`` says."""
    monkeypatch.delenv(states.EVERY_UPDATE, raising=False)

    def saved(size: float, cost: float, updates: int = 600) -> list[int]:
        now, found = [0.0], []
        monkeypatch.setattr(states.time, "monotonic", lambda: now[0])
        pace = states.Pace(size)
        for update in range(1, updates + 1):
            now[0] += 1
            if pace.due(end=update == updates):
                with pace.saving():
                    now[0] += cost
                found.append(update)
                assert len(found) * cost <= states.SHARE * now[0]
        return found

    assert saved(1e6, 0.25) == [*range(20, 600, 20), 600]
    assert saved(3e9, 15.0)[0] == 300 and len(saved(3e9, 15.0)) == 2
    assert saved(3e9, 0.25)[:3] == [300, 320, 340]  # the disk is faster than thought
    assert saved(1e6, 0.01, 10) == [10] and saved(3e9, 15.0, 100) == []
    monkeypatch.setenv(states.EVERY_UPDATE, "1")
    monkeypatch.setattr(states, "SHARE", 1.0)
    assert saved(3e9, 0.01, 5) == [1, 2, 3, 4, 5]
