"""Curves of runs told to trackers while they are trained: each update once, whatever a tracker does."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
from accelerate.tracking import LOGGER_TYPE_TO_CLASS
from tensorboardX.proto.event_pb2 import Event

from rlnlp.settings import ConfigError
from tests.built import REPOSITORY
from workbook.stages import follow, reproduce
from workbook.store import states
from workbook.store.files import read_json, seal, whole
from workbook.store.tables import write_table

RUN = "ppo_kl_0/seed1-0123456789abcdef"


def update(i: int) -> dict:
    return {"objective/score": i / 8, "objective/kl": 0.5, "note": None, "synced": True}


def trained(scratch, updates: int) -> None:
    """What a training leaves after so many updates."""
    curve = [update(i) for i in range(1, updates + 1)]
    states.save_state(scratch / "runs" / RUN / "checkpoint", {"w": torch.zeros(2)}, {"run": "x", "curve": curve})


def finished(scratch, updates: int) -> None:
    with whole(scratch / "runs" / RUN / "final") as work:
        who = {"condition": "ppo_kl_0", "seed": 1}
        write_table(work / "curves.csv", [{**who, "update": i, **update(i)} for i in range(1, updates + 1)])
        seal(work)


def shown(scratch) -> dict[str, list[tuple[int, float]]]:
    """Name -> (step, value) of all that TensorBoard would show, in the order of its files."""
    found: dict[str, list[tuple[int, float]]] = {}
    for path in sorted((scratch / "followed/tensorboard" / RUN).glob("events.*"), key=lambda p: int(p.suffix[1:])):
        with open(path, "rb") as file:
            while (length := file.read(12)) and len(length) == 12:
                event = Event.FromString(file.read(int.from_bytes(length[:8], "little")))
                file.read(4)
                for value in event.summary.value:
                    if value.HasField("simple_value"):
                        found.setdefault(value.tag, []).append((event.step, value.simple_value))
    return found


class Recorded:
    """A tracker that keeps what it was told."""

    made: list = []
    breaks = False

    def __init__(self, **given):
        self.given, self.told = given, []
        self.made.append(self)

    def start(self): ...

    def finish(self): ...

    def store_init_configuration(self, values):
        self.about = values

    def log(self, values, step):
        if self.breaks:
            raise OSError("no route\nto its server")
        self.told.append((step, values))


@pytest.fixture
def recorded(monkeypatch):
    monkeypatch.setattr(Recorded, "made", [])
    monkeypatch.setattr(Recorded, "breaks", False)
    monkeypatch.setitem(LOGGER_TYPE_TO_CLASS, "wandb", Recorded)
    return Recorded


def test_a_curve_goes_on_where_it_was_and_ends_with_the_run(tmp_path):
    for updates, leave in ((3, trained), (3, trained), (5, trained), (6, finished)):
        leave(tmp_path, updates)
        follow.look("mini", tmp_path, ["tensorboard"])
        assert shown(tmp_path)["objective/score"] == [(i, i / 8) for i in range(1, updates + 1)]
    assert shown(tmp_path).keys() == {"objective/score", "objective/kl"}  # what can be drawn
    assert not list(follow.curves(tmp_path, read_json(tmp_path / "followed/tensorboard/told.json")))  # read no more
    files = len(list((tmp_path / "followed").rglob("events.*")))
    follow.look("mini", tmp_path, ["tensorboard"])
    assert len(list((tmp_path / "followed").rglob("events.*"))) == files  # all is told: nothing is opened


def test_a_run_has_one_name_however_often_it_is_opened(tmp_path, recorded):
    trained(tmp_path, 2)
    follow.look("mini", tmp_path, ["wandb"])
    finished(tmp_path, 4)
    follow.look("mini", tmp_path, ["wandb"])
    first, second = recorded.made
    assert first.given == second.given and first.given["id"] == "0123456789abcdef" and first.given["resume"] == "allow"
    assert [step for tracker in recorded.made for step, _ in tracker.told] == [1, 2, 3, 4]
    assert first.about == {"profile": "mini", "condition": "ppo_kl_0", "seed": "seed1-0123456789abcdef"}
    assert not hasattr(second, "about")


def test_a_run_that_its_tracker_names_keeps_that_name_through_an_error(tmp_path, recorded, monkeypatch):
    monkeypatch.setitem(LOGGER_TYPE_TO_CLASS, "mlflow", recorded)
    monkeypatch.setattr(recorded, "active_run", SimpleNamespace(info=SimpleNamespace(run_id="its own")), raising=False)
    trained(tmp_path, 2)
    for breaks in (True, False):
        monkeypatch.setattr(recorded, "breaks", breaks)
        follow.look("mini", tmp_path, ["mlflow"])
    first, second = recorded.made
    assert (first.given["run_id"], second.given["run_id"]) == (None, "its own")
    assert hasattr(first, "about") and not hasattr(second, "about")
    assert [step for step, _ in second.told] == [1, 2]


def test_dvclive_is_told_to_leave_the_pipeline_alone(tmp_path, recorded, monkeypatch):
    monkeypatch.setitem(LOGGER_TYPE_TO_CLASS, "dvclive", recorded)
    trained(tmp_path, 1)
    follow.look("mini", tmp_path, ["dvclive"])
    assert recorded.made[0].given["dvcyaml"] is None and recorded.made[0].given["save_dvc_exp"] is False


def test_dvclive_itself_writes_curves_and_no_stage(tmp_path, monkeypatch):
    """It takes the dvc.yaml at the top of a repository for its own, unless it is told otherwise."""
    pytest.importorskip("dvclive", reason="DVCLive is not installed here")
    monkeypatch.chdir(tmp_path)
    commit = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "begun"]
    for command in (["git", "init", "-q"], [sys.executable, "-m", "dvc", "init", "-q"], commit):
        subprocess.run(command, check=True)
    stages, scratch = tmp_path / "dvc.yaml", tmp_path / ".scratch" / "mini"
    stages.write_text("stages: {}  # ours\n")
    for updates in (2, 4):
        trained(scratch, updates)
        follow.look("mini", scratch, ["dvclive"])
    assert stages.read_text() == "stages: {}  # ours\n"
    score = scratch / "followed/dvclive" / RUN / "plots/metrics/objective/score.tsv"
    assert score.read_text().splitlines() == ["step\tscore", "1\t0.125", "2\t0.25", "3\t0.375", "4\t0.5"]


def test_what_cannot_be_read_stops_no_tracker(tmp_path, recorded, capsys):
    other = tmp_path / "runs/a/seed1-00/checkpoint" / f"state-00000001-{'0' * 64}.safetensors"
    other.parent.mkdir(parents=True)
    other.write_bytes(b"damaged")
    trained(tmp_path, 1)
    names = ["wandb"]
    follow.look("mini", tmp_path, names)
    assert names == ["wandb"] and len(recorded.made[0].told) == 1 and "seed1-00: not read" in capsys.readouterr().out


def test_a_tracker_that_raises_is_asked_no_more_and_the_others_go_on(tmp_path, recorded, monkeypatch, capsys):
    trained(tmp_path, 3)
    monkeypatch.setattr(recorded, "breaks", True)
    names = ["wandb", "tensorboard"]
    follow.look("mini", tmp_path, names)
    assert capsys.readouterr().out == "LOG=wandb: told no more: OSError: no route to its server\n"
    assert names == ["tensorboard"] and len(shown(tmp_path)["objective/score"]) == 3
    monkeypatch.setattr(recorded, "breaks", False)
    follow.look("mini", tmp_path, ["wandb"])  # the command again: nothing of the curve is lost
    assert [step for step, _ in recorded.made[-1].told] == [1, 2, 3]


def test_a_follower_ends_with_what_it_follows_and_has_told_all(tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    scratch = tmp_path / ".scratch/mini"
    with follow.beside("mini", tmp_path, "tensorboard"):
        trained(scratch, 2)
        finished(scratch, 4)
    assert [step for step, _ in shown(scratch)["objective/kl"]] == [1, 2, 3, 4]
    (scratch / "followed").rename(scratch / "elsewhere")
    (scratch / "followed").write_text("no folder")
    with follow.beside("mini", tmp_path, "tensorboard"):
        pass
    assert "LOG=tensorboard: told no more: " in capfd.readouterr().out


STOPPED = """
import os, signal
from pathlib import Path
from tests.test_follow import trained
from workbook.stages import follow

try:
    with follow.beside("mini", Path.cwd(), "tensorboard"):
        trained(Path(".scratch/mini"), 2)
        os.killpg(0, signal.SIGINT)
        signal.pause()
except KeyboardInterrupt:
    print("stopped")
"""


def test_ctrl_c_ends_what_is_followed_and_not_the_last_look_at_it(tmp_path):
    """A terminal tells all processes of its group."""
    (tmp_path / "stopped.py").write_text(STOPPED)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(REPOSITORY), *sys.path])}
    command = [sys.executable, "stopped.py"]
    found = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, start_new_session=True
    )
    assert found.stdout == "stopped\n", found.stderr
    assert [step for step, _ in shown(tmp_path / ".scratch/mini")["objective/kl"]] == [1, 2]


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ("tensorbord", "tensorbord: expected some of tensorboard, wandb, mlflow, dvclive.*tensorboard"),
        ("tensorboard,comet", "comet: expected some of"),
        ("wandb", "wandb is not installed here: .*pip install wandb"),
    ],
)
def test_a_tracker_that_cannot_be_told_is_one_message_before_any_work(names, said, monkeypatch, capsys, tmp_path):
    monkeypatch.setitem(follow.PACKAGES, "wandb", ("no_such_package",))
    with pytest.raises(ConfigError, match=said):
        follow.check(names)
    (tmp_path / "dvc.yaml").write_text("stages: {}\n")
    assert reproduce.main(["mini", "--root", str(tmp_path), "--log", names]) == 2
    assert capsys.readouterr().err.startswith(f"error: LOG={names}: ")
    assert not (tmp_path / ".scratch").exists()
