"""A reward that a user names: a function in a file, or a folder with a classifier. Loaded, and tried before it is
used."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from rlnlp.rewards import classifier_reward
from rlnlp.scoring import Reward, RewardError, check_arguments, contained, evaluate_reward
from rlnlp.settings import nearest
from rlnlp.types import Prompts, take


def load_reward(source: str, **classifier) -> Reward:
    """The reward ``"path/to/file.py:function"``, or of the classifier in a folder or under a hub id.

    classifier: keyword arguments of ``classifier_reward``; a function gets none. Raises RewardError with the reason.
    """
    return load_function(source) if ".py:" in source else classifier_reward(source, **classifier)


def try_reward(source: str, prompts: Prompts | None = None, **classifier) -> None:
    """Load a reward and call it on two examples, as ``load_reward`` and ``check_function`` do.

    Raises RewardError, one message that says what is wrong: no such file, function, folder or model, a file that does
    not import, arguments that do not fit, an exception, or something else than one finite number for each response.
    """
    check_function(load_reward(source, **classifier), prompts)


def _others(name: str, names: Sequence[str]) -> str:
    return nearest(name, names, 0.5) or (f"; there is {', '.join(sorted(names)[:8])}" if names else "")


def load_function(spec: str) -> Reward:
    """The reward function ``"path/to/file.py:name"``.

    The file is run once, as a module of its own; it may import files beside it. ``name`` must accept four positional
    arguments (prompts, responses, references, meta), or have an argument ``completions`` as TRL's do.
    Raises RewardError: no colon, no such file, the file does not import, no such name (the nearest one is given), not
    callable, or a signature that cannot take the four arguments.
    """
    file, colon, name = str(spec).rpartition(":")
    if not colon or not file or not name:
        raise RewardError(f'reward {spec!r}: expected "path/to/file.py:function"')
    path = Path(file).expanduser()
    if not path.is_file():
        near = nearest(path.name, [p.name for p in path.parent.glob("*.py")], 0.5)
        raise RewardError(f"reward {spec!r}: no such file: {path}{near}")
    path = path.resolve()
    module = _run_file(path, spec)
    if not hasattr(module, name):
        own = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        here = [key for key in own if getattr(vars(module)[key], "__module__", None) == module.__name__]
        raise RewardError(f"reward {spec!r}: {path.name} has no {name!r}{_others(name, here or own)}")
    fn = getattr(module, name)
    check_arguments(fn, f"reward {spec!r}: {name}")
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
        with contained():
            module_spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise RewardError(f"reward {spec!r}: importing {path} raised {type(error).__name__}: {error}") from error
    return module


def check_function(fn: Reward, prompts: Prompts | None = None) -> None:
    """Call ``fn`` on two examples and on one, before training starts; the scores are not looked at.

    prompts  where to take the examples from; None = two made-up ones with a reference and ``meta`` {"label": 0 or 1}
    The second response is empty, as it is whenever a policy begins with EOS.
    Raises RewardError as ``evaluate_reward``.
    """
    if prompts is None:
        prompts = Prompts(
            torch.ones(2, 1, dtype=torch.long),
            torch.ones(2, 1, dtype=torch.bool),
            ["The film", "An evening with"],
            [["was a delight ."], ["nothing to see ."]],
            ["probe-1", "probe-2"],
            [{"label": 1}, {"label": 0}],
        )
    prompts = take(prompts, torch.arange(min(2, len(prompts))))
    responses = [(references or ["was a delight ."])[0] for references in prompts.references][:1] + [""]
    responses = responses[: len(prompts)]
    try:
        evaluate_reward(fn, prompts, responses)
        evaluate_reward(fn, take(prompts, torch.arange(1)), responses[:1])
    except RewardError as error:
        raise RewardError(f"{error} (a trial call before training)") from error
