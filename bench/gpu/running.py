"""Stages as processes: each is forked, writes its file when it is done, and is killed where it does not end."""

from __future__ import annotations

import argparse
import inspect
import json
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from bench.gpu.scale import REAL, TINY
from bench.gpu.stage import PATIENCE, Stage
from bench.gpu.work import STAGES, WORK


def run_stage(name: str, options: argparse.Namespace) -> None:
    """A stage, in a process forked for it; its file is there when all of it is done."""
    os.setsid()  # with the processes that it makes one group, which can be ended as one
    import torch

    if options.tiny:
        torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True, warn_only=True)  # as runs do
    torch.utils.deterministic.fill_uninitialized_memory = False
    limit = float("inf") if options.tiny else options.limit  # how busy a CPU is must not decide rows
    stage = Stage(name, TINY if options.tiny else REAL, options.device, options.precision, limit)
    WORK[name](stage)
    device = torch.cuda.get_device_name() if options.device == "cuda" else "CPU"
    found = {
        "stage": name, "device": device, "tiny": options.tiny, "precisions": list(stage.precisions),
        "about": inspect.cleandoc(WORK[name].__doc__), "limit_s": None if options.tiny else limit,
        "seconds": time.monotonic() - stage.began, "left_out": stage.left_out, "rows": stage.rows,
    }  # fmt: skip
    part = options.out / f".{name}.{os.getpid()}.part"
    part.write_text(json.dumps(found, indent=1) + "\n")
    os.replace(part, options.out / f"{name}.json")


def in_process(patience: float | None, target: Callable, *args) -> int:
    """Exit code of ``target`` in a forked process; -9 where it outlived ``patience`` seconds
    and was killed with its children."""
    child = multiprocessing.get_context("fork").Process(target=target, args=args)
    child.start()
    try:
        child.join(patience)
    finally:
        if child.exitcode is None:
            os.killpg(child.pid, signal.SIGKILL)
            child.join()
    return child.exitcode


def has_gpu() -> None:
    """Exit code 0 where there is one: asked in a process of its own, because a fork of one that asked has none."""
    os.setsid()
    import torch

    sys.exit(0 if torch.cuda.is_available() else 1)


def run(options: argparse.Namespace) -> int:
    """The stages that are not there yet, while the seconds last; 1 where one failed."""
    os.environ |= {"CUBLAS_WORKSPACE_CONFIG": ":4096:8", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "true"}
    began, failed = time.monotonic(), []
    options.out.mkdir(parents=True, exist_ok=True)
    if other := [name for name, found in read(options.out).items() if found["tiny"] != options.tiny]:
        kind = "not of --tiny" if options.tiny else "of --tiny"
        say(f"{options.out}: {', '.join(other)} there are {kind}; choose another --out")
        return 1
    if all((options.out / f"{name}.json").exists() for name in options.stages):
        say(f"{options.out}: all there")
        return 0
    import transformers  # noqa: F401 (once, here: every stage is forked from this process, which never touches a GPU)

    import rlnlp.learners.ppo  # noqa: F401

    if options.device == "cuda" and in_process(PATIENCE, has_gpu):
        say("no GPU is seen here: nothing was measured (--tiny runs the code on the CPU)")
        return 1
    for name in options.stages:
        if (options.out / f"{name}.json").exists():
            say(f"{name}: there")
        elif time.monotonic() - began + options.limit > options.seconds:
            say(f"{name}: not begun, {options.seconds:g} s would be over; the same command goes on from here")
            break
        else:
            say(f"{name}: begins")
            if code := in_process(None if options.tiny else PATIENCE, run_stage, name, options):
                failed.append(f"{name} ({'took too long' if code == -signal.SIGKILL else f'exit code {code}'})")
    if failed:
        say(f"failed: {', '.join(failed)}")
    return int(bool(failed))


def read(folder: Path) -> dict[str, dict]:
    """What stages have left in a folder, by name."""
    files = {name: folder / f"{name}.json" for name in STAGES}
    return {name: json.loads(file.read_text()) for name, file in files.items() if file.exists()}


def say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)
