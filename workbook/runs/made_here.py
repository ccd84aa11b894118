"""A base model that a profile brings and that is made beside it, by a command that takes hours: has it been made?"""

from __future__ import annotations

from rlnlp.settings import ConfigError
from workbook.runs.params import Params
from workbook.runs.reading import read

PLAN = "base_model.yaml"  # beside params.yaml; its `out` is the model's folder


def check(params: Params) -> None:
    """Raises ConfigError with the command that makes the model, where it is not there yet."""
    plan, model = params.folder / PLAN, params.bring.model
    ours = bool(model) and plan.is_file() and read(plan)[0].get("out") == model
    if ours and not (params.folder / model / "config.json").is_file():
        command = f"python -m workbook.stages.base_model train {plan}"
        raise ConfigError(f"{params.path}: bring.model: {model!r} has not been made yet; `{command}` makes it")
