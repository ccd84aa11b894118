"""``rlnlp.metrics.diversity`` as a module of ``evaluate``."""

from rlnlp import metrics
from workbook.scores import text


class Diversity(text.Metric):
    function = staticmethod(metrics.diversity)
