"""What the metrics of responses alone share."""

from __future__ import annotations

from collections.abc import Callable

import datasets
import evaluate


class Metric(evaluate.Metric):
    """A function of a list of texts as an ``evaluate.Metric``; ``function`` is all that a subclass says.

    ``compute(predictions=[...])`` gives {name of the function: value}, or the dict that the function returns.
    """

    function: Callable

    def __init__(self, *args, **options):
        base = {name: options.pop(name) for name in list(options) if name in BASE}
        self.settings = options
        type(self).function([], **options)  # an unknown or bad setting fails here
        super().__init__(*args, **base)

    def _info(self) -> evaluate.MetricInfo:
        return evaluate.MetricInfo(
            description=type(self).function.__doc__,
            citation="",
            inputs_description="predictions: list of strings",
            features=datasets.Features({"predictions": datasets.Value("string")}),
        )

    def _compute(self, predictions: list[str], **_) -> dict:
        value = type(self).function(predictions, **self.settings)
        return value if isinstance(value, dict) else {type(self).function.__name__: value}


BASE = {
    "config_name",
    "keep_in_memory",
    "cache_dir",
    "num_process",
    "process_id",
    "seed",
    "experiment_id",
    "hash",
    "max_concurrent_cache_files",
    "timeout",
}
