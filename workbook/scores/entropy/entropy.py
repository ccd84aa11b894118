"""``rlnlp.metrics.entropy`` as a module of ``evaluate``."""

from rlnlp import metrics
from workbook.scores import text


class Entropy(text.Metric):
    function = staticmethod(metrics.entropy)
