"""``rlnlp.metrics.shared`` as a module of ``evaluate``."""

from rlnlp import metrics
from workbook.scores import text


class Shared(text.Metric):
    function = staticmethod(metrics.shared)
