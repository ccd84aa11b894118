"""Scoring: call a user's reward function, check what comes back, and let it change nothing else.

A reward function is any callable ``(prompts, responses, references, meta) -> scores``: lists of B strings, B strings,
B lists of strings and B dicts in; B numbers out (tensor, array or list), or ``(scores, parts)`` with a dict of named
[B] numbers. Nothing to inherit, nothing to register. One in TRL's manner, ``(prompts, completions, **kwargs)``, is
called by name. A token-level one is ``(prompts: Prompts, responses [B, T], mask [B, T]) -> [B, T]``, where column t may
depend on columns up to t only.
"""

from __future__ import annotations

import functools
import inspect
import random
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlnlp.rollout import decode
from rlnlp.types import Prompts, Rollout, stream, take

Reward = Callable[[list[str], list[str], list[list[str]], list[dict]], Any]
ARGUMENTS = ("prompts", "responses", "references", "meta")
TokenReward = Callable[[Prompts, Tensor, Tensor], Tensor]


class RewardError(ValueError):
    """A reward function that cannot be used; the message names the function, what it did and the example ids."""


def scorer(reward: Reward, tokenizer) -> Callable[[Rollout], tuple[Tensor, dict[str, Tensor]]]:
    """The ``score`` a learner calls: decode a rollout's responses and score them. Raises RewardError, at once, for a
    ``reward`` that cannot be called as one."""
    check_arguments(reward, f"reward {name_of(reward)}")

    def score(rollout: Rollout):
        scores, parts = evaluate_reward(reward, rollout.prompts, decode(rollout, tokenizer))
        return scores.to(rollout.responses.device), {k: v.to(rollout.responses.device) for k, v in parts.items()}

    return score


def name_of(fn: Callable) -> str:
    """What a reward function is called in messages and tables."""
    fn = getattr(fn, "func", fn)  # functools.partial
    return getattr(fn, "__name__", type(fn).__name__)


def evaluate_reward(fn: Reward, prompts: Prompts, responses: Sequence[str]) -> tuple[Tensor, dict[str, Tensor]]:
    """Score B responses with one call of ``fn`` and check what comes back.

    fn         a reward function (see above); it gets copies of the lists, so it cannot change the prompts
    responses  B strings, special tokens left out; may be empty strings
    Returns    (scores [B] float32, parts: name -> [B] float32), on the CPU, without gradient
    Raises     RewardError  ``fn`` raised (the message names the smallest batch that still fails), returned another
                            number of scores, something that is not numbers, or NaN or an infinity (example ids named)
               ValueError   if the number of responses is not B
    B = 0 returns an empty tensor without calling ``fn``; a constant ``fn`` gives a constant. What ``fn`` draws at
    random depends on the examples and responses alone (``contained``).
    RL4LMs calls most rewards one text at a time inside the environment, and hands on whatever they return.
    """
    if len(responses) != len(prompts):
        raise ValueError(f"responses: expected {len(prompts)}, one per prompt, got {len(responses)}")
    if not len(prompts):
        return torch.zeros(0), {}
    responses = list(responses)
    try:
        out = _call(fn, prompts, responses)
    except (Exception, SystemExit) as error:
        rows = _culprits(fn, prompts, responses, type(error))
        what = f"{type(error).__name__}: {error}{_where(fn, error)}"
        raise RewardError(f"reward {name_of(fn)}: raised {what}; {_examples(prompts, rows)}") from error
    parts = {}
    if isinstance(out, tuple) and len(out) == 2 and isinstance(out[1], dict):
        out, parts = out
    scores = _numbers(fn, out, prompts, "scores")
    return scores, {str(key): _numbers(fn, value, prompts, f"part {key!r}") for key, value in parts.items()}


def evaluate_token_reward(fn: TokenReward, prompts: Prompts, responses: Tensor, mask: Tensor) -> Tensor:
    """Token-level rewards [B, T] float32 of ``responses`` [B, T], zero outside ``mask`` [B, T].

    Raises RewardError if ``fn`` raises, returns another shape, or is not finite at a real token (example ids named).
    That column t depends on columns up to t only is the function's promise; ``env.TextEnv`` relies on it.
    """
    try:
        with contained(*prompts.example_ids, responses.tolist()):
            out = fn(prompts, responses, mask)
        out = torch.as_tensor(out).detach().to(mask.device, torch.float32)
    except (Exception, SystemExit) as error:
        raise RewardError(
            f"token reward {name_of(fn)}: raised {type(error).__name__}: {error}{_where(fn, error)}; "
            f"{_examples(prompts, range(len(prompts)))}"
        ) from error
    if out.shape != mask.shape:
        raise RewardError(f"token reward {name_of(fn)}: expected shape {tuple(mask.shape)}, got {tuple(out.shape)}")
    bad = (~torch.isfinite(out) & mask).any(1).nonzero().flatten().tolist()
    if bad:
        raise RewardError(f"token reward {name_of(fn)}: not finite; {_examples(prompts, bad)}")
    return out.masked_fill(~mask, 0.0)


def _call(fn: Reward, prompts: Prompts, responses: list[str]) -> Any:
    references, meta = [list(row) for row in prompts.references], [dict(row) for row in prompts.meta]
    taken = named_arguments(fn)
    with contained(*prompts.example_ids, *responses):
        if not taken:
            return fn(list(prompts.texts), list(responses), references, meta)
        columns = {name: [row[name] for row in meta] for name in meta[0] if all(name in row for row in meta)}
        columns |= {"prompts": list(prompts.texts), "completions": list(responses)}
        columns |= {"references": references, "meta": meta}
        return fn(**{name: column for name, column in columns.items() if name in taken or "**" in taken})


def check_arguments(fn: object, who: str) -> None:
    """Raise RewardError, beginning with ``who``, for what is no function of (prompts, responses, references, meta) and
    none in TRL's manner."""
    if not callable(fn):
        raise RewardError(f"{who} is {type(fn).__name__}, not a function")
    try:
        if not named_arguments(fn):  # one in TRL's manner is called by name, with what it takes
            inspect.signature(fn).bind(*ARGUMENTS)
    except TypeError as error:
        raise RewardError(
            f"{who}{inspect.signature(fn)} cannot be called with ({', '.join(ARGUMENTS)}): {error}; as in TRL, "
            "(prompts, completions, **kwargs) is another way to write it"
        ) from error
    except ValueError:
        pass  # a builtin without a signature: the first call decides


def named_arguments(fn: Callable) -> set[str]:
    """Names that a reward function in TRL's manner takes, "**" among them where it takes any; none for one in ours.

    It is in TRL's manner if it has an argument ``completions``: ``(prompts, completions, **kwargs)``. It is then called
    by name, with ``references``, ``meta`` and what every ``meta`` knows as further columns.
    """
    try:
        arguments = inspect.signature(fn).parameters
    except ValueError:  # a builtin without a signature
        return set()
    if "completions" not in arguments:
        return set()
    return {"**" if found.kind is found.VAR_KEYWORD else name for name, found in arguments.items()}


def callable_by_trl(fn: Reward) -> Reward:
    """``fn``, which takes (prompts, responses, ...), and the same called by name as TRL does it: ``completions`` are
    the responses, other columns are ignored, and a list of numbers is returned."""
    known = set(inspect.signature(fn).parameters)

    @functools.wraps(fn)
    def reward(*args, **named):
        if "completions" not in named:
            return fn(*args, **named)
        responses = named.pop("completions")
        scores = fn(*args, responses=responses, **{name: named[name] for name in named if name in known})
        return torch.as_tensor(scores).tolist()

    return reward


@contextmanager
def contained(*names: object) -> Iterator[None]:
    """Whatever is called within it, torch's threads, default type and device, gradients and the random numbers of
    torch (the CPU's), numpy and Python are as before afterwards: a reward function cannot change what the policy draws
    or learns.

    names: of the stream that random numbers drawn within are from its beginning. A reward's is of what it scores: the
    same texts get the same numbers whatever was drawn before, so that a run which was stopped goes on as it would have.
    """
    threads, dtype, device = torch.get_num_threads(), torch.get_default_dtype(), torch.get_default_device()
    gradients, random_state = torch.is_grad_enabled(), _random_state()
    seed = stream("reward", *(str(name).encode(errors="replace") for name in names))  # half a pair of UTF-16 too
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.default_generator.manual_seed(seed)  # the CPU's, whose state is put back
    try:
        yield
    finally:
        _set_random_state(random_state)
        torch.set_grad_enabled(gradients)
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
        if torch.get_default_dtype() != dtype:
            torch.set_default_dtype(dtype)
        if torch.get_default_device() != device:
            torch.set_default_device(device)


def _random_state() -> tuple:
    return random.getstate(), np.random.get_state(), torch.get_rng_state()


def _set_random_state(state: tuple) -> None:
    random.setstate(state[0])
    np.random.set_state(state[1])
    torch.set_rng_state(state[2])


def _culprits(fn: Reward, prompts: Prompts, responses: list[str], kind: type[BaseException]) -> list[int]:
    """Halve the batch while one half alone raises the same kind of error: about 2 log2(B) calls."""

    def fails(rows: list[int]) -> bool:
        try:
            _call(fn, take(prompts, torch.tensor(rows)), [responses[i] for i in rows])
        except (Exception, SystemExit) as error:  # a user's function may raise anything
            return isinstance(error, kind)
        return False

    rows = list(range(len(prompts)))
    while len(rows) > 1:
        middle = len(rows) // 2
        half = next((part for part in (rows[:middle], rows[middle:]) if fails(part)), None)
        if half is None:
            break
        rows = half
    return rows


def _where(fn: Callable, error: BaseException) -> str:
    """' (file.py, line n)': the last place in the function's own file that the traceback passed through."""
    code, trace, line = getattr(inspect.unwrap(fn), "__code__", None), error.__traceback__, None
    if code is None:
        return ""
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == code.co_filename:
            line = trace.tb_lineno
        trace = trace.tb_next
    return "" if line is None else f" ({Path(code.co_filename).name}, line {line})"


def _examples(prompts: Prompts, rows: Sequence[int]) -> str:
    names = [str(prompts.example_ids[i]) for i in rows]
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return f"example{'s' if len(names) > 1 else ''} {', '.join(names[:8])}{more}"


def _tensor(values: Any) -> Tensor:
    """A tensor of a tensor, an array or a list of numbers, of several kinds too; raises for all else."""
    if isinstance(values, (str, bytes, Mapping, Set)):  # whose digits or keys could be read as numbers
        raise TypeError
    try:
        return torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        values = list(values)
        if any(isinstance(value, (str, bytes)) for value in values):
            raise
        return torch.tensor([float(value) for value in values])


def _numbers(fn: Callable, values: Any, prompts: Prompts, what: str) -> Tensor:
    B, reward = len(prompts), f"reward {name_of(fn)}: {what}"
    try:
        numbers = _tensor(values)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        shown = repr(values)
        shown = shown if len(shown) <= 80 else shown[:77] + "..."
        raise RewardError(f"{reward}: expected {B} numbers, got {type(values).__name__} {shown}") from None
    if numbers.shape != (B,):
        got = f"{len(numbers)} values" if numbers.dim() == 1 else f"shape {tuple(numbers.shape)}"
        raise RewardError(f"{reward}: expected {B} numbers, one per response, got {got}")
    if numbers.is_complex():
        raise RewardError(f"{reward}: expected real numbers, got {numbers.dtype}")
    numbers = numbers.detach().to("cpu", torch.float32, copy=True)
    bad = (~torch.isfinite(numbers)).nonzero().flatten().tolist()
    if bad:
        raise RewardError(f"{reward}: not finite ({numbers[bad[0]].item()}); {_examples(prompts, bad)}")
    return numbers
