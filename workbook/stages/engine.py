"""How papermill runs our notebooks: kernels from the fork server where there is one, and widgets that keep still."""

from __future__ import annotations

import os
import sys

from jupyter_client import AsyncKernelManager
from nbclient.output_widget import OutputWidget
from papermill.clientwrap import PapermillNotebookClient
from papermill.engines import Engine, papermill_engines

from workbook.stages.forkserver import VARIABLE

NAME = "rlnlp"


class StillWidget(OutputWidget):
    """An Output widget's stand-in that keeps what it holds to itself.

    Sent to the kernel while the cell's reply arrives, that message swallows the reply's wake-up, and the run waits for
    ever (jupyter/nbclient issue 312); no notebook reads that state.
    """

    def sync_state(self) -> None:
        pass


class Client(PapermillNotebookClient):
    def __init__(self, *given, **more):
        super().__init__(*given, **more)
        self.widget_registry = {"@jupyter-widgets/output": {"OutputModel": StillWidget}}


class ForkedKernelManager(AsyncKernelManager):
    """Its kernels come from `workbook.stages.forkserver`."""

    def format_kernel_cmd(self, extra_arguments: list[str] | None = None) -> list[str]:
        return [sys.executable, "-m", "workbook.stages.forkserver", "kernel", self.connection_file]


class NotebookEngine(Engine):
    @classmethod
    def execute_managed_notebook(cls, nb_man, kernel_name, config, **more) -> None:
        """Run the cells; what they print goes to our standard output and error."""
        manager = {"kernel_manager_class": ForkedKernelManager} if VARIABLE in os.environ else {}
        own = {"kernel_name": kernel_name, "startup_timeout": 300, "stdout_file": sys.stdout, "stderr_file": sys.stderr}
        Client(nb_man, timeout=None, config=config, **own, **manager).execute()


papermill_engines.register(NAME, NotebookEngine)
