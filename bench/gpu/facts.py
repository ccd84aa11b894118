"""The stage ``facts``."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess

from bench.gpu.scale import PRECISIONS
from bench.gpu.stage import Stage, timed


def facts(stage: Stage) -> None:
    """The machine, its libraries, and the two rates that bound everything else."""
    import torch

    gpu = torch.cuda.get_device_properties(0) if stage.device == "cuda" else None
    with stage.row("machine") as row:
        row["device"] = gpu.name if gpu else platform.processor() or platform.machine()
        row["memory_gb"] = round(gpu.total_memory / 1e9, 1) if gpu else None
        row["cuda"], row["cores"], row["python"] = torch.version.cuda, os.cpu_count(), platform.python_version()
        row |= {name: importlib.metadata.version(name) for name in ("torch", "transformers", "numpy")}
        row["driver"] = driver() if gpu else None
    with stage.row("copy") as row:
        source = torch.randint(0, 255, (stage.scale.copy,), dtype=torch.uint8, device=stage.device)
        row |= timed(lambda target: target.copy_(source), stage, torch.empty_like(source))
        row["tb_s"] = 2 * stage.scale.copy / row["median_ms"] / 1e9
    from rlnlp.precision import numerics

    n = stage.scale.gemm
    for precision in PRECISIONS:
        with stage.row("gemm", precision=precision) as row, numerics(precision, torch.device(stage.device)):
            kind = torch.bfloat16 if precision == "bf16" else torch.float32
            left, right = (torch.randn(n, n, device=stage.device, dtype=kind) for _ in range(2))
            row |= timed(lambda left, right: left @ right, stage, left, right)
            row["tflop_s"] = 2 * n**3 / row["median_ms"] / 1e9


def driver() -> str:
    """The driver's version, as its own tool says."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\n")[0]
    except (OSError, subprocess.CalledProcessError) as error:
        return f"unknown ({type(error).__name__})"
