"""Small and large numbers as a reader writes them."""

from __future__ import annotations

import re
from decimal import Decimal

from workbook.results.tables import MINUS

POWER = re.compile(rf"\d\.\de[{MINUS}+]\d+")  # as `tables.number` has them


def decimals(text: str) -> str:
    """A text without powers of ten: "3.9e−04 [−1.0e−06, 1.2e+04]" is "0.00039 [−0.0000010, 12000]"."""
    return POWER.sub(lambda found: f"{Decimal(found[0].replace(MINUS, '-')):f}", text)
