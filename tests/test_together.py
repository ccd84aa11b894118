"""One run by several processes: the bits of one process, after a kill too; what cannot be shared is refused first."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import torch

from rlnlp.learners.common import TrainingError
from rlnlp.settings import ConfigError
from tests.built import REPOSITORY, SMALL, WITHOUT_VARIANTS, build, write_params
from tests.test_engine import Second
from workbook.runs import checks, conditions, experiment, means, train
from workbook.stages import together
from workbook.store import states

pytestmark = pytest.mark.xdist_group("together")  # they share what one process found
RUNS = {
    "ppo": {"algorithm": "ppo", "kl_coef": 0.1, "top_k": 20},
    "nlpo": {"algorithm": "nlpo", "kl_target": 0.02, "mask_top_p": 0.7, "sync_every": 2},
    "random": {"algorithm": "nlpo", "mask_source": "random"},
    "mixed": {"algorithm": "ppo", "breaks": ["ratio"]},  # for a team whose first process gives what the second has
    "dqn": {"algorithm": "dqn", "updates": 1, "episodes_per_update": 6},
}
FEW = {**WITHOUT_VARIANTS, "runs": RUNS, "reports": {"kl": {"conditions": ["ppo", "nlpo"]}}, "shards": 4}
FEW |= {"variants": {"label_fractions": [], "dropout": 0.0}}


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A profile with models, of which one process made a run of PPO and one of NLPO, in 4 shards."""
    folder = tmp_path_factory.mktemp("made")
    write_params(folder, draws=[1], seeds=[1], learner={**SMALL["learner"], "updates": 4}, **FEW)
    build(folder)
    for name in ("ppo", "nlpo"):
        collect(folder, name)
    return folder


@pytest.fixture
def world(made, tmp_path) -> Path:
    """A copy of it in which nothing was trained."""
    shutil.copytree(made, tmp_path / "world", ignore=shutil.ignore_patterns(".scratch", "runs"))
    return tmp_path / "world"


def given(folder: Path, name: str, **overrides) -> conditions.Condition:
    return conditions.condition(checks.load(folder / "params.yaml", **overrides), name)


def collect(folder: Path, name: str) -> None:
    """What the stage of a run does."""
    experiment.run_condition(given(folder, name), folder / "runs" / name)


def contents(folder: Path, name: str) -> dict[str, bytes]:
    out = folder / "runs" / name
    return {str(path.relative_to(out)): path.read_bytes() for path in sorted(out.rglob("*")) if path.is_file()}


def started(folder: Path, name: str, processes: int, program: tuple = ("-m", "workbook.stages.together")):
    """torchrun, on a port of its own; what all of them print."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    told = together.TORCHRUN.replace("29611", port).replace(" N", f" {processes}").split()
    torchrun = [sys.executable, "-m", "torch.distributed.run", *told[1:]]
    asked = [*program, "mini", name, "1", "--root", str(folder)]
    env = {**os.environ, "PYTHONPATH": str(REPOSITORY), states.EVERY_UPDATE: "1", "OMP_NUM_THREADS": "1"}
    return subprocess.run([*torchrun, *asked], capture_output=True, text=True, cwd=REPOSITORY, env=env)


@pytest.mark.parametrize(("name", "processes"), [("nlpo", 2), ("ppo", 4)])
def test_several_processes_write_the_bytes_of_one(name, processes, made, world, monkeypatch):
    found = started(world, name, processes)
    assert found.returncode == 0, found.stderr
    assert found.stdout.count("finished: ") == 1 and "process 1" not in found.stderr  # the first one alone speaks
    monkeypatch.setattr(experiment, "train", None)  # it is finished
    collect(world, name)
    assert contents(world, name) == contents(made, name)
    assert {"per_seed.csv", "curves.csv", "policy_seed1/model.safetensors"} <= contents(made, "nlpo").keys()


KILLED = """
import os, signal, sys
from rlnlp.learners import ppo
from workbook.stages import together

real = ppo.train

def updates(state, *given):
    for metrics in real(state, *given):
        if os.environ["RANK"] == "1" and state.update == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        yield metrics

ppo.train = updates
sys.exit(together.main())
"""


def test_one_that_is_killed_ends_the_others_and_another_number_goes_on(made, world, tmp_path):
    program = tmp_path / "killed.py"
    program.write_text(KILLED)
    found = started(world, "ppo", 2, (str(program),))
    left = sorted(path.name for path in (world / ".scratch/tests/runs/ppo").glob("*/*/state-*"))
    assert found.returncode != 0 and [name[:14] for name in left] == ["state-00000002"], found.stderr
    collect(world, "ppo")  # by this process alone
    assert contents(world, "ppo") == contents(made, "ppo")


def test_processes_that_cannot_share_a_run_are_refused_with_the_reason(made):
    path = made / "params.yaml"
    together.checked(path, "ppo", 1, 4)
    for name, processes, why in (
        ("dqn", 2, "DQN cannot be trained by 2 processes: its gradient is not a sum over parts"),
        ("random", 2, "NLPO cannot be trained by 2 processes: its masks draw random numbers of their own"),
        ("ppo", 3, "expected a power of two that 3 processes divide, found 4"),
        ("ppo", 8, "expected a power of two that 8 processes divide, found 4"),
    ):
        with pytest.raises(ConfigError, match=why):
            together.checked(path, name, 1, processes)
    with pytest.raises(ConfigError, match=r"seed 2: expected one of \[1\]"):
        together.checked(path, "ppo", 2, 1)
    assert [given(made, name).shards for name in RUNS] == [4, 4, 1, 4, 1]  # the others run whole, in one process
    with pytest.raises(ConfigError, match="expected episodes_per_update that 16 shards divide, found 8 in runs.ppo"):
        given(made, "ppo", shards=16)


def test_a_refusal_comes_before_any_process_waits_for_another(made, monkeypatch, capsys):
    monkeypatch.setattr(together, "Processes", None)
    monkeypatch.setattr(together, "safe", lambda: True)
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank, lines in (("0", 1), ("1", 0)):
        monkeypatch.setenv("RANK", rank)
        assert together.main(["mini", "dqn", "1", "--root", str(made)]) == 2
        assert capsys.readouterr().err.count("error: DQN cannot be trained by 2 processes") == lines
    monkeypatch.delenv("WORLD_SIZE")
    with pytest.raises(SystemExit):
        together.main(["mini", "ppo", "1", "--root", str(made)])
    assert "it is started by torchrun" in capsys.readouterr().err


ADDRESS = "--master-addr 127.0.0.1 --master-port"


@pytest.mark.parametrize(
    ("options", "refused"),
    [
        ("", True),
        ("--rdzv-backend c10d --rdzv-endpoint 127.0.0.1:{port}", True),
        ("--rdzv-backend static --rdzv-id mine " + ADDRESS + " {port}", False),
    ],
)
def test_torchruns_own_rendezvous_is_refused_as_whoever_reaches_it_can_run_anything(made, options, refused):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        given = options.format(port=free.getsockname()[1]).split()
    own = [sys.executable, "-m", "torch.distributed.run", *given, "--nproc-per-node", "1"]
    asked = [*own, "-m", "workbook.stages.together", "mini", "nobody", "1", "--root", str(made)]
    env = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    for insecure in ("", "1")[: 1 + refused]:
        found = subprocess.run(asked, capture_output=True, text=True, cwd=REPOSITORY, env={**env, "INSECURE": insecure})
        said = (
            "can run any program in your name. Use torchrun --rdzv" if refused and not insecure else "called 'nobody'"
        )
        assert found.returncode and said in found.stderr, found.stderr


def test_when_torchrun_opens_no_rendezvous_is_read_in_its_command(monkeypatch):
    def good(options: str, *program: str) -> bool:
        script = "-m workbook.stages.together mini ppo 1".split()
        return together.without_rendezvous([*(program or ("python", "/bin/torchrun")), *options.split(), *script])

    assert good(f"{ADDRESS} 29611") and good(f"{ADDRESS} 29611", "python", "-m", "torch.distributed.run")
    assert good("--rdzv_backend=static --rdzv-endpoint a:1 --rdzv-id mine") and good("--nnodes 2 --master-addr a")
    assert not good("") and not good("--nnodes 1:1") and not good("--nnodes one") and not good("--nproc-per")
    assert not good(f"--rdzv-backend c10d {ADDRESS} 29611") and not good(f"--standalone {ADDRESS} 29611")
    assert not good(f"{ADDRESS} 29611", "python", "-m", "accelerate.commands.launch")
    for name, value in (("RDZV_BACKEND", "c10d"), ("STANDALONE", "1")):
        with monkeypatch.context() as patch:
            patch.setenv(f"PET_{name}", value)
            assert not good(f"{ADDRESS} 29611")
    monkeypatch.setenv("PET_MASTER_PORT", "29611")
    assert good("")

    monkeypatch.setattr(together.psutil.Process, "cmdline", lambda self: (_ for _ in ()).throw(psutil.AccessDenied()))
    assert not together.safe()


def test_a_relative_mirror_is_meant_from_where_one_stands(made, tmp_path, monkeypatch):
    seen = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RLNLP_MIRROR", "mirror")
    monkeypatch.setenv("WORLD_SIZE", "1")
    monkeypatch.setattr(together, "safe", lambda: True)
    monkeypatch.setattr(together, "run", lambda given, seed: seen.append(os.environ["RLNLP_MIRROR"]) or True)
    assert together.main(["mini", "ppo", "1", "--root", str(made)]) == 0
    assert seen == [str(tmp_path / "mirror")]


def test_the_others_train_along_and_keep_nothing(world, monkeypatch):
    monkeypatch.setenv(states.EVERY_UPDATE, "1")
    params = given(world, "mixed")
    tuned, told = experiment.chosen(params), []
    experiment.follow(params, 1, tuned, Second(lambda mine: told.append(mine) or mine))
    assert len(told) > 4 * 4 and not list(world.glob(".scratch/**/runs/**/*"))  # 4 updates, of 4 gradients each
    with pytest.raises(TrainingError, match=r"mixed seed 1, process 1: the processes of this run do not agree on .*kl"):
        spoilt = Second(lambda mine: mine * 1.5 if mine.dtype == torch.float64 and mine.dim() == 1 else mine)
        experiment.follow(params, 1, tuned, spoilt)
    monkeypatch.setattr(experiment, "load_draw", None)  # it is finished, says the first
    experiment.follow(params, 1, tuned, Second(torch.ones_like))


def test_a_precision_and_shards_that_do_not_fit_are_refused_with_the_settings(made):
    said = (
        r"runs.dqn.algorithm \(line \d+\): expected a learner that can be trained in bf16, found DQN, which needs fp32"
    )
    for changes, why in (
        ({"precision": "bf16"}, said),
        ({"precision": "tf32"}, "precision.*: expected fp32 or bf16 on a cpu"),
        ({"precision": "fp16"}, "precision"),
        ({"shards": 6}, "shards.*: expected a power of two, found 6"),
        ({"device": "cuda:x"}, "device"),
    ):
        with pytest.raises(ConfigError, match=why):
            given(made, "ppo", **changes)
    words = [given(made, "ppo", shards=1), given(made, "ppo", shards=1, device="cuda")]
    assert [means.plain(params) for params in words] == [True, False]
    assert not {"precision", "shards"} & words[0].model_dump().keys()  # nothing that is there depends on them


def test_a_gpu_that_is_not_there_or_cannot_multiply_so_is_refused_first(made, monkeypatch):
    if not torch.cuda.is_available():
        with pytest.raises(ConfigError, match="device cuda: expected a GPU that torch .* can use, found 0"):
            train.setup(given(made, "ppo", device="cuda"))
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "")
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG")
    chosen = []
    monkeypatch.setattr(torch, "set_float32_matmul_precision", chosen.append)
    for name, value in {"is_available": True, "device_count": 2, "get_device_name": "Tesla T4"}.items():
        monkeypatch.setattr(torch.cuda, name, lambda *of, value=value: value)
    for capability, known in (((7, 5), ["fp32"]), ((8, 0), ["fp32", "tf32", "bf16"])):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device, found=capability: found)
        for precision in ("fp32", "tf32", "bf16"):
            if precision in known:
                means.on_gpu("cuda:1", precision)
            else:
                with pytest.raises(
                    ConfigError, match=f"precision {precision}: .* capability 8.0 or later, found Tesla"
                ):
                    means.on_gpu("cuda:1", precision)
    assert chosen == ["highest", "highest", "high", "highest"] and os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    with pytest.raises(ConfigError, match="device cuda:2: expected a GPU .*, found 2"):
        means.on_gpu("cuda:2", "fp32")


def test_an_evaluations_batch_fits_a_part_of_the_card():
    from tests.tiny import gpt2

    model = gpt2()
    each = 4 * (16 * 32 * (2 * 2 + 40) + 6 * 50)
    assert means.fitting(model, 16, 4, 8 * each * means.PART) == 8
    assert means.fitting(model, 16, 4, 8 * each * means.PART - 1) == 4
    assert means.fitting(model, 16, 4, 1) == 4 and means.fitting(model, 16, 4, 10**15) == means.MOST
