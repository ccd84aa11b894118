"""``rlnlp.metrics.msttr`` as a module of ``evaluate``."""

from rlnlp import metrics
from workbook.scores import text


class Msttr(text.Metric):
    function = staticmethod(metrics.msttr)
