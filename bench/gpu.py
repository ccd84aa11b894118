"""``python -m bench.gpu --out FOLDER``: what the package does on one GPU, in eight stages of two minutes at most.

Each stage is a process of its own that writes FOLDER/<stage>.json when it is done, and is skipped where that is there:
the same command goes on after a stop. ``--report`` writes the tables, measured numbers beside what the shapes need at
the rates that were measured (or at an H200's, named as such). ``--tiny`` runs the same code on the CPU at tiny shapes.
Needs the tree, torch, transformers, pydantic, gymnasium and numpy.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import gc
import hashlib
import importlib.metadata
import inspect
import json
import multiprocessing
import os
import platform
import signal
import subprocess
import sys
import time
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from workbook.stages.roofline import H200, Shape, optimizer_bytes, prefill_flops, step_bytes, update_flops

ROOT = Path(__file__).resolve().parent.parent
REPORT = ROOT / "reports" / "bench" / "gpu.md"
STAGES = ("facts", "works", "exact", "decode", "update", "iteration", "evaluate", "share")
LIMIT, PATIENCE = 110, 170  # seconds: a stage begins nothing more; a stage that has not ended is killed
PRECISIONS = ("fp32", "tf32", "bf16")
RULES = ("plain", "top_k", "top_p", "nlpo")
SLOW = {"fp32": 3e13, "tf32": 1e14, "bf16": 1e14}  # operations a second of a slow update: whether a row fits the time


@dataclass(frozen=True)
class Scale:
    """How large everything is: on a GPU as here, with ``--tiny`` as in TINY."""

    shapes: dict[str, Shape]
    prompt: int = 64
    new: int = 48
    batches: tuple[int, ...] = (64, 256, 512, 128)
    minibatches: tuple[int, ...] = (32, 2, 128)  # episodes
    repeats: int = 10
    warm: int = 3
    gemm: int = 8192
    copy: int = 2**30  # bytes
    paper: tuple[int, int, int] = (27, 5, 20)  # episodes, epochs, minibatches
    large: int = 512  # episodes
    evaluated: int = 5000
    together: int = 1000
    processes: tuple[int, ...] = (1, 2, 4)
    updates: int = 10  # of a process that shares the GPU


REAL = Scale({"124M": Shape(12, 768), "355M": Shape(24, 1024), "774M": Shape(36, 1280)})
TINY = Scale({"tiny": Shape(2, 32, 300, 64, 16)}, 6, 8, (4, 2), (4, 2), 2, 1, 64, 2**16, (5, 2, 2), 6, 12, 6, (1, 2), 1)


# ---- models, batches, clocks ---------------------------------------------------------------------------------------


def model_of(shape: Shape, device: str, seed: int = 0):
    """Random weights, no dropout, fp32; the last token is EOS. The formula of gelu that has one kernel."""
    import torch
    import transformers

    torch.manual_seed(seed)
    eos = shape.vocabulary - 1
    config = transformers.GPT2Config(
        n_layer=shape.layers, n_embd=shape.width, n_head=shape.width // shape.head, vocab_size=shape.vocabulary,
        n_positions=shape.positions, bos_token_id=eos, eos_token_id=eos, pad_token_id=eos, resid_pdrop=0.0,
        embd_pdrop=0.0, attn_pdrop=0.0, activation_function="gelu_pytorch_tanh",
    )  # fmt: skip
    with torch.device(device):
        return transformers.GPT2LMHeadModel(config).eval()


def prompts_of(shape: Shape, B: int, P: int, device: str, seed: int = 0):
    """B random prompts of 3/4 P to P tokens, padded on the left."""
    import torch

    from rlnlp.types import Prompts

    numbers = torch.Generator().manual_seed(seed)
    mask = torch.arange(P)[None] >= torch.randint(0, P // 4 + 1, (B, 1), generator=numbers)
    ids = torch.randint(0, shape.vocabulary - 1, (B, P), generator=numbers) * mask
    return Prompts(ids.to(device), mask.to(device), [""] * B, [[] for _ in range(B)], [str(i) for i in range(B)])


def rising(rollout):
    """A reward that needs no text: the share of tokens larger than the one before."""
    tokens = rollout.responses
    return (tokens[:, 1:] > tokens[:, :-1]).float().mean(1), {}


def rules_of(name: str, mask_model) -> dict:
    """Arguments of ``sample_static`` for a rule of RULES."""
    from rlnlp.static_rollout import Truncation

    return {
        "plain": {},
        "top_k": {"sampler": Truncation(50)},
        "top_p": {"sampler": Truncation(0, 0.9)},
        "nlpo": {"sampler": Truncation(50), "mask_model": mask_model, "mask_rule": Truncation(0, 0.9)},
    }[name]


@dataclass
class Stage:
    """What a stage is given, and the rows that it leaves."""

    name: str
    scale: Scale
    device: str
    precisions: tuple[str, ...]
    limit: float = LIMIT
    began: float = dataclasses.field(default_factory=time.monotonic)
    rows: list[dict] = dataclasses.field(default_factory=list)
    left_out: list[str] = dataclasses.field(default_factory=list)

    @contextlib.contextmanager
    def row(self, name: str, **facts) -> Iterator[dict]:
        """A row to fill in. An error is the row's content: what comes after it is still measured."""
        import torch

        gc.collect()  # a sampler and its step hold each other: the last row's memory goes now
        if torch.cuda.is_initialized():  # a stage that forks must not do it first
            torch.cuda.reset_peak_memory_stats()
        made = {"name": name, **facts}
        try:
            yield made
        except Exception as error:  # noqa: BLE001 (out of memory, a kernel that is not there: a finding)
            made["error"] = f"{type(error).__name__}: {error}"[:300]
        if torch.cuda.is_initialized():
            made["peak_gib"] = torch.cuda.max_memory_allocated() / 2**30
        self.rows.append(made)
        print(f"  {self.name}: " + ", ".join(f"{k} {short(v)}" for k, v in made.items()), file=sys.stderr, flush=True)

    def time_for(self, seconds: float, what: str) -> bool:
        """Whether ``seconds`` more are left; what is not begun is listed."""
        if time.monotonic() - self.began + seconds <= self.limit:
            return True
        self.left_out.append(what)
        return False


def timed(work: Callable, stage: Stage, *given, prepare: Callable = lambda: None, repeats: int = 0) -> dict:
    """Milliseconds of ``work(*given)``: median and interval over repeats, by events on cuda; ``prepare`` is not timed.

    repeats: 0 = the scale's, after its warm-up; else so many after one that is not counted.
    """
    import torch

    from bench.run import median_interval

    spans, warm, repeats = [], 1 if repeats else stage.scale.warm, repeats or stage.scale.repeats
    for number in range(-warm, repeats):
        prepare()
        if stage.device == "cuda":
            ends = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
            ends[0].record()
            work(*given)
            ends[1].record()
            ends[1].synchronize()
            span = ends[0].elapsed_time(ends[1])
        else:
            began = time.perf_counter()
            work(*given)
            span = (time.perf_counter() - began) * 1e3
        if number >= 0:
            spans.append(span)
    median, low, high, _ = median_interval(spans)
    return {"n": repeats, "median_ms": median, "low_ms": low, "high_ms": high}


def short(value) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


# ---- stages --------------------------------------------------------------------------------------------------------


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


LEARNERS = {  # small settings, two updates each
    "ppo": {"minibatches": 2},
    "nlpo": {"minibatches": 2, "top_k": 50, "sync_every": 1},
    "a2c": {},
    "trpo": {},
    "dqn": {"gradient_steps": 2, "warm_up": 4},
    "sac": {"gradient_steps": 2, "batch_episodes": 4},
}


def learner_of(name: str, device: str, updates: int, **more):
    """(module, state, prompts, config) of a learner on a tiny model; more: settings."""
    import importlib

    from rlnlp.types import to

    module, shape = importlib.import_module(f"rlnlp.learners.{name}"), TINY.shapes["tiny"]
    common = {"updates": updates, "episodes_per_update": 8, "max_new_tokens": 8, "learning_rate": 1e-3}
    config = module.Config(**common, **LEARNERS[name], **more)
    state = module.init(model_of(shape, device), config, 3)
    return module, state, to(prompts_of(shape, 16, 6, "cpu"), device), config


def digest(state) -> str:
    """The policy's weights and the optimiser's, in eight bytes."""
    from rlnlp.checkpoint import pack

    tensors, numbers = pack(state)
    found = hashlib.sha256(json.dumps(numbers, sort_keys=True).encode())
    for name in sorted(tensors):
        found.update(name.encode() + tensors[name].detach().cpu().contiguous().numpy().tobytes())
    return found.hexdigest()[:16]


def train_and_stop(device: str, place: Path, out: str, stop_at: int) -> None:
    """PPO for four updates by recorded steps, in a process of its own. A checkpoint is there before it starts; after
    ``stop_at`` updates one is written and the process waits to be killed (0: it goes on to the end and writes its
    digest)."""
    import torch

    from rlnlp.checkpoint import pack, unpack
    from rlnlp.engine import Engine

    module, state, prompts, config = learner_of("ppo", device, 4, min_new_tokens=8)
    state.engine = Engine(static=True)
    if place.exists():
        saved = torch.load(place, weights_only=True, map_location=device)
        unpack(state, saved["tensors"], saved["numbers"])
    for metrics in module.train(state, prompts, rising, config):
        if metrics["update"] == stop_at:
            tensors, numbers = pack(state)
            torch.save({"tensors": tensors, "numbers": numbers}, place.with_suffix(".part"))
            os.replace(place.with_suffix(".part"), place)
            time.sleep(PATIENCE)
    Path(out).write_text(digest(state))


def works(stage: Stage) -> None:
    """Every learner twice with equal digits; a forked child can use the GPU; killed and resumed is uninterrupted.

    Children are forked before this process touches the GPU, as the package's own fork server does.
    """
    import tempfile

    from rlnlp.engine import Engine

    fork = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder, stage.row("killed and resumed", learner="ppo") as row:
        place, whole, resumed = (Path(folder) / name for name in ("state.pt", "whole", "resumed"))
        other = fork.Process(target=train_and_stop, args=(stage.device, Path(folder) / "none", str(whole), 0))
        killed = fork.Process(target=train_and_stop, args=(stage.device, place, str(resumed), 2))
        for child in (other, killed):
            child.start()
        while not place.exists() and killed.is_alive() and stage.time_for(0, "killed and resumed"):
            time.sleep(0.05)
        killed.kill()
        killed.join()
        again = fork.Process(target=train_and_stop, args=(stage.device, place, str(resumed), 0))
        again.start()
        for child in (other, again):
            child.join()
        row["forked"] = whole.exists()
        row["equal"] = whole.read_text() == resumed.read_text()
    for name in LEARNERS:
        with stage.row("twice", learner=name) as row:
            seen = []
            for _ in range(2):
                module, state, prompts, config = learner_of(name, stage.device, 2)
                curve = list(module.train(state, prompts, rising, config))
                seen.append((len(curve), digest(state)))
            row["updates"], row["equal"] = seen[0][0], seen[0] == seen[1]
    for name in ("ppo", "nlpo"):
        with stage.row("twice, recorded updates", learner=name) as row:
            ends, engines = [], [Engine(static=True), Engine(static=True)]
            for engine in engines:
                module, state, prompts, config = learner_of(name, stage.device, 3, min_new_tokens=8)
                state.engine = engine
                list(module.train(state, prompts, rising, config))
                ends.append(digest(state))
            row["recorded"] = all(was_recorded(engine) for engine in engines)
            row["equal"] = ends[0] == ends[1]


def was_recorded(engine) -> bool:
    """Whether gradient steps of a state with this engine were replayed from a graph, of every size."""
    graphs = [steps.step.graph for steps in engine.recorded.values()]
    return bool(graphs) and None not in graphs


def exact(stage: Stage) -> None:
    """A replayed graph is its eager twin, both are the readable path; what sampling and scoring differ by; how far
    recorded gradient steps end from those that are written."""
    import torch

    from rlnlp import models, rollout
    from rlnlp.precision import numerics
    from rlnlp.static_rollout import StaticSampler, sample_static

    name, shape = next(iter(stage.scale.shapes.items()))
    P, T, B, device = stage.scale.prompt, stage.scale.new, min(stage.scale.batches), torch.device(stage.device)
    policy, older = model_of(shape, stage.device, 0), model_of(shape, stage.device, 1)
    prompts = prompts_of(shape, B, P, stage.device)
    fields = ("responses", "mask", "terminated", "behavior_logprobs", "logprobs")
    for rule in RULES:
        with stage.row("paths", rule=rule, shape=name, B=B) as row:
            given, sampling = rules_of(rule, older), rollout.sampling_from(policy, T)
            numbers = torch.rand(B, T, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
            graph, eager = (StaticSampler(policy, prompts, sampling, **given, graph=one) for one in (True, False))
            for _ in range(2):  # the second batch is replayed from its first step on
                replayed, written = graph(prompts, numbers), eager(prompts, numbers)
            row["graph_is_eager"] = all(torch.equal(getattr(replayed, f), getattr(written, f)) for f in fields)
            readable = rollout.sample(policy, prompts, sampling, torch.Generator().manual_seed(1), **given)
            same = readable.responses.shape == written.responses.shape
            rows = (readable.responses == written.responses).all(1) if same else torch.zeros(B, dtype=torch.bool)
            row["rows_equal"] = rows.float().mean().item()
            if rows.any():
                off = (readable.logprobs - written.logprobs)[rows.to(written.mask.device)].abs()
                row["logprobs_off"] = off.max().item()
    for precision in stage.precisions:
        with stage.row("mismatch", precision=precision, shape=name, B=B) as row, torch.no_grad():
            sampling = rollout.sampling_from(policy, T, min_new_tokens=T)
            drawn = sample_static(policy, prompts, sampling, torch.Generator().manual_seed(2), precision=precision)
            with numerics(precision, device):
                scored = models.score_tokens(policy, drawn)
                halves = [models.score_tokens(policy, rollout.take(drawn, r)) for r in torch.arange(B).chunk(2)]
            off, again = (scored - drawn.logprobs).abs(), (torch.cat(halves) - scored).abs()
            row["sampled_mean"], row["sampled_max"] = off.mean().item(), off.max().item()
            row["first_ratio_off"] = (
                again.exp().sub(1).max().item()
            )  # old log-probabilities recomputed, then a minibatch
    for precision in dict.fromkeys((stage.precisions[0], stage.precisions[-1])):
        with stage.row("update", precision=precision, shape=name, B=stage.scale.batches[0]) as row:
            compared(row, shape, prompts_of(shape, stage.scale.batches[0], P, stage.device), T, precision)


def compared(row: dict, shape: Shape, prompts, T: int, precision: str) -> None:
    """An update by recorded steps, by their eager twin and as it is written: how far the weights end apart. Minibatches
    have two sizes, so that two graphs share weights and optimiser."""
    import torch

    from rlnlp import engine as engines
    from rlnlp import static_update
    from rlnlp.learners import ppo

    def twin(*given, graph: bool = False):
        return static_update.StaticSteps(*given, graph=graph)

    device, ends = prompts.ids.device, []
    settings = {"max_new_tokens": T, "min_new_tokens": T, "epochs": 6, "minibatches": 3, "top_k": 50}
    config = ppo.Config(episodes_per_update=len(prompts), learning_rate=1e-5, breaks=("ratio",), **settings)
    for steps in (None, twin, static_update.StaticSteps):
        engine, policy = engines.Engine(precision, static=True), model_of(shape, str(device), 0)
        engine.install(policy)
        state = ppo.init(policy, config, 0)
        before = weights_of(state.policy)
        seen = ppo.collect(state, prompts, rising, config)
        if steps is not None:
            state.engine, engines.StaticSteps = engine, steps
        ppo.update(state, seen, config)
        ends.append(weights_of(state.policy))
    row["moved"], row["weights_off"] = ((one - ends[0]).abs().max().item() for one in (before, ends[2]))
    row["recorded"], row["graph_is_eager"] = was_recorded(engine), torch.equal(ends[1], ends[2])


def weights_of(policy):
    """All weights as one vector."""
    import torch

    return torch.cat([weight.detach().flatten() for weight in policy.parameters()])


def decode(stage: Stage) -> None:
    """Time of a step, not of a rollout: the readable path, the eager twin, the graph, one compiled and recorded."""
    import torch

    from rlnlp import rollout
    from rlnlp.static_rollout import StaticSampler

    P, T, scale = stage.scale.prompt, stage.scale.new, stage.scale
    first = next(iter(scale.shapes))

    def measure(name: str, policy, B: int, precision: str, variant: str, rule: str = "plain", older=None) -> None:
        facts = {"shape": name, "B": B, "precision": precision, "rule": rule}
        if not stage.time_for(2, f"{variant} {name} B {B} {precision} {rule}"):
            return
        with stage.row(variant, **facts) as row:
            prompts, given = prompts_of(scale.shapes[name], B, P, stage.device), rules_of(rule, older)
            sampling = rollout.sampling_from(policy, T, min_new_tokens=T)
            row |= {"bytes": step_bytes(scale.shapes[name], B, P, T, precision), "tokens": B}
            if variant == "readable":
                numbers = torch.Generator().manual_seed(0)
                work = lambda: rollout.sample(policy, prompts, sampling, numbers, **given)
                row |= per(T, timed(work, stage, repeats=2))
                return
            numbers = torch.rand(B, T, dtype=torch.float64)
            graph = variant != "eager"  # compiled: fewer kernels, recorded all the same
            sampler = StaticSampler(policy, prompts, sampling, **given, precision=precision, graph=graph)
            if variant == "compiled":
                sampler.step.work = torch.compile(sampler.step.work, **compiler(stage))

            def steps() -> None:
                for _ in range(T - 1):
                    sampler.step()

            begin = lambda: sampler.begin(prompts, numbers)
            row |= per(T - 1, timed(steps, stage, prepare=begin))
            row["prefill_ms"] = timed(begin, stage, repeats=3)["median_ms"]

    policies = {}

    def policy_of(name: str):
        if name not in policies:
            policies.clear()
            policies[name] = model_of(scale.shapes[name], stage.device)
        return policies[name]

    policy, small, most = policy_of(first), scale.batches[0], stage.precisions[-1]
    older = model_of(scale.shapes[first], stage.device, 1)
    with torch.no_grad():
        measure(first, policy, small, "fp32", "readable")
        for B in scale.batches[:2]:
            measure(first, policy, B, "fp32", "eager")
        for rule in RULES[1:]:
            measure(first, policy, small, most, "graph", rule, older)
        for B in scale.batches:
            for precision in by_worth(stage)[:2]:
                measure(first, policy, B, precision, "graph")
        if stage.time_for(30, "compiled"):
            measure(first, policy, small, most, "compiled")
        for precision in by_worth(stage)[:2]:
            for name in list(scale.shapes)[1:]:
                for B in scale.batches:
                    measure(name, policy_of(name), B, precision, "graph")


def by_worth(stage: Stage) -> list[str]:
    """Precisions in the order in which they are measured: the fastest, the most exact, what lies between."""
    return list(dict.fromkeys([*stage.precisions[::-2], *stage.precisions]))


def per(n: int, row: dict) -> dict:
    """Milliseconds of one of the ``n`` parts that were timed together."""
    return {key: value / n if key.endswith("_ms") else value for key, value in row.items()}


def compiler(stage: Stage) -> dict:
    """Arguments of torch.compile, for these shapes and no others; on the CPU traced only: no C++ compiler is needed."""
    return {"dynamic": False} if stage.device == "cuda" else {"dynamic": False, "backend": "eager"}


def fixed_batch(shape: Shape, episodes: int, P: int, T: int, device: str) -> dict:
    """Episodes of equal length as a minibatch: what ``static_update.cells`` makes of an experience, random."""
    import torch

    from rlnlp.models import positions

    prompts = prompts_of(shape, episodes, P, device, seed=5)
    responses = torch.randint(0, shape.vocabulary - 1, (episodes, T), device=device)
    seen = torch.nn.functional.pad(prompts.mask, (0, T - 1), value=True)
    numbers = {name: torch.randn(episodes, T, device=device) for name in ("old", "advantages", "values", "returns")}
    numbers["old"] = numbers["old"] * 0.1 - 10.8
    ids = torch.cat([prompts.ids, responses[:, :-1]], 1)
    return {"ids": ids, "seen": seen, "position": positions(seen), "responses": responses, **numbers}


def fixed_loss(state, batch: dict, sampling, config):
    """PPO's minibatch loss at fixed shapes."""
    from rlnlp.static_update import minibatch_loss

    return minibatch_loss(state, batch, sampling, 0, config)[0]


def backward(state, batch: dict, sampling, config, precision: str, loss_of: Callable = fixed_loss) -> None:
    """Forward and backward of one minibatch. state: a policy and its value network."""
    import torch

    from rlnlp.precision import numerics

    with numerics(precision, torch.device(batch["ids"].device.type)):
        loss = loss_of(state, batch, sampling, config)
    loss.backward()


def clear(weights: list) -> None:
    for weight in weights:
        weight.grad = None


def step(optimizer, weights: list) -> None:
    """The clip and AdamW, without reading the norm back."""
    import torch

    torch.nn.utils.clip_grad_norm_(weights, 0.5)
    optimizer.step()


def adamw(weights: list):
    import torch

    return torch.optim.AdamW(weights, 1e-6, eps=1e-5, weight_decay=0.0, fused=True)


def update(stage: Stage) -> None:
    """Forward and backward of a minibatch at fixed shapes, eager and compiled; the optimiser's step by itself."""
    import torch

    from rlnlp import rollout
    from rlnlp.learners import ppo
    from rlnlp.models import ValueModel

    P, T, scale = stage.scale.prompt, stage.scale.new, stage.scale
    first, most = next(iter(scale.shapes)), stage.precisions[-1]
    plan = [(first, n, most, "compiled") for n in scale.minibatches[::2]]
    plan += [(name, n, p, "eager") for p in by_worth(stage) for name in scale.shapes for n in scale.minibatches]
    held: dict[str, tuple] = {}
    for name, episodes, precision, variant in plan:
        shape = scale.shapes[name]
        needed = (scale.warm + scale.repeats) * update_flops(shape, episodes, P, T) / SLOW[precision]
        if not stage.time_for(40 if variant == "compiled" else 3 + needed, f"{variant} {name} {episodes} {precision}"):
            continue
        if name not in held:
            held.clear()
            policy = model_of(shape, stage.device)
            value = ValueModel(policy)
            weights = [*policy.parameters(), *value.parameters()]
            held[name] = policy, value, weights
            with stage.row("optimizer", shape=name, bytes=optimizer_bytes(shape)) as row:
                for weight in weights:
                    weight.grad = torch.ones_like(weight)
                row |= timed(step, stage, adamw(weights), weights)
                clear(weights)
        policy, value, weights = held[name]
        facts = {"shape": name, "episodes": episodes, "precision": precision, "tokens": episodes * (P + T - 1)}
        with stage.row(variant, **facts, flops=update_flops(shape, episodes, P, T)) as row:
            loss_of = torch.compile(fixed_loss, **compiler(stage)) if variant == "compiled" else fixed_loss
            state, sampling = types.SimpleNamespace(policy=policy, value=value), rollout.sampling_from(policy, T)
            batch = fixed_batch(shape, episodes, P, T, stage.device)
            given = state, batch, sampling, ppo.Config(), precision, loss_of
            row |= timed(backward, stage, *given, prepare=functools.partial(clear, weights))
        clear(weights)


def iteration(stage: Stage) -> None:
    """One PPO and one NLPO iteration by phase: the readable rollout and update, and beside them those of fixed shapes.

    iteration_s: static rollout, experience, the update as it is written; fixed_s: the same with the recorded update.
    """
    import torch

    from rlnlp.engine import Engine
    from rlnlp.learners import nlpo, ppo
    from rlnlp.precision import in_bf16, numerics
    from rlnlp.static_rollout import Truncation, sample_static
    from rlnlp.types import generator

    name, shape = next(iter(stage.scale.shapes.items()))
    P, T, device = stage.scale.prompt, stage.scale.new, torch.device(stage.device)
    episodes, epochs, minibatches = stage.scale.paper
    cases = [
        ("PPO, paper", ppo, episodes, epochs, minibatches, {}),
        ("NLPO, paper", nlpo, episodes, epochs, minibatches, {"mask_top_p": 0.9}),
        ("PPO, large", ppo, stage.scale.large, 2, 4, {}),
    ]
    plan = [(case, precision) for precision in by_worth(stage) for case in cases]
    for (label, learner, n, epochs, minibatches, more), precision in plan:
        if not stage.time_for(10, f"{label} {precision}"):
            continue
        outer = numerics("tf32" if precision == "tf32" else "fp32", device)  # bf16 is the engine's, as in a run
        with stage.row(label, shape=name, episodes=n, precision=precision) as row, outer:
            config = learner.Config(
                episodes_per_update=n, epochs=epochs, minibatches=minibatches, max_new_tokens=T, min_new_tokens=T,
                top_k=50, learning_rate=1e-6, breaks=("ratio",), **more,
            )  # fmt: skip
            engine, policy = Engine(precision, static=True), model_of(shape, stage.device)
            if precision == "bf16":
                in_bf16(policy)
            state = learner.init(policy, config, 0)
            masked = {"mask_model": state.mask_model} if more else {}
            prompts, kept, spans = prompts_of(shape, n, P, stage.device), {}, {}

            def static(learner=learner, state=state, prompts=prompts, kept=kept, masked=masked, precision=precision):
                rule = {"mask_rule": Truncation(0, 0.9)} if masked else {}
                numbers = generator(0, "rollout", state.update)
                given = {"sampler": Truncation(50), "precision": precision, "kept": kept, **masked, **rule}
                return sample_static(state.policy, prompts, state.sampling, numbers, **given)

            for number in range(3):  # the first two make graphs, caches and the optimiser's state
                clock = Clock(stage.device)
                drawn = static()
                clock.mark("static rollout")
                seen = ppo.experience(state, drawn, rising, config)
                clock.mark("experience")
                state.engine = engine
                learner.update(state, seen, config)
                spans = clock.mark("update at fixed shapes")
                del state.engine
                if number == 2:  # seconds each
                    learner.update(state, seen, config)
                    clock.mark("update")
                    if masked:
                        nlpo.rollout(state, prompts, config)
                    else:
                        ppo.rollout(state, prompts)
                    spans = clock.mark("readable rollout")
            row["seconds"], row["recorded"] = spans, was_recorded(engine)
            before = spans["static rollout"] + spans["experience"]
            row |= {"iteration_s": before + spans["update"], "fixed_s": before + spans["update at fixed shapes"]}
            row["tokens"] = n * T


class Clock:
    """Wall seconds between marks, with the device's work done at each."""

    def __init__(self, device: str) -> None:
        self.device, self.spans = device, {}
        self.last = self.now()

    def now(self) -> float:
        import torch

        if self.device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    def mark(self, name: str) -> dict[str, float]:
        """The seconds since the last mark are ``name``'s."""
        now = self.now()
        self.spans[name], self.last = now - self.last, now
        return self.spans


def words(size: int):
    """A tokeniser whose words are numbers: its work a token is that of a word-level one, less than of a BPE."""
    import tokenizers
    import transformers

    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel({f"n{i}": i for i in range(size)}, unk_token="n0"))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=backend, eos_token=f"n{size - 1}")


def evaluate(stage: Stage) -> None:
    """One decoding of a whole split: sampling, one pass for the exact KL, text and back; wall and CPU seconds."""
    import torch

    from rlnlp import models, rollout
    from rlnlp.precision import numerics
    from rlnlp.static_rollout import sample_static

    scale, (name, shape) = stage.scale, next(iter(stage.scale.shapes.items()))
    policy, tokenizer, device = model_of(shape, stage.device), words(shape.vocabulary), torch.device(stage.device)
    reference, kept = model_of(shape, stage.device, 1), {}
    for precision in by_worth(stage):
        if not stage.time_for(25, precision):
            continue
        with stage.row("one decoding", shape=name, prompts=scale.evaluated, precision=precision) as row:
            sampling, numbers = rollout.sampling_from(policy, scale.new), torch.Generator().manual_seed(0)
            spent, total = {}, 0.0
            cpu = time.process_time()
            for start in range(0, scale.evaluated, scale.together):
                prompts = prompts_of(shape, scale.together, scale.prompt, stage.device, start)
                clock = Clock(stage.device)
                drawn = sample_static(policy, prompts, sampling, numbers, precision=precision, kept=kept)
                clock.mark("sampling")
                with numerics(precision, device):
                    models.exact_kl(policy, reference, drawn)
                clock.mark("exact KL")
                texts = rollout.decode(drawn, tokenizer)
                tokenizer(texts)
                for part, seconds in clock.mark("text").items():
                    spent[part] = spent.get(part, 0.0) + seconds
                    total += seconds
            row |= {"seconds": spent, "total_s": total, "cpu_s": time.process_time() - cpu}


def sharer(scale: Scale, device: str, precision: str, ready, go, spent) -> None:
    """One of the processes on the GPU: a PPO run of its own, from when all are ready."""
    import torch

    from rlnlp.learners import ppo
    from rlnlp.precision import numerics

    shape = next(iter(scale.shapes.values()))
    config = ppo.Config(
        updates=scale.updates + 1, episodes_per_update=32 if device == "cuda" else 4, epochs=2, minibatches=2,
        max_new_tokens=scale.new, min_new_tokens=scale.new, learning_rate=1e-6, breaks=("ratio",),
    )  # fmt: skip
    with numerics(precision, torch.device(device)):
        state = ppo.init(model_of(shape, device), config, 0)
        curve = ppo.train(state, prompts_of(shape, 64, scale.prompt, device), rising, config)
        next(curve)
        ready.release()
        go.wait()
        began = time.monotonic()
        list(curve)
        spent.put(time.monotonic() - began)


def share(stage: Stage) -> None:
    """Updates an hour of 1, 2 and 4 runs at once on one GPU."""
    fork = multiprocessing.get_context("fork")  # this process does not touch the GPU itself
    name, precision = next(iter(stage.scale.shapes)), stage.precisions[-1]
    for n in stage.scale.processes:
        if not stage.time_for(25, f"{n} processes"):
            continue
        made = {"name": "runs at once", "shape": name, "processes": n, "precision": precision}
        ready, go, spent = fork.Semaphore(0), fork.Event(), fork.Queue()
        args = (stage.scale, stage.device, precision, ready, go, spent)
        children = [fork.Process(target=sharer, args=args) for _ in range(n)]
        for child in children:
            child.start()
        if all([ready.acquire(timeout=PATIENCE) for _ in children]):
            go.set()
            made["slowest_s"] = max(spent.get(timeout=PATIENCE) for _ in children)
            made["updates_per_hour"] = 3600 * n * stage.scale.updates / made["slowest_s"]
        else:
            made["error"] = "a process did not get ready"
        for child in children:
            child.kill() if "error" in made else None
            child.join()
        stage.rows.append(made)


WORK = {
    "facts": facts, "works": works, "exact": exact, "decode": decode,
    "update": update, "iteration": iteration, "evaluate": evaluate, "share": share,
}  # fmt: skip


# ---- running -------------------------------------------------------------------------------------------------------


def run_stage(name: str, options: argparse.Namespace) -> None:
    """A stage, in a process forked for it; its file is there when all of it is done."""
    os.setsid()  # with the processes that it makes one group, which can be ended as one
    import torch

    if options.tiny:
        torch.set_num_threads(1)
    if name in ("works", "exact"):
        torch.use_deterministic_algorithms(True, warn_only=True)
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


# ---- report --------------------------------------------------------------------------------------------------------


def rates(found: dict[str, dict]) -> tuple[dict[str, float], bool]:
    """(copy in TB/s, products in TFLOP/s by precision; whether they were measured)."""
    if "facts" not in found:
        return H200, False
    rows = found["facts"]["rows"]
    measured = {row["precision"]: row["tflop_s"] for row in rows if "tflop_s" in row}
    copied = [row["tb_s"] for row in rows if "tb_s" in row]
    measured |= {"copy_tb_s": copied[0]} if copied else {}
    return {**H200, **measured}, set(measured) == set(H200)


def with_floor(row: dict, rate: dict[str, float]) -> dict:
    """The row with the milliseconds that its bytes or operations need at least, and the share that is of its time."""
    floor = row.get("bytes", 0.0) / rate["copy_tb_s"] / 1e9
    floor = max(floor, row.get("flops", 0.0) / rate[row.get("precision", "fp32")] / 1e9)
    if not floor or "median_ms" not in row:
        return row
    more = {"tokens_s": row["tokens"] / row["median_ms"] * 1e3} if "tokens" in row else {}
    return {**row, **more, "floor_ms": floor, "share": floor / row["median_ms"]}


def cell(value) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {cell(one)}" for key, one in value.items())
    if isinstance(value, bool):
        return "yes" if value else "**no**"
    return short(value)


def table(rows: list[dict]) -> list[str]:
    """Rows as a table with the columns that any of them has."""
    columns = list(dict.fromkeys(key for row in rows for key in row if key not in ("bytes", "flops")))
    lines = [columns, ["---"] * len(columns)]
    lines += [[cell(row[key]) if row.get(key) is not None else "" for key in columns] for row in rows]
    return ["| " + " | ".join(line) + " |" for line in lines]


def roofline(rate: dict[str, float]) -> list[str]:
    """What the shapes need at these rates: decoding and updates, bf16."""
    P, T = REAL.prompt, REAL.new
    batches = sorted(REAL.batches)
    rows = []
    for name, shape in REAL.shapes.items():
        row = {"decode, bf16": name}
        for B in batches:
            step = step_bytes(shape, B, P, T, "bf16") / rate["copy_tb_s"] / 1e12
            whole = T * step + prefill_flops(shape, B, P) / rate["bf16"] / 1e12
            row[f"B = {B}: step us / tokens per s"] = f"{step * 1e6:.0f} / {B * T / whole:,.0f}"
        rows.append(row)
    updates = []
    for name, shape in REAL.shapes.items():
        row = {"update, policy and value network": name}
        for n in sorted(REAL.minibatches):
            needed = update_flops(shape, n, P, T) / rate["bf16"] / 1e9
            row[f"{n} episodes = {n * (P + T - 1):,} tokens, ms at 40 %"] = f"{needed / 0.4:.1f}"
        row["AdamW and clip, ms"] = f"{optimizer_bytes(shape) / rate['copy_tb_s'] / 1e9:.1f}"
        updates.append(row)
    return [*table(rows), "", *table(updates)]


def best_of(rows: dict[str, list[dict]], stage: str, key: str, best: Callable, least: dict | None = None, **facts):
    """Of a stage's rows with these facts (and at least so much of others) the best value; None where none has one."""
    values = [
        row[key]
        for row in rows.get(stage, [])
        if key in row
        and all(row.get(name) == value for name, value in facts.items())
        and all(row.get(name, 0) >= value for name, value in (least or {}).items())
    ]
    return best(values) if values else None


def summary(found: dict[str, dict]) -> dict | None:
    """What `make plan` reckons with, by name as in roofline.rates; None for what was not measured, and for all if
    nothing was."""
    measured = {name: one for name, one in found.items() if not one["tiny"]}
    if not measured:
        return None
    rate, _ = rates(measured)
    rows = {name: [with_floor(row, rate) for row in one["rows"]] for name, one in measured.items()}
    rows["iteration"] = [with_gradient(row) for row in rows.get("iteration", []) if row["name"].endswith("paper")]
    facts = {p: best_of(rows, "facts", "tflop_s", max, precision=p) for p in PRECISIONS}
    graph = {"name": "graph", "precision": "bf16", "rule": "plain", "least": {"B": 64}}
    return {
        "device": ", ".join(sorted({one["device"] for one in measured.values()})),
        "copy_tb_s": best_of(rows, "facts", "tb_s", max),
        **facts,
        "decode_share": best_of(rows, "decode", "share", min, **graph),
        "update_share": best_of(rows, "update", "share", max, precision="bf16", least={"tokens": 3500}),
        "update_fp32_share": best_of(rows, "update", "share", max, name="eager", precision="fp32"),
        "readable_ms": best_of(rows, "decode", "median_ms", min, name="readable", B=64),
        "gradient_s": best_of(rows, "iteration", "gradient_s", min, name="PPO, paper", precision="bf16"),
    }


def with_gradient(row: dict) -> dict:
    """A row of the iteration at the paper's settings, with the seconds of one gradient step: recorded, where those of
    runs were, else as written."""
    _, epochs, minibatches = REAL.paper
    if "seconds" not in row:
        return row
    spent = row["seconds"]["update at fixed shapes" if row.get("recorded") else "update"]
    return {**row, "gradient_s": spent / (epochs * minibatches)}


def targets(found: dict[str, dict], rate: dict[str, float]) -> list[dict]:
    """The figures that were set, each with the best that was measured or "not measured"."""
    rows = {name: [with_floor(row, rate) for row in one["rows"]] for name, one in found.items()}
    pick = functools.partial(best_of, rows)
    first = next(iter(REAL.shapes))
    graph = {"name": "graph", "shape": first, "precision": "bf16", "rule": "plain"}
    paper = {what: pick("iteration", "fixed_s", min, name=what) for what in ("PPO, paper", "NLPO, paper")}
    slow = pick("decode", "median_ms", min, name="readable", B=64)
    fast = pick("decode", "median_ms", min, name="graph", shape=first, B=64, rule="plain")
    checks = [
        ("decode, 124M bf16, 256 episodes or more: share of the bandwidth limit", 0.5, 1,
         pick("decode", "share", max, **graph, least={"B": 256})),
        ("the same at 64", 0.35, 1, pick("decode", "share", max, **graph, B=64)),
        ("decode at 64, times the readable path, which is in fp32", 10, 1, slow / fast if slow and fast else None),
        ("update, bf16, compiled, from 3,500 tokens: share of the GEMM rate", 0.4, 1,
         pick("update", "share", max, name="compiled", precision="bf16", least={"tokens": 3500})),
        ("an iteration of PPO at the paper's settings, fixed shapes, s", 0.5, -1, paper["PPO, paper"]),
        ("the same of NLPO", 0.55, -1, paper["NLPO, paper"]),
        ("5,000 prompts evaluated, one decoding, s", 5, -1, pick("evaluate", "total_s", min)),
    ]  # fmt: skip
    lines = []
    for what, target, sign, value in checks:
        verdict = "not measured" if value is None else "met" if sign * (value - target) >= 0 else "**missed**"
        bound = f"{'at least' if sign > 0 else 'at most'} {target:g}"
        lines.append({"target": what, "bound": bound, "measured": "" if value is None else value, "": verdict})
    return [*lines, printed(found)]


def printed(found: dict[str, dict]) -> dict:
    """A target that is no time of a stage: what `make plan` reckons for the runs whose rows the paper prints."""
    line = {"target": "runs whose rows the paper prints, of all seeds, GPU-hours", "bound": "at most 2", "measured": ""}
    try:  # they read profiles, and need more than a GPU's machine may have
        from workbook.runs import checks
        from workbook.stages import plan, roofline
    except ImportError as error:
        return {**line, "": f"not computed: no {error.name} here"}
    known = roofline.rates_of(summary(found) or {}, REPORT.with_suffix(".json").name)
    params = checks.load(ROOT / "profiles" / "paper" / "params.yaml")
    conditions, hours = plan.printed_hours(params, known)
    rates = "rates measured here" if known.why.startswith("measured") else "rates that were not measured"
    runs, verdict = f"{conditions} conditions x {len(params.seeds)} seeds", "met" if hours <= 2 else "**missed**"
    how = "in bf16, decode steps recorded, gradient steps as measured"
    said = f"{verdict} as computed, not measured: {hours:.2f} for {runs} {how}, at {rates}"
    return {**line, "": said}


def markdown(found: dict[str, dict]) -> str:
    """The report; a stage without a file, or with one of ``--tiny``, is not measured and says so."""
    measured = {name: one for name, one in found.items() if not one["tiny"]}
    rate, known = rates(measured)
    devices = sorted({one["device"] for one in measured.values()})
    source = "measured here" if known else "an H200's, **not measured**: what stands below is computed"
    numbers = f"copy {rate['copy_tb_s']:.3g} TB/s, " + ", ".join(f"{p} {rate[p]:.3g} TFLOP/s" for p in PRECISIONS)
    text = ["# What the package does on one GPU", "", f"GPU: {', '.join(devices) or 'not measured'}."]
    text += ["**Stages of different GPUs are mixed here.**"] if len(devices) > 1 else []
    text += ["", "## Targets", "", *table(targets(measured, rate)), ""]
    text += ["## Roofline", "", f"Rates ({source}): {numbers}.", "", *roofline(rate), ""]
    for name in STAGES:
        about = measured[name]["about"] if name in measured else inspect.cleandoc(WORK[name].__doc__)
        text += [f"## {name}", "", about, ""]
        if name not in measured:
            tried = ": what lies there is of `--tiny`, a trial of the code on the CPU" if name in found else ""
            text += [f"not measured{tried}", ""]
            continue
        one = measured[name]
        rows = [with_floor(row, rate) for row in one["rows"]]
        for kind in dict.fromkeys(row["name"] for row in rows):  # a table each: they have other columns
            text += [*table([row for row in rows if row["name"] == kind]), ""]
        text += [f"{one['seconds']:.0f} s; nothing was begun that would have ended after {one['limit_s']:g} s."]
        text += [f"Left out, no time: {'; '.join(one['left_out'])}."] if one["left_out"] else []
        text += [""]
    return "\n".join(text)


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.gpu", description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--out", type=Path, default=REPORT.with_suffix(""), help="folder of the stages' files (reports/bench/gpu)")
    add("--stages", default=",".join(STAGES), help=f"any of {','.join(STAGES)}")
    add("--seconds", type=float, default=float("inf"), help=f"begin no stage ({LIMIT} s) that would end after these")
    add("--limit", type=float, default=LIMIT, help=f"seconds after which a stage begins no row ({LIMIT})")
    add("--precision", default=",".join(PRECISIONS), help="any of fp32,tf32,bf16, from the most exact to the fastest")
    add("--tiny", action="store_true", help="the same code on the CPU at tiny shapes")
    add(
        "--report",
        type=Path,
        nargs="?",
        const=REPORT,
        help="write the report (reports/bench/gpu.md, gpu.json); measure nothing",
    )
    options = parser.parse_args(given)
    for name, known in (("stages", STAGES), ("precision", PRECISIONS)):
        wanted = tuple(getattr(options, name).split(","))
        if unknown := [one for one in wanted if one not in known]:
            parser.error(f"--{name}: expected any of {', '.join(known)}, got {unknown[0]!r}")
        setattr(options, name, wanted)
    options.device = "cpu" if options.tiny else "cuda"
    return options


def main(given: list[str] | None = None) -> int:
    options = arguments(given)
    if options.report is None:
        return run(options)
    options.report.parent.mkdir(parents=True, exist_ok=True)
    found = read(options.out)
    options.report.write_text(markdown(found))
    if known := summary(found):
        options.report.with_suffix(".json").write_text(json.dumps(known, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
