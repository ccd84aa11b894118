"""``rlnlp.metrics.unique`` as a module of ``evaluate``."""

from rlnlp import metrics
from workbook.scores import text


class Unique(text.Metric):
    function = staticmethod(metrics.unique)
