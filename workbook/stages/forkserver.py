"""Kernels that start at once: one process has imported the large libraries already and forks for each kernel.

    python -m workbook.stages.forkserver serve <socket>             started by workbook.stages.reproduce, ends with it
    python -m workbook.stages.forkserver kernel <connection file>   stands in for `ipykernel_launcher`; see engine.py

Importing torch and transformers takes longer than many a stage's own work: measured, a notebook that imports what a
run does takes 1.3 s of processor time with the server and 10.8 s without. The server imports libraries only, never
this package, so a kernel runs the files that are there when it starts. Without $RLNLP_FORKSERVER, on another system
than Linux, or when the server cannot be reached, kernels start the ordinary way; the results are the same.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import json
import os
import select
import shutil
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

from workbook.stages.processes import signal_at_parents_end, start, stop

VARIABLE = "RLNLP_FORKSERVER"  # the socket's path
PATIENCE_S = 120  # how long a client waits for the imports
# not pandas, nor what imports it: it looks for a notebook when it is imported, and shows wide tables accordingly
LIBRARIES = (
    "ipykernel.kernelapp",
    "ipykernel.ipkernel",
    "IPython.core.completer",
    "matplotlib.pyplot",
    "pydantic",
    "scipy.stats",
    "torch",
    "transformers.models.gpt2.modeling_gpt2",
    "transformers.models.auto.modeling_auto",
    "transformers.models.auto.tokenization_auto",
)


def serve(path: str) -> None:
    """Import the libraries, then fork for each client that connects. Returns in the forked children only, as kernel."""

    def end(*_) -> None:
        shutil.rmtree(Path(path).parent, ignore_errors=True)  # also where what started us was killed
        os._exit(0)

    signal.signal(signal.SIGTERM, end)
    del sys.path[0]  # where the server stands; a kernel adds its own folder
    if not os.environ.get("MPLBACKEND"):  # as ipykernel would, before matplotlib reads it
        os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(path)
        listener.listen(64)  # clients that come during the imports wait
        for name in LIBRARIES:
            importlib.import_module(name)
        # a fork keeps only one of them: locks could stay shut for ever
        if (threads := len(os.listdir("/proc/self/task"))) > 1:
            sys.exit(f"the imports left {threads} threads running; not forking")
        gc.freeze()  # children then share the memory of what was imported
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # ended children leave no zombies
        client, request, out = _fork_for_each(listener)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    _become_kernel(client, request, out)


def _fork_for_each(listener: socket.socket) -> tuple[socket.socket, dict, list[int]]:
    """Accept clients for ever; in each child: the client, what it asked for, its standard output and error."""
    while True:
        client, out = None, []
        with contextlib.suppress(
            OSError
        ):  # one client's failure, or a moment without memory: it starts its kernel itself
            client, _ = listener.accept()
            message, out, _, _ = socket.recv_fds(client, 1 << 20, 2)
            while message and not message.endswith(b"\n"):
                more = client.recv(1 << 20)
                message = message + more if more else b""
            if message and os.fork() == 0:
                return client, json.loads(message), out
        for descriptor in out:
            os.close(descriptor)
        if client is not None:
            client.close()


def _become_kernel(client: socket.socket, request: dict, out: list[int]) -> None:
    """Take over the client's folder, variables and outputs, and be its kernel; end when the client does."""
    import numpy as np
    import torch

    os.setsid()
    for descriptor, own in zip(out, (1, 2), strict=True):
        os.dup2(descriptor, own)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    for name in [name for name in sys.modules if name.partition(".")[0] in ("rlnlp", "workbook")]:
        del sys.modules[name]
    np.random.seed()  # the global state, which each process has of its own
    torch.seed()
    sys.argv = ["ipykernel_launcher", "-f", request["connection_file"], f"--IPKernelApp.parent_handle={os.getppid()}"]
    client.sendall(f"{os.getpid()}\n".encode())

    def watch() -> None:
        client.recv(1)  # nothing is ever sent: this returns when the client is gone
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, name="forkserver_client", daemon=True).start()
    from ipykernel.kernelapp import launch_new_instance

    launch_new_instance()


def kernel(connection_file: str) -> None:
    """Ask the server for a kernel, and live exactly as long as it does. Without a server become an ordinary kernel."""
    signal_at_parents_end(signal.SIGKILL)  # that is papermill's process
    if os.getppid() != int(os.environ.get("JPY_PARENT_PID") or os.getppid()):
        return  # it has ended already
    request = {"connection_file": connection_file, "folder": os.getcwd(), "environment": dict(os.environ)}
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
            server.settimeout(PATIENCE_S)
            server.connect(os.environ[VARIABLE])
            socket.send_fds(server, [json.dumps(request).encode() + b"\n"], [1, 2])
            if not (started := server.recv(32)):
                raise OSError("it has ended")
            ended = os.pidfd_open(
                int(started)
            )  # not the socket's end: a process that the kernel left behind may hold it
            signal.signal(
                signal.SIGINT, lambda *_: signal.pidfd_send_signal(ended, signal.SIGINT)
            )  # Jupyter's interrupt
            select.select([ended], [], [])
    except OSError as error:
        print(f"the fork server gives no kernel ({error}); starting an ordinary one", file=sys.stderr, flush=True)
        os.execv(sys.executable, [sys.executable, "-m", "ipykernel_launcher", "-f", connection_file])


@contextlib.contextmanager
def running(folder: Path, log: Path) -> Iterator[dict[str, str]]:
    """A server while the block lasts; gives the variables that its users need ({} where there is no server).

    folder: where the stages run, so that the server finds the same files of settings (matplotlibrc) as they would.
    """
    if not sys.platform.startswith("linux"):
        yield {}
        return
    with tempfile.TemporaryDirectory(
        prefix="fork-", dir="/tmp", ignore_cleanup_errors=True
    ) as sockets:  # sockets' paths: 107 bytes
        path = str(Path(sockets) / "s")
        server = start(["workbook.stages.forkserver", "serve", path], folder, log)
        try:
            yield {VARIABLE: path}
        finally:
            stop([server])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        prog="python -m workbook.stages.forkserver",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("part", choices=("serve", "kernel"))
    parser.add_argument("file", help="the server's socket; a kernel's connection file")
    asked, _ = parser.parse_known_args()  # nbclient gives its kernels arguments of IPython's
    {"serve": serve, "kernel": kernel}[asked.part](asked.file)
