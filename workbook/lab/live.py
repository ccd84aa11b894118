"""A training run that you watch: its curves grow, its latest samples are shown, and buttons pause, resume and stop
it."""

from __future__ import annotations

import asyncio
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import closing
from typing import Any

import ipywidgets as widgets
import torch
from IPython.display import display, update_display
from matplotlib.ticker import MaxNLocator

from rlnlp import rollout as rollouts
from rlnlp.types import Rollout, take
from workbook.figures.parts import alt_text
from workbook.lab import static
from workbook.results import measures, tables

SAMPLES = 3  # shown
EVERY_S = 0.7  # between two drawings, seconds
FIRST, SECOND = "objective/score", "objective/kl"  # the metrics shown at first
_running: list[Live] = []


def run(train: Callable, state, prompts, score: Callable, config, tokenizer, background: bool | None = None) -> Live:
    """Start ``train(state, prompts, score, config)``, a learner's generator of one dict of metrics per update, and show
    it.

    In JupyterLab it trains in a background thread: the kernel stays free, the buttons act between two updates. Where no
    browser is attached (papermill, a script) it trains here and now, to the end, and an error in training is raised.
    background: decide it yourself. The view has ``rows`` (the metrics so far), ``state``, ``error`` and ``wait()``; in
    a cell below, ``await view`` makes *Run all* wait for the end while the buttons work.

    A run that was started by the same cell, or that trains the same state or policy, is stopped first: it would go on
    unseen, or two runs would change one model. Do not use a state's policy while its run is neither paused nor over.
    """
    view = Live(state, getattr(config, "updates", None), tokenizer)
    for other in [o for o in _running if o.cell and o.cell == view.cell or _shares(o.state, state)]:
        other.stop()
        other.join()
    view.start(
        lambda watched: train(state, prompts, watched, config),
        score,
        view.attended if background is None else background,
    )
    return view


class Live(static.View):
    """One run. rows: the metrics of each update; samples: of the last update; state: as the last update left it; error:
    what ended training, or None. Made by `run`."""

    def __init__(self, state, updates: int | None, tokenizer):
        self.state, self.rows, self.error = state, [], None
        self.cell, self.samples = static.cell(), []
        self._updates, self._tokenizer, self._seen, self._drawn = updates, tokenizer, None, 0.0
        self._thread, self._over, self._shown, self._line, self._trouble = None, False, False, "starting", ""
        self._filling = False  # whether the menu of metrics is being filled, not used
        self._saying = threading.RLock()  # a click may come in another thread than training's
        self._go, self._stop = threading.Event(), threading.Event()
        self._go.set()
        pause = widgets.Button(
            description="pause", icon="pause", tooltip="wait once the update that is running is done"
        )
        resume = widgets.Button(description="resume", icon="play", tooltip="go on")
        stop = widgets.Button(description="stop", icon="stop", tooltip="end after this update; the state stays usable")
        metric = widgets.Dropdown(options=[SECOND], description="curve", tooltip="the metric drawn on the right")
        status, curves, samples = widgets.HTML(static.say(self._line)), widgets.HTML(), widgets.HTML()
        trouble = static.Trouble()
        pause.on_click(lambda _: self.pause())
        resume.on_click(lambda _: self.resume())
        stop.on_click(lambda _: self.stop())
        metric.observe(trouble.guard(lambda _: self._filling or self._draw_curves()), "value")
        children = [static.row(pause, resume, stop, metric), status, trouble, curves, samples]
        super().__init__(
            children,
            self._page,
            "a training run",
            pause=pause,
            resume=resume,
            stop=stop,
            metric=metric,
            status=status,
            curves=curves,
            samples=samples,
            trouble=trouble,
        )

    def start(self, steps_of: Callable, score: Callable, background: bool) -> None:
        """Train; `steps_of` is given the score to use, which remembers the rollouts that it scored."""
        if not background:
            try:
                self._line = self._follow(steps_of, score)
            finally:
                self._draw()
            return
        threads = torch.get_num_threads()  # the numbers depend on it, and it is each thread's own

        def work() -> None:
            torch.set_num_threads(threads)
            try:
                last = self._follow(steps_of, score)
            except (
                BaseException
            ) as error:  # shown in the view and raised by wait(); there is nobody to raise it to here
                self.error, self._trouble = error, "".join(traceback.format_exception(error))
                last = f"failed in update {len(self.rows) + 1}: {type(error).__name__}: {error}"
            with self._saying:  # what a click says cannot replace it any more
                self._line, self._over = last, True
            _running.remove(self)
            self._end()

        _running.append(self)
        self._thread = threading.Thread(target=work, name="rlnlp live run", daemon=True)
        self._thread.start()

    def pause(self) -> None:
        """Wait after the update that is running."""
        with self._saying:
            if self.alive:
                self._say("pausing: the update that is running will be the last one for now")
                self._go.clear()  # after the line: training says itself when it has paused

    def resume(self) -> None:
        """Go on after a pause."""
        with self._saying:
            if self.alive and not self._go.is_set():
                self._say("going on")
                self._go.set()

    def stop(self) -> None:
        """End after the update that is running (at once, in a pause). The state can be used, and trained further."""
        with self._saying:
            if self.alive:
                self._say("stopping: the update that is running will be the last one")
                self._stop.set()
                self._go.set()

    @property
    def alive(self) -> bool:
        """Whether training goes on in the background, paused or not."""
        return self._thread is not None and self._thread.is_alive() and not self._over

    def join(self, seconds: float | None = None) -> None:
        """Wait for the end, at most so long, without raising what went wrong."""
        if self._thread is not None:
            self._thread.join(seconds)

    def wait(self, seconds: float | None = None) -> list[dict[str, Any]]:
        """Wait for the end of training, at most `seconds`; the rows so far. In a notebook ``await view`` is better: a
        cell that waits here keeps the kernel from the buttons.

        Raises the error that ended training; RuntimeError in a pause without `seconds`, because nobody could end it.
        """
        if seconds is None and self.alive and not self._go.is_set():
            raise RuntimeError(
                "wait: the run is paused, and no button works while a cell waits; call resume() or stop() first, or "
                "`await` the view"
            )
        self.join(seconds)
        if self.error is not None:
            raise self.error
        return self.rows

    def __await__(self):
        """The rows at the end of training, as ``wait``; the kernel goes on to hear the buttons."""

        async def ended() -> list[dict[str, Any]]:
            while self._thread is not None and self._thread.is_alive():
                await asyncio.sleep(0.1)
            return self.wait()

        return ended().__await__()

    def _follow(self, steps_of: Callable, score: Callable) -> str:
        """Train; how it ended."""

        def watched(rollout: Rollout):
            found = score(rollout)
            self._seen = rollout, found[0]
            return found

        with closing(steps_of(watched)) as steps:  # stopping leaves the generator between two updates
            for row in steps:
                self.rows.append(row)
                self._say(f"update {self._at}{f' of {self._updates}' if self._updates else ''}")
                if time.monotonic() - self._drawn > EVERY_S or not self._go.is_set():
                    self._draw()
                if not self._go.is_set() and not self._stop.is_set():
                    self._say(f"paused after update {self._at}")
                    self._go.wait()
                if self._stop.is_set():
                    return f"stopped after update {self._at}; the state is as that update left it"
        if self.rows:
            return f"finished: {len(self.rows)} updates"
        if self._updates == 0:
            return "nothing to train: the config asks for 0 updates"
        return (
            f"nothing left to train: the state has done {getattr(self.state, 'update', 0)} updates; make a new "
            f"one with init"
        )

    @property
    def _at(self) -> int:
        return int(self.rows[-1].get("update", len(self.rows)))

    def _end(self) -> None:
        for name in ("pause", "resume", "stop"):
            getattr(self.controls, name).disabled = True
        self._draw()
        if self._shown:  # the saved notebook then holds the whole run
            update_display(self._repr_mimebundle_(), display_id=self.model_id, raw=True)

    def _say(self, line: str) -> None:
        self._line = line
        self.controls.status.value = static.say(line, self._trouble)

    def _draw(self) -> None:
        """Everything anew. What cannot be drawn is said, and training goes on."""
        self._drawn = time.monotonic()
        self._say(self._line)
        self.controls.trouble.guard(self._fill)()

    def _fill(self) -> None:
        if self.rows:
            names, metric = _names(self.rows), self.controls.metric
            if list(metric.options) != names:
                wanted = metric.value if metric.value in names else names[-1]
                self._filling = True
                metric.options, metric.value = names, wanted
                self._filling = False
            self._draw_curves()
        if self._seen is not None:
            self.samples = samples(*self._seen, self._tokenizer)
            self.controls.samples.value = "<b>Samples of the last update</b>" + static.table(
                ["prompt", "response", "score"], [list(sample.values()) for sample in self.samples]
            )
        elif self.rows:
            self.controls.samples.value = static.say("no samples: this learner scores none")

    def _draw_curves(self) -> None:
        if self.rows:
            self.controls.curves.value = static.picture(curves(self.rows, self.controls.metric.value))

    def _page(self) -> str:
        parts = self.controls
        return parts.status.value + parts.curves.value + parts.samples.value

    def _ipython_display_(self) -> None:
        self._shown = True
        display(self._repr_mimebundle_(), display_id=self.model_id, raw=True)


def curves(rows: list[dict[str, Any]], second: str):
    """Two metrics of one run against its updates; the first is the score where there is one."""
    first = FIRST if FIRST in rows[-1] else _names(rows)[0]
    figure, axes = static.panels(2, 8.4, 2.7)
    at, said = [row.get("update", i) for i, row in enumerate(rows, 1)], []
    for axis, name, color in zip(axes, (first, second), ("#0072B2", "#D55E00")):
        values = [row.get(name) for row in rows]
        values = [float("nan") if v is None else float(v) for v in values]
        axis.plot(at, values, "o-", color=color, markersize=3, linewidth=1.5)
        axis.set(xlabel="update", ylabel=measures.label(name))
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        said.append(f"{name} {values[0]:.3g} at first, {values[-1]:.3g} at last")
    return alt_text(figure, f"Curves of {len(rows)} updates of one run: {'; '.join(said)}.")


def _names(rows: list[dict[str, Any]]) -> list[str]:
    """The metrics that can be drawn."""
    return [name for name, value in rows[-1].items() if name != "update" and isinstance(value, int | float)]


def samples(rollout: Rollout, scores: torch.Tensor, tokenizer) -> list[dict[str, str]]:
    """The first few episodes of a rollout as text; scores [B], or [B, T] token by token, of which the sum is shown."""
    few = torch.arange(min(SAMPLES, len(rollout)))
    texts = rollouts.decode(take(rollout, few), tokenizer)
    totals = scores if scores.dim() == 1 else scores.sum(1)
    return [
        {"prompt": tables.short(rollout.prompts.texts[i]), "response": text, "score": f"{float(totals[i]):.3f}"}
        for i, text in enumerate(texts)
    ]


def _shares(one, other) -> bool:
    """Whether two states are the same, or train the same model."""
    policy = getattr(one, "policy", None)
    return one is other or (policy is not None and policy is getattr(other, "policy", None))
