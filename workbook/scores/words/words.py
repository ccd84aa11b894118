"""``rlnlp.metrics.words`` as a module of ``evaluate``."""

from rlnlp import metrics
from workbook.scores import text


class Words(text.Metric):
    function = staticmethod(metrics.words)
