"""The widget that shows training while it goes on, without a browser: buttons are clicked in Python, what it shows is
read, and the numbers are those of training without it."""

from __future__ import annotations

import asyncio
import copy
import html
import re
import sys
import threading
from pathlib import Path

import pytest

from rlnlp.learners import common, ppo
from workbook.lab import live
from workbook.runs import algorithms

from .shown import SETTINGS, alts, policy_made, prompts_made, score, tokenizer_made  # noqa: F401 (fixtures)
from .waiting import DEADLINE_S, until


def training(policy, tokenizer, prompts, **changed):
    """What `live.run` takes, for a fresh PPO run."""
    config = ppo.Config(**{**SETTINGS, **changed})
    return ppo.init(copy.deepcopy(policy), config, seed=0), prompts, score, config, tokenizer


def test_unattended_it_runs_to_the_end(policy, tokenizer, prompts):
    plain = training(policy, tokenizer, prompts)
    expected = list(ppo.train(*plain[:4]))
    given = training(policy, tokenizer, prompts)
    view = live.run(ppo.train, *given)
    assert view.rows == expected and view.state is given[0] and view.state.update == 4 and not view.alive
    page = view._repr_mimebundle_()["text/html"]
    assert "finished: 4 updates" in page and len(alts(page)) == 1 and "4 updates" in alts(page)[0]
    assert len(view.samples) == 3 and html.escape(view.samples[0]["response"]) in page
    assert view.samples[0]["prompt"].startswith("prompt ")


def test_in_the_background_the_numbers_are_the_same(policy, tokenizer, prompts):
    expected = list(ppo.train(*training(policy, tokenizer, prompts)[:4]))
    view = live.run(ppo.train, *training(policy, tokenizer, prompts), background=True)
    assert view.wait(DEADLINE_S) == expected and "finished" in view.controls.status.value
    view.controls.metric.value = "policy/clip_fraction"
    assert "policy/clip_fraction" in alts(view.controls.curves.value)[0]


def test_a_stopped_run_goes_on_as_if_nothing_had_been(policy, tokenizer, prompts):
    expected = list(ppo.train(*training(policy, tokenizer, prompts, updates=12)[:4]))
    given = training(policy, tokenizer, prompts, updates=12)
    view = live.run(ppo.train, *given, background=True)
    until(lambda: view.rows)
    view.controls.stop.click()
    done = view.wait(DEADLINE_S)
    assert done == expected[: len(done)] and given[0].update == len(done) < 12
    later = live.run(ppo.train, *given)
    assert done + later.rows == expected


class Stepwise:
    """A learner whose updates happen when the test says so."""

    def __init__(self):
        self.may, self.closed, self.fails = threading.Semaphore(0), False, False
        self.asked = 0  # for this update

    def train(self, state, prompts, score, config):
        try:
            for update in range(1, 100):
                self.asked = update
                self.may.acquire()
                if self.fails:
                    raise common.Diverged(f"update {update}: the loss is nan")
                state["update"] = update
                yield {"update": update, "objective/score": update / 100, "objective/kl": 0.0}
        finally:
            self.closed = True


def stands(view) -> bool:
    """Whether the thread that trains waits in a pause: in an Event of live.py, not in the learner."""
    frame, found = sys._current_frames().get(view._thread.ident), []
    while frame is not None:
        found, frame = [*found, (Path(frame.f_code.co_filename).name, frame.f_code.co_name)], frame.f_back
    return (("threading.py", "wait"), ("live.py", "_follow")) in zip(found, found[1:])


def test_pause_resume_and_stop():
    learner, state = Stepwise(), {}
    view = live.run(learner.train, state, None, score, None, None, background=True)
    at = view.controls
    learner.may.release(2)
    until(lambda: len(view.rows) == 2)
    at.pause.click()
    learner.may.release()
    until(lambda: "paused after update" in at.status.value)
    done = len(view.rows)
    assert done in (2, 3)  # the click came before or after the look at it that follows update 2
    assert f"{done} updates" in alts(at.curves.value)[0]  # drawn before it waits
    learner.may.release(3)
    until(lambda: stands(view), "the pause")
    assert len(view.rows) == done and view.alive
    at.resume.click()
    until(lambda: len(view.rows) == 6)
    at.pause.click()
    learner.may.release()
    until(lambda: "paused after update" in at.status.value)
    done = len(view.rows)
    at.stop.click()  # in a pause, at once
    assert [row["update"] for row in view.wait(DEADLINE_S)] == list(range(1, done + 1)) and not view.alive
    assert learner.closed and state["update"] == done and f"stopped after update {done}" in at.status.value
    assert at.pause.disabled and at.resume.disabled and at.stop.disabled


def test_an_error_is_shown_and_raised_by_wait():
    learner = Stepwise()
    view = live.run(learner.train, {}, None, score, None, None, background=True)
    learner.may.release(2)
    until(lambda: len(view.rows) == 2)
    learner.fails = True
    learner.may.release()
    with pytest.raises(common.Diverged, match="update 3: the loss is nan"):
        view.wait(DEADLINE_S)
    with pytest.raises(common.Diverged, match="update 3: the loss is nan"):
        asyncio.run(awaited(view))
    shown = view.controls.status.value
    assert "failed in update 3: Diverged: update 3: the loss is nan" in html.unescape(shown) and "Traceback" in shown
    assert len(view.rows) == 2 and "Traceback" in view._repr_mimebundle_()["text/html"]


async def awaited(view, *steps) -> list[dict]:
    """Wait for a view's end while other things happen, as a cell does that awaits it. steps: (when, what)."""

    async def happen():
        for ready, step in steps:
            await asyncio.to_thread(until, ready)
            step()

    rows, _ = await asyncio.gather(asyncio.wait_for(view, 240), happen())
    return rows


def test_a_cell_that_awaits_leaves_the_buttons_working():
    learner = Stepwise()
    view = live.run(learner.train, {}, None, score, None, None, background=True)
    view.pause()
    learner.may.release()
    until(lambda: "paused after update" in view.controls.status.value)
    with pytest.raises(RuntimeError, match="wait: the run is paused"):
        view.wait()
    assert view.wait(0.05) == view.rows and view.alive
    status = view.controls.status
    steps = [
        (lambda: stands(view), view.controls.resume.click),
        (lambda: "going on" in status.value, lambda: learner.may.release(3)),
        (lambda: learner.asked == 5, view.controls.stop.click),
        (lambda: "stopping" in status.value, learner.may.release),  # the update that was running
    ]
    assert len(asyncio.run(awaited(view, *steps))) == 5 and not view.alive


def test_unattended_an_error_is_raised():
    learner = Stepwise()
    learner.fails = True
    learner.may.release()
    with pytest.raises(common.Diverged):
        live.run(learner.train, {}, None, score, None, None)


@pytest.mark.parametrize("name", algorithms.names())
def test_every_learner_can_be_watched(name, policy, prompts, tokenizer):
    learner = algorithms.module(name)
    wanted = {"updates": 2, "max_new_tokens": 6} if name != "best_of_n" else {"max_new_tokens": 6}
    needed = {"dropout": {"mode": "same"}, "mismatch": {"breaks": ["scoring"]}}.get(name, {})
    config = learner.Config(**wanted, **needed)
    extra = {"tokenizer": tokenizer} if name == "supervised" else {}
    state = learner.init(copy.deepcopy(policy), config, seed=0, **extra)
    view = live.run(learner.train, state, prompts, score, config, tokenizer, background=True)
    rows = view.wait(DEADLINE_S)
    page = view._repr_mimebundle_()["text/html"]
    assert not view.controls.trouble.value
    if name == "best_of_n":
        assert rows == [] and "nothing to train: the config asks for 0 updates" in page
        return
    assert [row["update"] for row in rows] == [1, 2] and "finished: 2 updates" in page and len(alts(page)) == 1
    first, second = re.findall(r"(\S+) (\S+) at first", alts(page)[0])
    assert (
        first[0] == ("objective/score" if "objective/score" in rows[0] else list(rows[0])[1]) and second[0] != first[0]
    )
    assert first[1] == f"{rows[0][first[0]]:.3g}"
    assert len(view.samples) == (0 if name == "supervised" else 3) and ("no samples" in page) == (name == "supervised")


def test_a_state_that_is_done_says_so(policy, tokenizer, prompts):
    given = training(policy, tokenizer, prompts, updates=1)
    live.run(ppo.train, *given)
    page = live.run(ppo.train, *given)._repr_mimebundle_()["text/html"]
    assert "nothing left to train: the state has done 1 updates; make a new one with init" in page


def test_what_cannot_be_drawn_does_not_end_training(monkeypatch):
    learner = Stepwise()
    monkeypatch.setattr(live, "curves", lambda *_: 1 / 0)
    learner.may.release(4)
    view = live.run(learner.train, {}, None, score, None, None, background=True)
    until(lambda: len(view.rows) == 4)
    assert view.alive and "ZeroDivisionError" in view.controls.trouble.value
    learner.fails = True
    learner.may.release()
    with pytest.raises(common.Diverged):
        view.wait(DEADLINE_S)


def test_a_metric_that_is_no_number_is_not_offered():
    rows = [{"update": u, "note": "text", "nothing": None, "loss": u / 2} for u in (1, 2)]
    view = live.run(lambda *_: (row for row in rows), {}, None, score, None, None)
    assert view.controls.metric.options == ("loss",) and not view.controls.trouble.value
    assert "loss 0.5 at first, 1 at last" in alts(view._repr_mimebundle_()["text/html"])[0]


def test_nothing_that_a_click_says_stands_after_the_last_line(monkeypatch):
    """A click while the last picture is drawn: the run is over, whatever its thread still does."""
    slow, drawing, may = live.Live._draw, threading.Event(), threading.Event()

    def draw(self):
        drawing.set()
        may.wait(DEADLINE_S)
        slow(self)

    monkeypatch.setattr(live.Live, "_draw", draw)
    view = live.run(lambda *_: (row for row in ()), {}, None, score, None, None, background=True)
    assert drawing.wait(DEADLINE_S)
    view.stop(), view.pause()
    may.set()
    view.join(60)
    assert "nothing left to train" in view.controls.status.value


def test_a_second_run_of_a_state_ends_the_first():
    first, second, state = Stepwise(), Stepwise(), {}
    one = live.run(first.train, state, None, score, None, None, background=True)
    first.may.release(2)
    until(lambda: one.rows)
    one.pause()
    until(lambda: "paused" in one.controls.status.value)
    second.fails = True
    second.may.release()
    two = live.run(second.train, state, None, score, None, None, background=True)
    assert not one.alive and first.closed and one not in live._running
    two.join(60)
    assert not two.alive and two.error is not None
