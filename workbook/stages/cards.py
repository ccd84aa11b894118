"""GPUs for processes side by side: which card each of them sees, and what its machine is called then.

For a profile of the CPU all of this is nothing: no variable is set, and a machine keeps its name.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from rlnlp.settings import ConfigError
from workbook.stages import processes

VISIBLE = "CUDA_VISIBLE_DEVICES"
# tokenisers on all cores: on a GPU nothing else needs them; a workspace of fixed size: the same digits every time
ON_GPU = {"TOKENIZERS_PARALLELISM": "true", "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}

ADVICE = "start `make reproduce` where the GPU is that of its workers"


def visible() -> list[str]:
    """The cards that processes started here may use, as CUDA names them. They are counted and not touched: a process
    that has touched one cannot fork."""
    if (named := os.environ.get(VISIBLE)) is not None:
        return [name for name in map(str.strip, named.split(",")) if name not in ("", "-1")]
    import torch

    return [str(number) for number in range(torch.cuda.device_count())]


def of_slot(device: str, number: int, cards: Sequence[str]) -> dict[str, str]:
    """Variables of the process at place ``number``, from 0: the cards go round. {} on a CPU.

    Where the settings name one (``cuda:1``), all use that, by the number that it has among all.
    """
    if device == "cpu":
        return {}
    return {**ON_GPU, **({VISIBLE: cards[number % len(cards)]} if device == "cuda" and cards else {})}


def slots(device: str) -> Callable[[int], dict[str, str]]:
    """``of_slot`` with the cards of this machine."""
    cards = visible() if device == "cuda" else ()
    return lambda number: of_slot(device, number, cards)


@contextmanager
def as_new() -> Iterator[None]:
    """Work within it finds this process as a new one would be, whatever it did before: its digits are those of any
    other process. What it took of a card is given back."""
    import torch

    torch.use_deterministic_algorithms(False)
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        gc.collect()
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()


def there(device: str) -> bool:
    """Whether this process has what the settings name: a CPU, or that card."""
    if device == "cpu":
        return True
    import torch

    return torch.cuda.is_available() and int(device.partition(":")[2] or 0) < torch.cuda.device_count()


def card(device: str) -> str:
    """The name of a card. Raises ConfigError where there is none."""
    import torch

    if not there(device):
        raise ConfigError(f"device {device}: expected a GPU that torch {torch.__version__} can use, found none")
    return torch.cuda.get_device_name(device)


def machine(device: str = "cpu") -> str:
    """The kind of this machine; for a profile of GPUs its card too, as digits differ between cards. Raises ConfigError
    where there is none."""
    return processes.machine() if device == "cpu" else f"{processes.machine()}, {card(device)}"


def in_keys(device: str) -> dict[str, str]:
    """What the keys of runs say of this process's card; nothing on a CPU. Raises ConfigError where there is none."""
    if device == "cpu":
        return {}
    name = card(device)
    from workbook.runs import means  # and torch with it

    said = means.facts(SimpleNamespace(**{**means.AS_WRITTEN, "device": device}))
    return {"GPU": f"{name} (compute capability {said['capability']}, CUDA {said['cuda']})"}


def of_head(device: str) -> None:
    """Raises ConfigError where the head of workers has no card: it looks for what they finished by keys that name
    one."""
    try:
        in_keys(device)
    except ConfigError as error:
        raise ConfigError(
            f"{error}, on the head. It finds what workers finished by keys that name the GPU: {ADVICE}"
        ) from None


def cluster(count: int, device: str, env: Mapping[str, str], **given: Any) -> Any:
    """Dask's LocalCluster of so many workers; on GPUs each has its card, and keeps it when it is started again."""
    from distributed import LocalCluster

    if device == "cpu":
        return LocalCluster(n_workers=count, env=env, **given)
    own = slots(device)

    class InTurn(LocalCluster):
        def new_worker_spec(self) -> dict:
            added = super().new_worker_spec()  # one, by its number
            for number, one in added.items():
                options = {**one["options"], "env": {**env, **own(number)}}
                added[number] = {**one, "options": options}
            return added

    found = InTurn(n_workers=0, env=env, **given)
    found.scale(count)  # they come while the client waits for them
    return found
