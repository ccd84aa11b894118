"""``rlnlp.metrics.distinct`` as a module of ``evaluate``."""

from rlnlp import metrics
from workbook.scores import text


class Distinct(text.Metric):
    function = staticmethod(metrics.distinct)
