"""``rlnlp.metrics.repetition`` as a module of ``evaluate``."""

from rlnlp import metrics
from workbook.scores import text


class Repetition(text.Metric):
    function = staticmethod(metrics.repetition)
