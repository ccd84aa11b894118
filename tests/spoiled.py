"""A sound params.yaml with some of its text replaced, and the problems that reading it then names."""

from pathlib import Path

import pytest

from rlnlp.settings import ConfigError
from workbook.runs import checks

ROOT = Path(__file__).resolve().parents[1]
SOUND = (ROOT / "tests" / "fixtures" / "params.yaml").read_text(encoding="utf-8")


@pytest.fixture(name="edited")
def settings_edited(tmp_path):
    """Write a sound params.yaml with some text replaced; the replaced text must be there."""

    def write(*changes: tuple[str, str]) -> Path:
        text = SOUND
        for old, new in changes:
            assert text.count(old) == 1, f"{old!r} occurs {text.count(old)} times"
            text = text.replace(old, new)
        path = tmp_path / "params.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def problems(path, **overrides) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        checks.load(path, **overrides)
    assert str(caught.value).startswith(f"{path}:")
    return caught.value.problems
