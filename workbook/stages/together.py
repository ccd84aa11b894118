"""One seed of one condition by several processes: on several GPUs, or on the cores of a CPU.

    torchrun --rdzv-backend static --master-addr 127.0.0.1 --master-port 29611 --nproc-per-node 4 \
        -m workbook.stages.together PROFILE CONDITION SEED

Without these three options torchrun listens in all networks for its own rendezvous, and unpickles what it is sent:
whoever reaches that port runs any program in your name. So it is refused, as its command is read, unless INSECURE=1 is
in the environment. The port that is left, 29611, is unencrypted and open to all, and unpickles nothing, as far as
torch's code was read.

The setting `shards` says in how many parts a batch is sampled and learned from; the processes share them. Any number
that divides it gives the same bits, one process (which needs no torchrun: `make reproduce`) among them. The first
process evaluates and writes into the profile's scratch, where the pipeline finds the finished seed; the models of the
draw, and the search for the learning rate, are the pipeline's and come before. Killed, the same command goes on, with
another number of processes too.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import psutil
import torch
from torch import Tensor, distributed

from rlnlp.learners.common import TrainingError
from rlnlp.settings import ConfigError
from workbook.runs import checks, conditions, experiment, means, train
from workbook.stages.command import status
from workbook.stages.processes import mirror

TORCHRUN = "torchrun --rdzv-backend static --master-addr 127.0.0.1 --master-port 29611 --nproc-per-node N"
PATIENCE = timedelta(days=1)  # the others wait while the first one evaluates


def without_rendezvous(command: Sequence[str]) -> bool:
    """Whether a process is a torchrun that, by its command and PET_* variables, opens no rendezvous of its own: `run`
    of torch.distributed.run takes c10d where it is asked for, by --standalone too, and on one host without a port."""
    from torch.distributed.run import get_args_parser, parse_min_max_nnodes

    words = [os.path.basename(word) for word in command]
    begins = [place for place, word in enumerate(words[:4]) if word in ("torchrun", "torch.distributed.run")]
    if not begins:
        return False
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            given, _ = get_args_parser().parse_known_args(command[begins[0] + 1 :])
        alone = parse_min_max_nnodes(given.nnodes)[1] == 1
    except (SystemExit, ValueError, RuntimeError):
        return False
    place = given.rdzv_endpoint or given.master_port is not None or not alone
    return given.rdzv_backend == "static" and not given.standalone and bool(place)


def safe() -> bool:
    """Whether what started this process is such a torchrun; not where that cannot be read."""
    try:
        return without_rendezvous(psutil.Process().parent().cmdline())
    except (psutil.Error, AttributeError):  # AttributeError: it is gone
        return False


class Processes:
    """The processes that torchrun started, as a ``Team``: gloo carries tensors of the CPU, nccl those of GPUs."""

    def __init__(self) -> None:
        distributed.init_process_group(timeout=PATIENCE)
        self.rank, self.size = distributed.get_rank(), distributed.get_world_size()

    def gather(self, mine: Tensor) -> list[Tensor]:
        mine = mine.contiguous()
        parts = [torch.empty_like(mine) for _ in range(self.size)]
        distributed.all_gather(parts, mine)
        return parts


def checked(path: Path, condition: str, seed: int, processes: int) -> conditions.Condition:
    """What the run is given. Raises ``ConfigError`` where so many processes cannot train it."""
    given = conditions.condition(checks.load(path), condition)
    if seed not in given.seeds:
        raise ConfigError(f"seed {seed}: expected one of {list(given.seeds)}, the seeds of {path}")
    means.shared(given, processes)
    if given.device not in ("cpu", "cuda"):
        raise ConfigError(f"device {given.device}: expected cpu or cuda, of which each process takes its own")
    return given


def run(given: conditions.Condition, seed: int) -> bool:
    """Train it, as one of the processes. Raises as ``experiment.run_seed`` does."""
    if given.device == "cuda":
        own = int(os.environ["LOCAL_RANK"])
        means.on_gpu(f"cuda:{own}", given.precision)
        torch.cuda.set_device(own)
    train.setup(given)
    team, tuned = Processes(), experiment.chosen(given)
    if team.rank:
        experiment.follow(given, seed, tuned, team)
    else:
        print(f"finished: {experiment.run_seed(given, seed, tuned, team)}", flush=True)
    distributed.destroy_process_group()
    return True


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="torchrun -m workbook.stages.together", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("profile", help="mini (top level) or the name of a folder in profiles/")
    parser.add_argument("condition", help="a run of it")
    parser.add_argument("seed", type=int)
    parser.add_argument("--root", type=Path, default=Path("."), help="folder of the repository")
    args = parser.parse_args(argv)
    if "WORLD_SIZE" not in os.environ:
        parser.error(f"it is started by {TORCHRUN} -m workbook.stages.together ...")
    if os.environ.get("INSECURE") != "1" and not safe():
        why = "this torchrun opens a rendezvous, or its command cannot be read: whoever reaches that port can run any "
        why += "program in your name"
        parser.error(f"{why}. Use {TORCHRUN}, or say INSECURE=1 in a network that is yours alone")
    folder = args.root / ("" if args.profile == "mini" else f"profiles/{args.profile}")
    try:
        given = checked(folder / "params.yaml", args.condition, args.seed, int(os.environ["WORLD_SIZE"]))
        os.environ.update(mirror())
        with contextlib.chdir(folder):  # as stages, which say draw1
            return status(lambda: run(given, args.seed), True, "the same command goes on")
    except (ConfigError, TrainingError, FileNotFoundError) as error:
        rank, together = os.environ.get("RANK", "0"), distributed.is_initialized()
        if rank == "0" or together:  # before they are together, all of them say the same
            print(f"error: {f'process {rank}: ' if together else ''}{error}", file=sys.stderr, flush=True)
        return 2


if __name__ == "__main__":
    sys.exit(main())
