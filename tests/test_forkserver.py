"""Forked kernels: the same bytes as ordinary ones, this package's files read anew, nothing left over, no server no
matter."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import nbformat
import psutil
import pytest

from workbook.stages import forkserver
from workbook.stages.processes import environment

from .waiting import DEADLINE_S, alive, text_of, until

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="forks on Linux only"),
    pytest.mark.xdist_group("forkserver"),
]

CELLS = (
    "where = 'x'",
    "import matplotlib.pyplot as plt, pandas as pd, torch, random, os, sys, threading\nfrom transformers import "
    "GPT2Config, GPT2LMHeadModel\nseed = torch.initial_seed()",
    "pd.DataFrame({'long_name_' * 3 + str(i): [1.5, 2] for i in range(9)})",  # wider than a terminal
    "plt.plot([1, 3, 2])\nplt.show()",
    "torch.manual_seed(1)\nmodel = GPT2LMHeadModel(GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=11, "
    "n_positions=8))\n"
    "print(model(torch.tensor([[1, 2, 3]])).logits.sum().item(), os.getcwd() == where, os.environ['MARK'], '' in "
    "sys.path)",
    "open('pids', 'w').write(f'{os.getpid()} {os.getppid()}');",
    "import numpy as np; open('random', 'w').write(f'{np.random.rand()} {seed}');",
    "import mine\nmine.value",
)


@pytest.fixture(scope="module", autouse=True)
def inline_figures():
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MPLBACKEND", raising=False)  # the tests' own is Agg
        yield


@pytest.fixture(scope="module")
def server(tmp_path_factory, inline_figures):
    folder = tmp_path_factory.mktemp("server")
    with forkserver.running(folder, folder / "server.log") as variables:
        yield variables


def notebook(folder: Path, *cells: str) -> Path:
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in cells])
    made.cells[0].metadata["tags"] = ["parameters"]
    nbformat.write(made, folder / "in.ipynb")
    return folder / "in.ipynb"


def begin(folder: Path, variables: dict[str, str]) -> subprocess.Popen:
    command = [sys.executable, "-m", "workbook.stages.nb", "run", "in.ipynb", "out.ipynb", "-p", "where", str(folder)]
    env = {k: v for k, v in environment().items() if k != "PYTEST_CURRENT_TEST"}  # ipykernel looks at it
    return subprocess.Popen(
        command,
        cwd=folder,
        env={**env, **variables, "MARK": folder.name},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def executed(folder: Path, variables: dict[str, str]) -> tuple[str, int]:
    """The executed notebook's text, and the process id of what its kernel was started by."""
    process = begin(folder, variables)
    said = process.communicate(timeout=DEADLINE_S)[0]
    assert process.returncode == 0, said
    return (folder / "out.ipynb").read_text(), int((folder / "pids").read_text().split()[1])


def name_of(pid: int | str) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


def test_a_forked_kernel_gives_the_same_bytes(tmp_path, server):
    notebook(tmp_path, *CELLS)
    (tmp_path / "mine.py").write_text("value = 1\n")
    forked, parent = executed(tmp_path, server)
    random = (tmp_path / "random").read_text().split()
    assert "workbook.stages.forkserver serve" in name_of(parent)
    plain, _ = executed(tmp_path, {})
    assert forked == plain
    kinds = {k for cell in json.loads(plain)["cells"] for out in cell["outputs"] for k in out.get("data", {})}
    assert {"image/png", "text/html"} <= kinds and f"True {tmp_path.name} True" in plain

    (tmp_path / "mine.py").write_text("value = 22\n")  # an edit reaches the next kernel
    assert '"22"' in executed(tmp_path, server)[0]
    assert not set(random) & set((tmp_path / "random").read_text().split())  # chance is not shared
    assert alive(parent)


def test_killing_the_notebook_ends_its_kernel_only(tmp_path, server):
    notebook(tmp_path, "where = 'x'", "import os\n" + CELLS[5] + "\nimport threading; threading.Event().wait()")
    process = begin(tmp_path, server)
    kernel, parent = map(int, text_of(tmp_path / "pids").split())
    assert alive(kernel) and "workbook.stages.forkserver serve" in name_of(parent)
    process.send_signal(signal.SIGKILL)
    process.wait()
    until(lambda: not alive(kernel), "the end of the kernel")
    assert alive(parent)


def test_a_server_that_ends_is_no_loss(tmp_path):
    """Its clients that are waiting start ordinary kernels."""
    notebook(tmp_path, "where = 'x'", "import os\n" + CELLS[5], "1 + 1")
    with forkserver.running(tmp_path, tmp_path / "log") as variables:
        (pid,) = (
            int(p.name) for p in Path("/proc").glob("[0-9]*") if variables[forkserver.VARIABLE] in name_of(p.name)
        )
        until(lambda: Path(variables[forkserver.VARIABLE]).exists(), "the server's socket")
        os.kill(pid, signal.SIGSTOP)  # it hears no one
        process = begin(tmp_path, variables)

        def asks() -> bool:
            """A kernel of the notebook's process has a socket, which it makes only to ask the server."""
            kernels = [k.pid for k in psutil.Process(process.pid).children(recursive=True) if k.is_running()]
            files = [f for k in kernels if "forkserver" in name_of(k) for f in Path(f"/proc/{k}/fd").iterdir()]
            return any(os.path.realpath(file).rpartition("/")[2].startswith("socket:") for file in files)

        until(asks, "a kernel that asks")
        os.kill(pid, signal.SIGKILL)
        said = process.communicate(timeout=DEADLINE_S)[0]
    assert process.returncode == 0 and "starting an ordinary one" in said, said
    assert '"2"' in (tmp_path / "out.ipynb").read_text()


HELD = """
import sys
from pathlib import Path
from workbook.stages import forkserver
with forkserver.running(Path.cwd(), Path("log")) as variables:
    print(variables[forkserver.VARIABLE], flush=True)
    sys.stdin.read()
"""


def test_killing_what_started_the_server_leaves_nothing_behind(tmp_path):
    holder = subprocess.Popen(
        [sys.executable, "-c", HELD], cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    socket = Path(holder.stdout.readline().strip())
    until(socket.exists, "a server that listens")
    holder.kill()
    holder.communicate()
    until(lambda: not socket.parent.exists(), "the end of the socket's folder")


def test_a_kernel_takes_what_nbclient_and_nbgrader_add_to_its_command(tmp_path):
    """As the child of another than it was started for, a kernel ends at once, and well."""
    command = [sys.executable, "-m", "workbook.stages.forkserver", "kernel", "file", "--HistoryManager.enabled=False"]
    done = subprocess.run(
        command, env={**os.environ, "JPY_PARENT_PID": "1"}, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_an_interrupt_reaches_the_cell(tmp_path, server, monkeypatch):
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError

    from workbook.stages.engine import ForkedKernelManager

    monkeypatch.setenv(*next(iter(server.items())))
    waits = f"open({str(tmp_path / 'begun')!r}, 'w').write('x'); import threading; threading.Event().wait()"
    client = NotebookClient(
        nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(waits)]), kernel_manager_class=ForkedKernelManager
    )

    async def interrupted() -> None:
        run = asyncio.create_task(client.async_execute())
        await asyncio.to_thread(text_of, tmp_path / "begun")
        await client.km.interrupt_kernel()
        await asyncio.wait_for(run, DEADLINE_S)

    with pytest.raises(CellExecutionError, match="KeyboardInterrupt"):
        asyncio.run(interrupted())


def test_without_a_server_kernels_start_the_ordinary_way(tmp_path):
    notebook(tmp_path, "where = 'x'", "import os\n" + CELLS[5], "1 + 1")
    text, _ = executed(tmp_path, {forkserver.VARIABLE: str(tmp_path / "nobody")})
    assert '"2"' in text


def test_the_server_imports_nothing_of_this_package(tmp_path):
    code = (
        "import sys, importlib; from workbook.stages import forkserver\n"
        "for name in forkserver.LIBRARIES: importlib.import_module(name)\n"
        "print(sorted(m for m in sys.modules if m.startswith(('rlnlp', 'workbook.'))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | environment(), check=True
    )
    # what starts and ends processes; dropped in the fork
    assert done.stdout.strip() == "['workbook.stages', 'workbook.stages.forkserver', 'workbook.stages.processes']"
