"""Every test: one thread, no network, no progress bars; the same for what it starts."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "DVC_NO_ANALYTICS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MPLBACKEND": "Agg",
}
os.environ.update(OFFLINE)
os.environ.pop("RLNLP_MIRROR", None)  # a test that wants a mirror makes one; RLNLP_TEST_MIRROR: tests of real rows

import pytest  # noqa: E402 (what is imported below reads these variables)
import torch  # noqa: E402

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def one_thread():
    """A test that changes the number of threads does not change the next one's numbers."""
    yield
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def real_mirror() -> Path:
    """The mirror of whoever runs the tests; those of real rows are skipped without one."""
    if not (folder := os.environ.get("RLNLP_TEST_MIRROR")):
        pytest.skip("RLNLP_TEST_MIRROR: a folder with datasets/<hub id>")
    return Path(folder)


@pytest.fixture(scope="session")
def kernels(tmp_path_factory):
    """Variables that make kernels fork from a process that has imported torch (tests/test_forkserver.py: they are the
    same as others), seconds less for each notebook."""
    folder = tmp_path_factory.mktemp("kernels")
    from workbook.stages import forkserver

    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MPLBACKEND", raising=False)  # the tests' own is Agg
        with forkserver.running(folder, folder / "server.log") as variables:
            yield variables


@pytest.fixture(scope="session")
def built(tmp_path_factory) -> Path:
    """Tiny data and models of every kind, made once."""
    from tests.built import build, write_params

    folder = tmp_path_factory.mktemp("built")
    write_params(folder)
    build(folder)
    return folder


@pytest.fixture
def world(built, tmp_path) -> Path:
    """A copy of the built folder, to spoil freely."""
    shutil.copytree(built, tmp_path / "world", ignore=shutil.ignore_patterns(".scratch"))
    return tmp_path / "world"


@pytest.fixture(scope="session")
def site(tmp_path_factory) -> Path:
    """The built site, made once."""
    from tests.site_made import make

    return make(tmp_path_factory.mktemp("site"))


@pytest.fixture
def trainings(monkeypatch) -> list[str]:
    """Labels of every training that really happens."""
    from workbook.runs import experiment

    seen, real = [], experiment.train
    monkeypatch.setattr(experiment, "train", lambda *a: seen.append(a[5]) or real(*a))
    return seen
