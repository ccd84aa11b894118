"""Rewards: from a response's text to one score, from scores and KL to one reward per token.

A reward function is any callable ``(prompts, responses, references, meta) -> scores``: lists of B strings, B strings,
B lists of strings and B dicts in; B numbers out (tensor, array or list), or ``(scores, parts)`` with a dict of named
[B] numbers. Nothing to inherit, nothing to register. A token-level one is ``(prompts: Prompts, responses [B, T],
mask [B, T]) -> [B, T]``, where column t may depend on columns up to t only.
"""

# Absolute imports, so that this file itself can be named as "rlnlp/rewards.py:dates" in bring.reward.
from __future__ import annotations

import copy
import difflib
import hashlib
import importlib.util
import inspect
import itertools
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from rlnlp.types import Prompts, expect, take

Reward = Callable[[list[str], list[str], list[list[str]], list[dict]], Any]
TokenReward = Callable[[Prompts, Tensor, Tensor], Tensor]
ARGUMENTS = ("prompts", "responses", "references", "meta")


class RewardError(ValueError):
    """A reward function that cannot be used; the message names the function, what it did and the example ids."""


# ---------------------------------------------------------------------------------------------- calling and checking
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
    B = 0 returns an empty tensor without calling ``fn``; a constant ``fn`` gives a constant.
    RL4LMs calls most rewards one text at a time inside the environment, and hands on whatever they return.
    """
    if len(responses) != len(prompts):
        raise ValueError(f"responses: expected {len(prompts)}, one per prompt, got {len(responses)}")
    if not len(prompts):
        return torch.zeros(0), {}
    responses = list(responses)
    try:
        out = _call(fn, prompts, responses)
    except Exception as error:
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
        out = torch.as_tensor(fn(prompts, responses, mask)).detach().to(mask.device, torch.float32)
    except Exception as error:
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
    return fn(list(prompts.texts), list(responses), references, meta)


def _culprits(fn: Reward, prompts: Prompts, responses: list[str], kind: type[Exception]) -> list[int]:
    """Halve the batch while one half alone raises the same kind of error: about 2 log2(B) calls."""

    def fails(rows: list[int]) -> bool:
        try:
            _call(fn, take(prompts, torch.tensor(rows)), [responses[i] for i in rows])
        except Exception as error:  # noqa: BLE001 (a user's function may raise anything)
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


def _numbers(fn: Callable, values: Any, prompts: Prompts, what: str) -> Tensor:
    B, reward = len(prompts), f"reward {name_of(fn)}: {what}"
    unusable = (TypeError, ValueError, RuntimeError, OverflowError)
    try:
        numbers = torch.as_tensor(values)
    except unusable:
        try:  # a list of numbers of several kinds
            numbers = torch.tensor([float(value) for value in values])
        except unusable:
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


def load_function(spec: str) -> Reward:
    """The reward function ``"path/to/file.py:name"``.

    The file is run once, as a module of its own; it may import files beside it. ``name`` must accept four positional
    arguments (prompts, responses, references, meta).
    Raises RewardError: no colon, no such file, the file does not import, no such name (the nearest one is given), not
    callable, or a signature that cannot take the four arguments.
    """
    file, colon, name = str(spec).rpartition(":")
    if not colon or not file or not name:
        raise RewardError(f'reward {spec!r}: expected "path/to/file.py:function"')
    path = Path(file).expanduser()
    if not path.is_file():
        near = _nearest(path.name, [p.name for p in path.parent.glob("*.py")])
        raise RewardError(f"reward {spec!r}: no such file: {path}{near}")
    path = path.resolve()
    module = _run_file(path, spec)
    if not hasattr(module, name):
        own = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        here = [key for key in own if getattr(vars(module)[key], "__module__", None) == module.__name__]
        raise RewardError(f"reward {spec!r}: {path.name} has no {name!r}{_nearest(name, here or own)}")
    fn = getattr(module, name)
    if not callable(fn):
        raise RewardError(f"reward {spec!r}: {name} is {type(fn).__name__}, not a function")
    try:
        inspect.signature(fn).bind(*ARGUMENTS)
    except TypeError as error:
        raise RewardError(
            f"reward {spec!r}: {name}{inspect.signature(fn)} cannot be called with ({', '.join(ARGUMENTS)}): {error}"
        ) from error
    except ValueError:
        pass  # a builtin without a signature: the probe call decides
    return fn


def _run_file(path: Path, spec: str):
    name = f"rlnlp_brought_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    module_spec = importlib.util.spec_from_file_location(name, path)
    if module_spec is None:
        raise RewardError(f"reward {spec!r}: {path.name} is not a Python file")
    module = importlib.util.module_from_spec(module_spec)
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))  # last, so that it shadows nothing
    sys.modules[name] = module
    try:
        module_spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise RewardError(f"reward {spec!r}: importing {path} raised {type(error).__name__}: {error}") from error
    return module


def _nearest(name: str, names: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; there is {', '.join(sorted(names)[:8])}" if names else ""


def check_function(fn: Reward, prompts: Prompts | None = None) -> None:
    """Call ``fn`` on two examples and on one, before training starts; the scores are not looked at.

    prompts  where to take the examples from; None = two made-up ones with a reference and ``meta`` {"label": 0 or 1}
    The second response is empty, as it is whenever a policy begins with EOS.
    Raises RewardError as ``evaluate_reward``.
    """
    if prompts is None:
        prompts = Prompts(
            torch.ones(2, 1, dtype=torch.long), torch.ones(2, 1, dtype=torch.bool), ["The film", "An evening with"],
            [["was a delight ."], ["nothing to see ."]], ["probe-1", "probe-2"], [{"label": 1}, {"label": 0}],
        )
    prompts = take(prompts, torch.arange(min(2, len(prompts))))
    responses = [(references or ["was a delight ."])[0] for references in prompts.references][:1] + [""]
    responses = responses[: len(prompts)]
    try:
        evaluate_reward(fn, prompts, responses)
        evaluate_reward(fn, take(prompts, torch.arange(1)), responses[:1])
    except RewardError as error:
        raise RewardError(f"{error} (a trial call before training)") from error


# ------------------------------------------------------------------------------------------------- reward functions
def classifier_reward(
    model, tokenizer=None, label: int | str = 1, include_prompt: bool = True, batch_size: int = 64,
    max_tokens: int | None = None, device: str | torch.device | None = None, separator: str | None = None,
) -> Reward:
    """Probability that a sequence classifier gives to one label; RL4LMs' ``learned_reward``.

        score = softmax(classifier(prompt + separator + response))[label]

    model           a ``save_pretrained`` folder or hub id, or a model already loaded (then ``tokenizer`` is needed)
    label           column of the softmax, or its name in the model's ``label2id``
    include_prompt  the original's choice; False scores the response alone
    batch_size      texts per forward pass; texts are sorted by length first, so that little is padding
    max_tokens      longer texts lose their beginning (truncation side left); None = what model and tokenizer allow
    device          where the model is moved; None = where it is
    separator       between prompt and response where neither has white space at the seam; None = nothing for a
                    tokenizer to which a leading space matters (byte-level BPE), else one space (word level, WordPiece)
    Returns         a reward function; its scores are [B] float32 in (0, 1), evaluation mode, no gradient
    Raises          RewardError  cannot be loaded, one output only, unknown label, more tokens than positions
    An empty text is scored as one end-of-text token. A saturated classifier (all scores near 0 or 1) is a flat reward.
    """
    if isinstance(model, (str, Path)):
        name = f"classifier_reward({Path(model).name})"
        model, tokenizer = _load_classifier(model, tokenizer)
    else:
        name = f"classifier_reward({type(model).__name__})"
        if tokenizer is None:
            raise RewardError(f"{name}: a loaded model needs its tokenizer")
    model = model.to(device).eval() if device is not None else model.eval()
    config = model.config
    index = _label_index(name, config, label)
    tokenizer = copy.deepcopy(tokenizer)  # the caller's keeps its own sides
    tokenizer.truncation_side = "left"
    special = [tokenizer.eos_token_id, tokenizer.sep_token_id, tokenizer.cls_token_id, tokenizer.pad_token_id]
    end = next((token for token in special if token is not None), None)
    if end is None:
        raise RewardError(f"{name}: the tokenizer has no eos, sep, cls or pad token, so that nothing can be padded")
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else end
    if getattr(config, "pad_token_id", None) is None:
        config.pad_token_id = pad  # GPT-2-shaped classifiers read the last token that is not this one
    positions = getattr(config, "max_position_embeddings", None)  # RoBERTa: 514, of which its tokenizer allows 512
    limit = min(size for size in (positions, tokenizer.model_max_length, 10**6) if size)
    longest = limit if max_tokens is None else max_tokens
    if not 1 <= longest <= limit:
        raise RewardError(f"{name}: max_tokens: expected 1 to {limit}, what model and tokenizer allow, got {longest}")
    if separator is None:
        bare, spaced = (tokenizer(text, add_special_tokens=False)["input_ids"] for text in ("a", " a"))
        separator = " " if bare == spaced else ""

    @torch.no_grad()
    def reward(prompts, responses, references=None, meta=None) -> Tensor:
        model.eval()
        texts = [_join(p, r, separator) for p, r in zip(prompts, responses)] if include_prompt else list(responses)
        rows = [ids or [end] for ids in tokenizer(texts, truncation=True, max_length=longest)["input_ids"]]
        order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
        scores = torch.zeros(len(rows))
        for start in range(0, len(order), batch_size):
            chunk = order[start : start + batch_size]
            width = len(rows[chunk[-1]])
            ids = torch.tensor([rows[i] + [pad] * (width - len(rows[i])) for i in chunk], device=model.device)
            mask = torch.tensor([[1] * len(rows[i]) + [0] * (width - len(rows[i])) for i in chunk], device=model.device)
            logits = model(input_ids=ids, attention_mask=mask).logits
            scores[chunk] = logits.float().softmax(-1)[:, index].cpu()
        return scores

    reward.__name__ = name
    return reward


def _load_classifier(folder: str | Path, tokenizer):
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    try:
        model, loading = AutoModelForSequenceClassification.from_pretrained(
            folder, dtype=torch.float32, output_loading_info=True
        )
        missing = sorted(loading["missing_keys"])
        if missing:
            raise ValueError(f"no trained weights for {', '.join(missing[:4])}: not a sequence classifier?")
        return model, tokenizer or AutoTokenizer.from_pretrained(folder)
    except Exception as error:
        raise RewardError(f"classifier_reward({folder}): cannot be loaded: {type(error).__name__}: {error}") from error


def _label_index(name: str, config, label: int | str) -> int:
    if config.num_labels < 2:
        raise RewardError(f"{name}: the model has {config.num_labels} output; a softmax needs two labels or more")
    if isinstance(label, str):
        if label not in config.label2id:
            names = list(config.label2id)
            raise RewardError(f"{name}: no label {label!r} among {', '.join(names[:8])}{_nearest(label, names)}")
        return int(config.label2id[label])
    if not 0 <= label < config.num_labels:
        raise RewardError(f"{name}: label: expected 0 to {config.num_labels - 1}, got {label}")
    return label


def _join(prompt: str, response: str, separator: str) -> str:
    seam = not prompt or not response or prompt[-1].isspace() or response[0].isspace()
    return prompt + response if seam else prompt + separator + response


def increasing_numbers(prompts, responses, references=None, meta=None, min_tokens: int = 20) -> list[float]:
    """RL4LMs' toy task: how much of the text is a strictly increasing run of numbers.

        score = (length of the strictly increasing beginning of the number tokens) / max(tokens, min_tokens / 2)

    Tokens are split at white space; a number is what Python's ``float`` reads ("nan" and "inf" too, "1," not).
    Returns B floats in [0, 1]. "" gives 0; min_tokens / 2 numbers in order already give 1. Values as in the original.
    """
    return [_increasing(text.split(), min_tokens) for text in responses]


def _increasing(tokens: list[str], min_tokens: int) -> float:
    numbers = _numbers_in(tokens)
    later = (i for i, (a, b) in enumerate(itertools.pairwise(numbers), 1) if not b > a)
    length = next(later, len(numbers))
    return length / max(len(tokens), min_tokens / 2, 1)


def ascending_pairs(prompts, responses, references=None, meta=None, length: int = 20) -> list[float]:
    """Share of neighbouring numbers of which the second is larger: the numbers task as the report on samplers words it.

        score = (pairs of neighbouring numbers that ascend) / (max(numbers, length) - 1)

    Numbers as in ``increasing_numbers``; what is none is passed over. length: numbers of a whole text, >= 2, so that a
    short text cannot score high. Returns B floats in [0, 1]. Ascending throughout gives 1, equal or falling pairs give 0,
    numbers without order about 0.5. Unlike ``increasing_numbers`` one violation costs one pair, not the rest of the text.
    """
    if length < 2:
        raise ValueError(f"length: expected >= 2, the numbers of one pair, got {length}")
    return [_ascending(_numbers_in(text.split()), length) for text in responses]


def _ascending(numbers: list[float], length: int) -> float:
    return sum(b > a for a, b in itertools.pairwise(numbers)) / (max(len(numbers), length) - 1)


def _numbers_in(tokens: list[str]) -> list[float]:
    found = []
    for token in tokens:
        try:
            found.append(float(token))
        except ValueError:
            continue
    return found


def dates(prompts, responses, references=None, meta=None) -> list[float]:
    """RL4LMs' ``sentences_with_dates``: 1 if the text contains four digits, two and two, joined by hyphens; else 0.

    Returns B floats. Not a calendar: 9999-99-99 is one, and so are digits inside a longer string; 2020-01-2 is none.
    """
    return [float(bool(re.search(r"\d{4}-\d{2}-\d{2}", text))) for text in responses]


def repeated_ngrams(n: int = 3, penalty: float = 1.0) -> TokenReward:
    """A token-level reward: -``penalty`` at each token that completes an n-gram of tokens this response already had.

    [B, T] float32, zero elsewhere. A response of fewer than n + 1 tokens, or of no token twice, gets 0 everywhere.
    Raises ValueError if n < 1.
    """
    if n < 1:
        raise ValueError(f"n: expected >= 1, got {n}")

    def repeats(prompts: Prompts, responses: Tensor, mask: Tensor) -> Tensor:
        out = torch.zeros(mask.shape)
        for row, (tokens, length) in enumerate(zip(responses.tolist(), mask.sum(1).tolist())):
            seen = set()
            for t in range(n - 1, length):
                gram = tuple(tokens[t - n + 1 : t + 1])
                out[row, t] = -penalty if gram in seen else 0.0
                seen.add(gram)
        return out

    repeats.__name__ = f"repeated_ngrams({n})"
    return repeats


def increments(reward: Reward, tokenizer) -> TokenReward:
    """A reward of whole texts, paid token by token: at each token what the text so far has gained by it.

        r_t = f(text of tokens 0..t) - f(text of tokens 0..t-1),   f(nothing) = 0

    tokenizer: decodes the tokens so far, special tokens left out. A row sums to f of the response (in float32: to about
    1e-7), so both payments mean the same task; only where credit goes differs. A token that lowers f is paid a negative
    reward, one that f does not notice gets 0. Costs a call of ``reward`` on one text for each token.
    Raises RewardError as ``evaluate_reward``.
    """

    def paid(prompts: Prompts, responses: Tensor, mask: Tensor) -> Tensor:
        real = mask.cpu()
        rows, columns = real.nonzero(as_tuple=True)
        tokens = responses.tolist()
        texts = [tokens[row][: column + 1] for row, column in zip(rows.tolist(), columns.tolist())]
        so_far, _ = evaluate_reward(reward, take(prompts, rows), tokenizer.batch_decode(texts, skip_special_tokens=True))
        running = torch.zeros(real.shape, dtype=torch.float64)
        running[rows, columns] = so_far.double()
        gained = torch.diff(running, dim=1, prepend=running.new_zeros(len(real), 1))
        return gained.masked_fill(~real, 0.0)

    paid.__name__ = f"increments({name_of(reward)})"
    return paid


# ------------------------------------------------------------------------------------------------------ KL, rewards
def kl_estimate(*, logprobs: Tensor, ref_logprobs: Tensor, kind: Literal["k1", "k2", "k3"] = "k1") -> Tensor:
    """Estimate KL(policy || reference) at each token from the one token sampled; Schulman 2020, "Approximating KL".

        l = log pi(a|s) - log pi_ref(a|s);   k1 = l;   k2 = l^2 / 2;   k3 = exp(-l) - 1 + l

    logprobs      [B, T] float   nats, of sampled tokens under the bare policy (no temperature, no mask)
    ref_logprobs  [B, T] float   nats, of the same tokens under the reference
    Returns       [B, T] float   nats; k1 may be negative, k2 and k3 are not; zero where both are zero (padding)
    Raises        ValueError     shapes differ, not finite, or an unknown kind
    Tokens must come from the policy: k1 and k3 are then unbiased, k2 is not. Sampled under a mask or a temperature,
    none is. Equal models give 0; for close models all three have nearly the same mean. k3 overflows float32 at l < -88.
    RL4LMs and TRL penalise k1. Keyword only: swapped arguments change the sign and nothing else would tell.
    """
    expect(logprobs=(logprobs, tuple(ref_logprobs.shape)), ref_logprobs=(ref_logprobs, tuple(logprobs.shape)))
    log_ratio = logprobs - ref_logprobs
    if kind == "k1":
        return log_ratio
    if kind == "k2":
        return log_ratio.square() / 2
    if kind == "k3":
        return torch.expm1(-log_ratio) + log_ratio
    raise ValueError(f"kind: expected k1, k2 or k3, got {kind!r}")


class FixedKL:
    """A KL coefficient that stays: ``coef`` in reward units per nat, >= 0; 0 = no penalty."""

    def __init__(self, coef: float):
        if not 0 <= coef < float("inf"):
            raise ValueError(f"kl_coef: expected >= 0 and finite, got {coef}")
        self.coef = float(coef)

    def update(self, kl: float, episodes: int | None = None) -> float:
        """The coefficient, unchanged. Raises ValueError if ``kl`` is not finite, as ``AdaptiveKL`` does."""
        _check_kl(kl)
        return self.coef

    def state(self) -> dict[str, float]:
        """All that a resume needs, as plain numbers."""
        return {"coef": self.coef}

    def restore(self, state: dict[str, float]) -> None:
        """Take over what ``state`` returned, bit for bit."""
        self.coef = float(state["coef"])


class AdaptiveKL(FixedKL):
    """A KL coefficient that steers the KL to a target; Ziegler et al. 2019 (arXiv:1909.08593), section 2.2.

        beta <- beta (1 + gain clip((KL - target) / target, -clip, clip)),   once per update

    coef     start value, reward units per nat, > 0 (a product never leaves 0)
    target   in the unit that ``update`` is told, > 0. The learners pass the mean over tokens: nats per token.
             (Ziegler's KL is per episode: to use his targets, divide them by the response length.)
    gain     relative step, the same at every update, however many episodes; RL4LMs' code 0.1, its paper's text 0.2
    clip     bound on the relative error; 0.2 in both
    horizon  instead of ``gain``: the form of Ziegler's code, gain = episodes of the update / horizon; there 10,000
    Raises   ValueError for a value out of range, or gain x clip >= 1 (beta would turn negative)
    KL far above the target multiplies beta by 1 + gain clip (1.02), far below by 1 - gain clip (0.98): at most a factor
    7.2 up or 7.5 down in 100 updates. KL = target leaves beta alone. RL4LMs ships targets of 1 to 3 nats per token,
    seldom reached: there beta only decays.
    """

    def __init__(
        self, coef: float, target: float, gain: float | None = None, clip: float = 0.2, horizon: float | None = None
    ):
        super().__init__(coef)
        if coef == 0:
            raise ValueError("kl_coef: expected > 0 with a KL target (the coefficient is only ever multiplied), got 0")
        if gain is not None and horizon is not None:
            raise ValueError("kl: give gain or horizon, not both")
        self.target, self.clip, self.horizon = target, clip, horizon
        self.gain = (0.1 if gain is None else gain) if horizon is None else None
        for name in ("target", "clip", "gain", "horizon"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise ValueError(f"kl_{name}: expected > 0 and finite, got {value}")
        if self.gain is not None:
            self._check_step(self.gain)

    def update(self, kl: float, episodes: int | None = None) -> float:
        """Adapt to ``kl``, the mean KL of the update's rollout in the target's unit, and return the new coefficient.

        episodes: how many the rollout had; needed with ``horizon``, else ignored. Raises ValueError if ``kl`` is not
        finite or ``episodes`` is missing; the coefficient is then as it was.
        """
        _check_kl(kl)
        gain = self.gain
        if gain is None:
            if not episodes or episodes < 0:
                raise ValueError(f"kl: a horizon needs the number of episodes, got {episodes}")
            gain = episodes / self.horizon
            self._check_step(gain)
        error = min(max((kl - self.target) / self.target, -self.clip), self.clip)
        self.coef *= 1 + gain * error
        return self.coef

    def _check_step(self, gain: float) -> None:
        if gain * self.clip >= 1:
            raise ValueError(f"kl: gain x clip: expected < 1, got {gain} x {self.clip}: beta would turn negative")


def _check_kl(kl: float) -> None:
    if not float("-inf") < kl < float("inf"):
        raise ValueError(f"kl: expected a finite number, got {kl}")


def split_score(scores: Tensor, mask: Tensor) -> tuple[Tensor, Tensor | None]:
    """A score as one number per response, and, where it is paid token by token, as one number per token.

    scores   [B] or [B, T] float  reward units; what is outside ``mask`` is not paid
    mask     [B, T] bool          real tokens
    Returns  (scores [B], None) of a score paid at the end, which comes back as it was;
             (sum over each row's real tokens [B], token scores [B, T], zero outside mask) of the other kind
    Raises   ValueError           [B, T] of another shape than the mask, or not finite at a real token
    """
    if scores.dim() == 1:
        return scores, None
    if scores.shape != mask.shape:
        raise ValueError(f"scores: expected shape {tuple(mask.shape[:1])} or {tuple(mask.shape)}, got {tuple(scores.shape)}")
    paid = scores.masked_fill(~mask, 0.0)
    expect(scores=(paid, tuple(mask.shape)))
    return paid.sum(1), paid


def token_rewards(
    scores: Tensor, kl: Tensor, mask: Tensor, kl_coef: float, token_scores: Tensor | None = None
) -> Tensor:
    """One reward per token: the score at the end, minus the KL penalty at each token; Ziegler et al. 2019, eq. 2.

        r_t = [t is the last real token] score - kl_coef kl_t + token_score_t

    scores        [B] float     reward units, paid at EOS or at the cut at T alike
    kl            [B, T] float  nats, from ``kl_estimate``
    mask          [B, T] bool   real tokens, True cells first
    kl_coef       float         reward units per nat, >= 0
    token_scores  [B, T] float  reward units, optional
    Returns       [B, T] float  zero outside mask; a row sums to score - kl_coef sum(kl) + sum(token_scores)
    Raises        ValueError    shapes differ, not finite, mask not right padded, or a response without a token
    kl_coef = 0 leaves the score alone at the end; score = 0 leaves the penalty. RL4LMs pays nothing where generation
    stopped short of the episode length without EOS; here every response is paid.
    """
    B, T = mask.shape
    expect(scores=(scores, (B,)), kl=(kl, (B, T)))
    if mask.dtype != torch.bool:
        raise ValueError(f"mask: expected bool, got {mask.dtype}")
    if not 0 <= kl_coef < float("inf"):
        raise ValueError(f"kl_coef: expected >= 0 and finite, got {kl_coef}")
    lengths = mask.sum(1)
    if not (lengths > 0).all():
        raise ValueError(f"mask: row {int((lengths == 0).nonzero()[0])} has no real token: no place to pay its score")
    if (mask[:, 1:] & ~mask[:, :-1]).any():
        raise ValueError("mask: responses must be right padded (True cells first)")
    rewards = -kl_coef * kl
    if token_scores is not None:
        expect(token_scores=(token_scores, (B, T)))
        rewards = rewards + token_scores
    rewards = rewards.masked_fill(~mask, 0.0)
    return rewards.scatter_add(1, (lengths - 1).unsqueeze(1), scores.to(rewards.dtype).unsqueeze(1))
