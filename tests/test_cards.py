"""Which GPU a process beside others sees, and what its machine is called: without a GPU, torch being told."""

from __future__ import annotations

import os
import signal
import types

import distributed
import pytest
import torch

from rlnlp.settings import ConfigError
from workbook.draws import base
from workbook.stages import cards, cluster, processes, reproduce, scheduler, units
from workbook.stages.sweep import Sweep

from .waiting import until


@pytest.mark.parametrize("named, found", [("4, 7", ["4", "7"]), ("GPU-1a", ["GPU-1a"]), ("", []), ("-1", [])])
def test_cards_are_those_that_the_user_lets_us_see(monkeypatch, named, found):
    monkeypatch.setenv(cards.VISIBLE, named)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)
    assert cards.visible() == found


def test_processes_take_the_cards_in_turn(monkeypatch):
    monkeypatch.delenv(cards.VISIBLE, raising=False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    each = [cards.slots("cuda")(number) for number in range(5)]
    assert [one.pop(cards.VISIBLE) for one in each] == ["0", "1", "0", "1", "0"]
    assert each == [cards.ON_GPU] * 5 and cards.ON_GPU["TOKENIZERS_PARALLELISM"] == "true"
    assert cards.slots("cuda:1")(3) == cards.ON_GPU  # which of all the cards, the settings say
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert cards.slots("cuda")(0) == cards.ON_GPU  # that there is none, the run says


def test_a_profile_of_the_cpu_asks_nothing_of_cuda_and_sets_nothing(monkeypatch):
    def asked(*_):
        raise AssertionError("a profile of the CPU asked for a GPU")

    for name in ("device_count", "is_available", "get_device_name"):
        monkeypatch.setattr(torch.cuda, name, asked)
    monkeypatch.setattr(distributed, "LocalCluster", lambda **given: given)
    assert cards.slots("cpu")(1) == {} and cards.machine("cpu") == cards.machine() == processes.machine()
    given = cluster.local(3, "cpu")
    assert given["n_workers"] == 3 and given["env"] == processes.environment()
    assert given["env"]["TOKENIZERS_PARALLELISM"] == "false"


def test_a_machine_is_named_with_its_card_and_is_none_without(monkeypatch):
    """And a worker with another one than the head is refused: the head would look for other keys than it writes."""
    found = []
    for card in ("NVIDIA A100", "NVIDIA H100"):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda device, card=card: card)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device, card=card: (8 + ("H" in card), 0))
        found.append(units.about("no file", "imdb", "cuda"))
    names = [f"{processes.machine()}, NVIDIA A100", f"{processes.machine()}, NVIDIA H100"]
    assert [one["machine"] for one in found] == names
    (why,) = units.differs(*found)
    assert why.startswith("GPU: NVIDIA A100 (compute") and " on the head, NVIDIA H100 (compute capability 9.0" in why
    assert why.endswith("; start `make reproduce` where the GPU is that of its workers") and not units.differs(
        found[0], found[0]
    )
    assert units.about("no file", "imdb")["machine"] == processes.machine()
    for device in ("cuda:1", "cuda"):
        with pytest.raises(ConfigError, match=f"device {device}: expected a GPU that torch .* can use, found none"):
            cards.machine(device)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU: this head has what it needs")
def test_a_head_without_a_gpu_says_so_before_workers_are_asked_for(monkeypatch, tmp_path):
    """DVC says that a run is left, of a profile of GPUs; Slurm must not be asked for jobs whose work is lost."""
    left = {"needs": {"runs@a": set()}, "changed": {"runs@a"}, "values": {"device": "cuda"}}
    monkeypatch.setattr(reproduce, "Pipeline", lambda *given: types.SimpleNamespace(**left, run_light=lambda: None))
    monkeypatch.setattr(cluster, "connected", lambda *given, **more: pytest.fail("workers were asked for"))
    said = "device cuda: expected a GPU .* found none, on the head. .*: start `make reproduce` where the GPU is that of"
    with pytest.raises(ConfigError, match=said):
        reproduce.reproduce(tmp_path, tmp_path / ".scratch", ours=False, workers="slurm:gpu")
    sweep = Sweep.__new__(Sweep)
    sweep.asking = ("no file", "imdb", "cuda")
    with pytest.raises(ConfigError, match="found none"):  # nor is anything compared with what it has not
        print(sweep.head)


@pytest.mark.slow
def test_each_local_worker_has_a_card_and_keeps_it_when_it_is_started_again(monkeypatch, tmp_path):
    monkeypatch.setenv(cards.VISIBLE, "4,7")
    with cluster.connected("local:3", 3, tmp_path, device="cuda") as client:

        def seen(name: str = cards.VISIBLE) -> dict[str, str]:
            return client.run(os.getenv, name, on_error="ignore")

        client.wait_for_workers(3)
        before = seen()
        assert sorted(before.values()) == ["4", "4", "7"]
        assert {*seen("TOKENIZERS_PARALLELISM").values()} == {"true"} and {*seen("OMP_NUM_THREADS").values()} == {"1"}
        address = next(address for address, card in before.items() if card == "7")
        os.kill(client.run(os.getpid, workers=[address])[address], signal.SIGKILL)
        until(lambda: address not in (now := seen()) and len(now) == 3, "another worker in its place")
        assert sorted(seen().values()) == ["4", "4", "7"]


class Process:
    """A stage that ends well once ``ends`` says so."""

    returncode = 0

    def __init__(self, ends):
        self.ends = ends

    def poll(self):
        return self.returncode if self.ends() else None


def test_stages_side_by_side_have_a_card_each_and_the_next_has_the_free_one(monkeypatch, tmp_path):
    monkeypatch.setenv(cards.VISIBLE, "4,7")
    begun: list[tuple[str, str]] = []

    def start(command, folder, log, variables):
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text("")
        first = not begun
        begun.append((command[-1], variables[cards.VISIBLE]))
        return Process((lambda: len(begun) == 4) if first else lambda: True)  # the first one outlives the others

    monkeypatch.setattr(scheduler, "start", start)
    monkeypatch.setattr(scheduler, "stop", lambda running: None)
    monkeypatch.setattr(scheduler, "keep_lock", lambda *_: None)
    needs = {f"data@{draw}": set() for draw in range(4)}
    known = scheduler.Scheduler(tmp_path, tmp_path, needs, {*needs}, 2, of_slot=cards.slots("cuda"))
    assert known.run()
    assert [card for _, card in begun] == ["4", "7", "7", "7"] and {stage for stage, _ in begun} == {*needs}


def test_a_unit_finds_its_process_as_a_new_one_is(monkeypatch, tmp_path):
    """A search in tf32 on a worker, then models: those would otherwise be trained in tf32 there, and in fp32 elsewhere,
    under the same key."""
    seen = []

    def build(*given):
        seen.append((torch.get_float32_matmul_precision(), torch.are_deterministic_algorithms_enabled()))

    monkeypatch.setattr(units.conditions, "load_stage", lambda *given: types.SimpleNamespace(scratch=tmp_path))
    monkeypatch.setattr(base, "build", build)
    torch.set_float32_matmul_precision("high")
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        units.work(units.Unit("models@1", 1), tmp_path)
    finally:
        torch.set_float32_matmul_precision("highest")
        torch.use_deterministic_algorithms(False)
    assert seen == [("highest", False)]
