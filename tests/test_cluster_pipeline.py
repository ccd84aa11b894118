"""`make reproduce WORKERS=local:N` whole: its head or a worker is killed, and the same command finishes with the tables
of a run without workers."""

# ruff: noqa: F811 (fixtures of another file)
from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import nbformat
import psutil
import pytest

from tests.built import REPOSITORY
from tests.test_cluster import NAME, TABLES, made, state, without_workers, world  # noqa: F401
from workbook.store import states

from .waiting import alive, until

pytestmark = pytest.mark.xdist_group("cluster")  # they share workers
PIPELINE = """
stages:
  runs:
    foreach: [ppo_kl_0]
    do:
      cmd: exec python -m workbook.stages.nb run collect.ipynb executed.ipynb -p condition '${item}'
      deps: [collect.ipynb, models]
      outs: ["runs/${item}"]
"""
COLLECT = """
from workbook.runs import conditions, experiment
given = conditions.load_condition(condition)
experiment.run_condition(given, given.folder / "runs" / condition)
print((given.folder / "runs" / condition / "per_seed.csv").read_text())
"""
COMMAND = """
import sys
from pathlib import Path
from workbook.stages import reproduce, sweep
class Apart(sweep.Sweep):  # as where the head's folder is not mounted
    def __init__(self, *given):
        super().__init__(*given)
        self.asking = ("not there", *self.asking[1:])
if __name__ == "__main__":
    if sys.argv[2] == "apart":
        reproduce.Sweep = Apart
    sys.exit(not reproduce.reproduce(Path(), Path(".scratch/tests"), every=0, ours=False, workers=sys.argv[1]))
"""


def pipeline(folder: Path) -> Path:
    """A profile's folder with a pipeline that collects the run; the notebook that does it."""
    subprocess.run(["git", "init", "-q", "."], cwd=folder, check=True)
    (folder / ".dvc").mkdir()
    (folder / ".dvc/config").write_text("[core]\n    analytics = false\n")
    (folder / "dvc.yaml").write_text(PIPELINE)
    cells = [nbformat.v4.new_code_cell("condition = ''", metadata={"tags": ["parameters"]})]
    cells.append(nbformat.v4.new_code_cell(COLLECT))
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"  # else by chance
    nbformat.write(nbformat.v4.new_notebook(cells=cells), folder / "collect.ipynb")
    (folder / "head.py").write_text(COMMAND)
    return folder / "collect.ipynb"


def head(world: Path, workers: str, where: str = "together", **variables: str) -> subprocess.Popen:
    """`make reproduce WORKERS=...` of that pipeline. where: "apart" if its workers do not share its folder."""
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "PYTHONUNBUFFERED": "1", states.EVERY_UPDATE: "1"}
    with open(world / "said", "w") as said:
        command = [sys.executable, "head.py", workers, where]
        return subprocess.Popen(command, cwd=world, env={**environment, **variables}, stdout=said, stderr=said)


def finishes(made: Path, world: Path, *given: str) -> None:
    """The same command ends well, and its tables are those of a run without workers."""
    process = head(world, *given)
    try:
        assert process.wait(600) == 0, (world / "said").read_text()
    finally:
        process.kill()
    assert without_workers(made) == {name: (world / "runs" / NAME / name).read_bytes() for name in TABLES}


def kill_head(process: subprocess.Popen) -> None:
    """SIGKILL, and the end of all that it started."""
    started = [child.pid for child in psutil.Process(process.pid).children(recursive=True)]
    process.kill()
    assert process.wait() == -signal.SIGKILL and started
    until(lambda: not any(map(alive, started)), "the end of its workers")


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_killed_head_and_what_dvc_has_already(made, world, tmp_path):
    """Its workers end with it; the same command finishes; what DVC's cache has is not trained, what has to is. The
    executed notebook is that of a run which trains in it, byte for byte."""
    notebook, logs = pipeline(world), world / ".scratch/tests/logs/units"
    plain = tmp_path / "plain"
    shutil.copytree(world, plain)
    train = ["run", "collect.ipynb", "executed.ipynb", "-p", "condition", NAME]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    subprocess.run([sys.executable, "-m", "workbook.stages.nb", *train], cwd=plain, env=environment, check=True)
    assert len(list(plain.glob(".scratch/tests/runs/*/*/final"))) == 2

    first = head(world, "local:1")
    until(lambda: state(world, 2) or first.poll() is not None, "update 2")
    kill_head(first)
    assert re.search(rf"runs@{NAME}, draw 1, on tls://127.0.0.1:\d+: ", (world / "said").read_text())  # what runs where
    finishes(made, world, "local:1")
    assert sum(path.read_text().count(" 0/15 ") for path in logs.iterdir()) == 2  # two seeds, each begun once
    assert (world / "executed.ipynb").read_bytes() == (plain / "executed.ipynb").read_bytes()

    for place in ("runs", ".scratch"):
        shutil.rmtree(world / place)
    finishes(made, world, "local:1")
    assert not logs.exists()
    notebook.write_text(notebook.read_text().replace("given = conditions", "again = given = conditions"))
    finishes(made, world, "local:1")
    assert sorted(path.name for path in logs.iterdir()) == [f"runs@{NAME}-1.log", f"runs@{NAME}-2.log"]


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_worker_with_its_own_folder_is_killed_and_then_the_head(made, world):
    """The same command finishes: each kill costs the seeds that were not finished, and no digit."""
    pipeline(world)
    first = head(world, "local:2", "apart", DASK_TEMPORARY_DIRECTORY=str(world / "own"))

    def far() -> list[Path]:
        assert first.poll() is None, (world / "said").read_text()
        return [path for tree in world.glob("own/*/*/rlnlp/tree") for path in state(tree, 5)]

    seed = until(far, "update 5")[0].parents[1]
    os.kill(int((seed / ".holder").read_text().split()[1]), signal.SIGKILL)  # who trains it, as its lock says
    until(lambda: "goes to another worker" in (world / "said").read_text(), lambda: (world / "said").read_text())
    kill_head(first)
    assert not list(world.glob(".scratch/tests/runs/*/*/checkpoint"))
    finishes(made, world, "local:2", "apart")
