"""Work recorded in a CUDA graph: on cuda done once, then replayed; elsewhere, and where it is told to, done as written
(the eager twin)."""

from __future__ import annotations

import gc
from collections.abc import Callable

import torch

WARM = 3  # steps done before one is recorded: libraries allocate and choose kernels then, which no graph may hold


class Step:
    """``work``, which reads and writes the same memory every time: on cuda recorded once, then replayed.

    The first ``WARM`` calls do it as written; recording does nothing by itself. graph=False: always as written.
    """

    def __init__(self, work: Callable[[], None], device: torch.device, graph: bool = True) -> None:
        self.work, self.graph, self.calls, self.device = work, None, 0, device
        self.stream = torch.cuda.Stream(device) if graph and device.type == "cuda" else None

    def __call__(self) -> None:
        self.calls += 1
        if self.stream is None:
            return self.work()
        with torch.cuda.device(self.device):  # streams and graphs are the current card's
            if self.calls <= WARM:
                self.stream.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(self.stream):
                    self.work()
                return torch.cuda.current_stream().wait_stream(self.stream)
            if self.graph is None:
                self.graph = self._recorded()
            self.graph.replay()

    def _recorded(self) -> torch.cuda.CUDAGraph:
        """The work as a graph. A graph that is freed while another is recorded spoils it: garbage is collected before,
        and not in between. Where it fails, the stream is what it was before."""
        before, collects = torch.cuda.current_stream(), gc.isenabled()
        gc.collect()
        gc.disable()
        try:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                self.work()
            return graph
        finally:
            torch.cuda.set_stream(before)
            gc.enable() if collects else None
