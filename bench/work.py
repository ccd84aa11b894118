"""The work that every system of the benchmark does, and the small protocol by which the driver asks for one iteration.

Work per iteration: 64 episodes x 20 new tokens from a 5-token prompt (4 PAD + EOS), EOS blocked, a Python reward on
strings, then 5 epochs x 4 minibatches of PPO. fp32, one thread. Nothing here imports torch at the top: the driver reads
the constants too, and a large parent would be counted in its children's peak memory on some systems.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import sys
import time

EPISODES, NEW_TOKENS, PADDING, EPOCHS, MINIBATCHES = 64, 20, 4, 5, 4
TOKENS = EPISODES * NEW_TOKENS
KL_COEF, GAMMA, LAM, CLIP, VALUE_CLIP, LEARNING_RATE = 0.05, 1.0, 0.95, 0.2, 0.2, 1e-5
SHAPES = {
    "tiny": {"n_layer": 2, "n_embd": 128, "n_head": 4, "vocab_size": 1000, "n_positions": 512},
    "117m": {"n_layer": 12, "n_embd": 768, "n_head": 12, "vocab_size": 50257, "n_positions": 1024},
}
JOB = ("shape", "prompt", "epochs", "value", "core")  # what a worker is told


def asked(worker: str, about: str) -> dict:
    """The job of a worker, which its one argument is. Ends the process with one message where it is none."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {worker}", description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("job", help=f"JSON with {', '.join(JOB)}, as bench.run gives it")
    text = parser.parse_args().job
    try:
        job = json.loads(text)
    except ValueError as error:
        parser.error(f"argument job: expected JSON, found {text!r}: {error}")
    if not isinstance(job, dict) or not {*JOB} <= {*job} or job["shape"] not in [*SHAPES]:
        parser.error(f"argument job: expected {', '.join(JOB)}, with a shape of {', '.join(SHAPES)}; found {text}")
    return job


def build(shape: str, sequence_classifier: bool = False, seed: int = 0):
    """A GPT-2 of that shape with random weights, no dropout, fp32; EOS is the last id of the vocabulary."""
    import torch
    import transformers

    torch.manual_seed(seed)
    eos = SHAPES[shape]["vocab_size"] - 1
    config = transformers.GPT2Config(
        **SHAPES[shape], bos_token_id=eos, eos_token_id=eos, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0
    )
    if sequence_classifier:
        config.num_labels = 1
        return transformers.GPT2ForSequenceClassification(config)
    return transformers.GPT2LMHeadModel(config)


def tokenizer(shape: str):
    """One word per id ("n0", "n1", ...), EOS the last id, PAD one past the vocabulary: it is never generated."""
    import tokenizers
    import transformers

    eos = SHAPES[shape]["vocab_size"] - 1
    words = {f"n{i}": i for i in range(eos)} | {"<eos>": eos, "<pad>": eos + 1}
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="n0"))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="<eos>", pad_token="<pad>", padding_side="left"
    )


def increasing(responses: list[str]) -> list[float]:
    """Share of words whose number is larger than the one before it."""
    scores = []
    for response in responses:
        numbers = [int(word[1:]) for word in response.split()]
        rises = sum(b > a for a, b in itertools.pairwise(numbers))
        scores.append(rises / max(1, len(numbers) - 1))
    return scores


def pin(core: int) -> None:
    """This process on one core (where the system can pin) with one thread; call it before torch is imported."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core})
    import torch

    torch.set_num_threads(1)
    torch.set_num_interop_threads(1)


def peak_memory_mb() -> float:
    """Largest resident memory of this process so far, MB (10^6 bytes)."""
    try:
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) * 1024 / 1e6
    except (OSError, StopIteration):
        import resource

        unit = 1 if platform.system() == "Darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


class Meter:
    """Wall and CPU seconds of one iteration, split into spans by ``mark``, and what was counted on the way.

    Spans: ``rollout`` (sampling, reward, reference, values, advantages), ``update`` (the epochs, grows with their
    number), ``rest`` (what a system does once per iteration after them).
    """

    def start(self) -> None:
        self.facts: dict[str, float] = {}
        self.marks = {"rollout": self._now()}

    def mark(self, span: str) -> None:
        """``span`` begins now; later calls with the same name in one iteration change nothing."""
        self.marks.setdefault(span, self._now())

    def count(self, name: str, amount: float = 1) -> None:
        self.facts[name] = self.facts.get(name, 0) + amount

    def stop(self) -> dict:
        self.marks.setdefault("rest", self._now())
        ends = [*self.marks.values(), self._now()][1:]
        seconds = {
            span: {"wall": end[0] - began[0], "cpu": end[1] - began[1]}
            for (span, began), end in zip(self.marks.items(), ends)
        }
        return {"seconds": seconds, "peak_mb": peak_memory_mb(), "checks": self.facts}

    @staticmethod
    def _now() -> tuple[float, float]:
        return time.perf_counter(), time.process_time()


class Channel:
    """Requests in by stdin, one JSON reply per line out by stdout; whatever the libraries print goes to stderr."""

    def __init__(self) -> None:
        self.out = os.fdopen(os.dup(1), "w", buffering=1)
        os.dup2(2, 1)

    def reply(self, message: dict) -> None:
        self.out.write(json.dumps(message) + "\n")

    def wait(self) -> None:
        """Return when the next iteration is asked for; leave the process when the driver has had enough."""
        if sys.stdin.readline().strip() != "go":
            sys.exit(0)


def count_optimizer_steps(meter: Meter) -> None:
    """Count the steps of every optimizer in this process, and the parameters that one step changes."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    def hook(optimizer, args, kwargs) -> None:
        meter.count("optimizer_steps")
        meter.facts["trained_parameters"] = sum(p.numel() for group in optimizer.param_groups for p in group["params"])

    register_optimizer_step_post_hook(hook)


def count_passes(meter: Meter, name: str, trunk) -> None:
    """Count the rows, positions and forward passes that are trained through ``trunk`` (a network without its head)."""
    import torch

    def hook(module, args, kwargs) -> None:
        if torch.is_grad_enabled():
            ids = kwargs["input_ids"] if "input_ids" in kwargs else args[0]
            meter.count(f"{name}_rows_trained", ids.shape[0])
            meter.count(f"{name}_positions_trained", ids.numel())

    trunk.register_forward_pre_hook(hook, with_kwargs=True)


def describe(networks: list, policy) -> dict:
    """What a system has loaded: how many networks, of which precision and size, and this process's memory so far."""
    import torch

    return {
        "networks": len(networks),
        "precision": sorted({str(p.dtype).removeprefix("torch.") for net in networks for p in net.parameters()}),
        "policy_parameters": sum(p.numel() for p in policy.parameters()),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "peak_mb": peak_memory_mb(),
    }


def inspect_episodes(meter: Meter, responses, eos: int) -> None:
    """Record how many episodes and tokens the reward function was given, and whether any EOS got through."""
    meter.count("episodes", responses.shape[0])
    meter.count("tokens", responses.numel())
    meter.count("eos_tokens", int((responses == eos).sum()))
