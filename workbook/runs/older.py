"""The settings that a profile's committed tables are of: params.yaml, and what its runs had otherwise.

params = settings(Path("profiles/follow_up/params.yaml"))     # with reports/follow_up/older.yaml in it
"""

from __future__ import annotations

from pathlib import Path

import yaml

from workbook.runs import checks
from workbook.runs.profiles import merged

OLDER = "older.yaml"  # in the folder of reports: what replaces values of params.yaml


def settings(path: Path):
    """Of the profile whose params.yaml that is; where nothing is older, as that file has them. Raises: ConfigError."""
    params = checks.load(path)
    if not (file := params.reports_folder / OLDER).is_file():
        return params
    values, lines = checks.read(path)
    return checks.checked(merged(values, yaml.safe_load(file.read_text(encoding="utf-8"))), lines, path)
