"""Widgets without a browser: controls are moved in Python, what they show is read; then in a real kernel, with and
without somebody who could use them."""

from __future__ import annotations

import asyncio
import copy
import html
import re
import subprocess
import sys
import threading
from pathlib import Path

import nbformat
import pytest
import torch

from rlnlp import models, samplers, vocabulary
from rlnlp import rollout as rollouts
from rlnlp.learners import common, nlpo, ppo
from rlnlp.types import generator
from workbook.draws.tokenizer import train_tokenizer
from workbook.figures import tokens
from workbook.lab import browse, explorer, finished, live, sentence, static
from workbook.runs import algorithms
from workbook.stages import nb
from workbook.store import tables

from . import tiny
from .made_up import write_run
from .waiting import DEADLINE_S, until

ROOT = Path(__file__).resolve().parent.parent
SETTINGS = {"updates": 4, "episodes_per_update": 8, "max_new_tokens": 8, "kl_coef": 0.1, "learning_rate": 1e-3}


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer()


@pytest.fixture(scope="module")
def policy(tokenizer):
    return tiny.gpt2(len(tokenizer))


@pytest.fixture(scope="module")
def prompts(tokenizer):
    return tiny.prompts(rows=8, vocabulary=len(tokenizer))


def score(rollout):
    return rollout.mask.sum(1).float() / 8, {}


@pytest.fixture(scope="module")
def seen(policy, prompts, tokenizer):
    """An experience at temperature 0.7, and the models it comes from."""
    config = ppo.Config(**SETTINGS, temperature=0.7)
    own = copy.deepcopy(policy)
    vocabulary.limit_vocabulary(own, list(range(1, 21)))  # few tokens, so that some episodes end early
    state = ppo.init(own, config, seed=0)
    ppo.update(state, ppo.collect(state, prompts, score, config), config)  # now the policy is not the reference
    return ppo.collect(state, prompts, score, config), tokenizer, state.policy, state.reference


def text(page: str) -> str:
    """What a person reads of some HTML."""
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page)).split())


def alts(page: str) -> list[str]:
    return [html.unescape(found) for found in re.findall(r'<img [^>]*alt="([^"]*)" src="data:image/png;base64,', page)]


# a sentence ----------------------------------------------------------------------------------------------------------


def test_the_toggle_chooses_the_quantity():
    view = sentence.coloured(["a", "<b>", "c"], {"reward": [0.0, 0.5, -2.0], "KL": torch.tensor([0.25, 0.0, 0.0])})
    assert [o for o in view.controls.toggle.options] == ["reward", "KL"] and view.controls.toggle.description
    assert 'title="reward -2"' in view.controls.shown.value and "&lt;b&gt;" in view.controls.shown.value
    view.controls.toggle.value = "KL"
    assert 'title="KL 0.25"' in view.controls.shown.value and "reward" not in view.controls.shown.value
    assert "-0.25" in text(view.controls.shown.value) and "scale of KL" in text(view.controls.shown.value)
    assert "token reward KL a 0 0.25 <b> 0.5 0 c -2 0" in text(
        view.controls.numbers.value
    )  # without a mouse to hover with
    page = view._repr_mimebundle_()["text/html"]  # everything, because there is nothing to press
    assert "a 0 0.25 <b> 0.5 0" in text(page)
    assert 'title="reward -2"' in page and 'title="KL 0.25"' in page and "scale of reward" in text(page)


def test_the_legend_has_the_colours_of_the_tokens():
    values = [-2.0, 1.0, 2.0]
    page = tokens.tokens_html(["a", "b", "c"], values, "x")
    highest = re.findall(r"background:(#\w+)", page)[2]
    assert re.findall(r"background:(#\w+)", sentence.legend(values, "x"))[-1] == highest
    assert text(sentence.legend(values, "x")).startswith("-2 -1 0 1 2")


@pytest.mark.parametrize(
    "quantities, said",
    [({}, "at least one"), ({"KL": [1.0]}, "KL: 2 tokens"), ({"KL": [1.0, float("nan")]}, "KL: not finite")],
)
def test_a_sentence_that_cannot_be_coloured(quantities, said):
    with pytest.raises(ValueError, match=said):
        sentence.coloured(["a", "b"], quantities)


# the token explorer --------------------------------------------------------------------------------------------------


def test_the_table_is_the_experience(seen):
    experience, tokenizer, policy, reference = seen
    for row in (0, 3, 7):
        found = explorer.look(experience, row, tokenizer, {"policy": policy, "reference": reference})
        mask = experience.rollout.mask[row]
        assert found.ids.tolist() == experience.rollout.responses[row][mask].tolist()
        tempered = reference_logprobs(reference, experience, row)
        expected = {
            "policy": experience.rollout.behavior_logprobs[row][mask].exp(),
            "reference": tempered,
            "value": experience.values[row][mask],
            "reward": experience.rewards[row][mask],
            "KL": experience.kl[row][mask],
            "advantage": experience.advantages[row][mask],
        }
        assert list(found.table) == list(expected)
        for name, value in expected.items():
            torch.testing.assert_close(torch.tensor(found.table[name].to_numpy()), value, atol=1e-5, rtol=1e-4)


def reference_logprobs(model, experience, row, temperature=0.7):
    """Probabilities of an episode's tokens, by the model's own forward."""
    rollout, mask = experience.rollout, experience.rollout.mask[row]
    prompt, response = rollout.prompts.ids[row][rollout.prompts.mask[row]], rollout.responses[row][mask]
    with torch.no_grad():
        logits = model(input_ids=torch.cat([prompt, response]).unsqueeze(0)).logits[0, len(prompt) - 1 : -1]
    return (logits / temperature).softmax(-1).gather(1, response.unsqueeze(1)).squeeze(1)


def test_stepping_through_tokens_and_episodes(seen):
    experience = seen[0]
    view = explorer.explore(*seen)
    at, lengths = view.controls, experience.rollout.mask.sum(1)
    assert at.token.max == lengths[0] - 1 and not at.token.continuous_update and not at.episode.continuous_update
    at.back.click()
    assert at.token.value == 0
    for _ in range(3):
        at.forward.click()
    assert at.token.value == 3 and f"token 3 (0 to {lengths[0] - 1})" in at.status.value
    assert re.search(r"aria-current.*?<td[^>]*>3</td>", at.table.value)
    picture = at.bars.value
    at.token.value = 5
    assert at.bars.value != picture
    short = int(lengths.argmin())
    assert lengths[short] < lengths[0], "expected episodes of different lengths"
    at.episode.value = short
    assert at.token.value == 0 and at.token.max == lengths[short] - 1 and f"episode {short}, score" in at.table.value
    for _ in range(20):
        at.forward.click()
    assert at.token.value == at.token.max


def test_the_slider_changes_what_survives(seen):
    experience, tokenizer, policy, reference = seen
    view = explorer.explore(experience, tokenizer, policy, reference)
    at, numbers = view.controls, []
    logits = explorer.look(experience, 0, tokenizer, {"policy": policy}).logits["policy"]
    at.token.value = int(logits.softmax(-1).amax(-1).argmin())  # where the policy is least sure
    logits = logits[at.token.value]
    for p in (0.1, 0.5, 0.95):
        at.value.value = p
        said = re.search(
            r"(\d+) of (\d+) tokens survive top_p ([\d.]+) of the policy; they hold ([\d.]+)", at.status.value
        )
        ordered = logits.softmax(-1).sort(descending=True).values
        wanted = int((ordered.cumsum(0) < p).sum()) + 1  # the smallest set whose mass reaches p
        assert [int(said[1]), int(said[2]), float(said[3])] == [wanted, len(tokenizer), p]
        assert float(said[4]) == pytest.approx(ordered[:wanted].sum().item(), abs=6e-4)
        kept = re.findall(r"[\d.]+ (kept|cut)", alts(at.bars.value)[0])
        assert kept == ["kept"] * min(wanted, 6) + ["cut"] * (6 - min(wanted, 6))
        numbers.append(wanted)
    assert numbers[0] <= numbers[1] < numbers[2]
    at.rule.value = "top_k"
    at.value.value = 3
    assert "3 of " in at.status.value and "survive top_k 3 of the policy" in at.status.value
    at.source.value = "reference"
    assert "survive top_k 3 of the reference" in at.status.value
    at.rule.value = "none"
    assert (
        f"{len(tokenizer)} of {len(tokenizer)} tokens survive without a rule" in at.status.value
        and "hold 1.000" in at.status.value
    )


@pytest.mark.parametrize("rule", [name for name in samplers.RULES if name != "none"])
def test_survivors_are_what_sampling_could_choose(rule, policy, prompts, tokenizer):
    """Also for a rule that remembers: one token at a time, told what was drawn."""
    values, first = explorer.VALUES[rule]
    assert first in values
    sampling = rollouts.sampling_from(policy, 8)
    drawn = rollouts.sample(policy, prompts, sampling, generator(0, rule), samplers.named(rule, first))
    zeros = torch.zeros(drawn.mask.shape)
    experience = explorer.Experience(drawn, zeros[:, 0], {}, zeros, zeros, zeros, zeros, zeros, zeros)
    for row in range(4):
        found = explorer.look(experience, row, tokenizer, {"policy": policy})
        allowed = explorer.survivors(samplers.named(rule, first), found.logits["policy"], found.ids)
        assert torch.equal(allowed, found.sampled) and allowed[range(len(found.ids)), found.ids].all()
    assert not found.sampled.all()


def test_the_mask_model_decides_what_nlpo_may_choose(policy, prompts, tokenizer):
    config = nlpo.Config(**SETTINGS, mask_top_p=0.5)
    state = nlpo.init(copy.deepcopy(policy), config, seed=0)
    for _ in range(2):  # the mask model stays behind
        ppo.update(state, nlpo.collect(state, prompts, score, config), config)
    view = explorer.explore(
        nlpo.collect(state, prompts, score, config), tokenizer, state.policy, state.reference, state.mask_model
    )
    at = view.controls
    assert "mask model, p" in at.table.value
    at.source.value, at.value.value = "mask model", 0.5
    counted = r"(\d+ of \d+) tokens survive .*; they hold ([\d.]+)"
    by_rule = [text(at.table.value), *re.search(counted, at.status.value).groups()]
    at.rule.value = explorer.SAMPLED
    assert at.value.disabled and "survive the sampler of the episode" in at.status.value
    assert [text(at.table.value), *re.search(counted, at.status.value).groups()] == by_rule
    assert by_rule[1] != f"{len(tokenizer)} of {len(tokenizer)}"


def test_a_rule_of_your_own_is_on_the_menu(seen, monkeypatch):
    def picky(value):
        if value < 0.5:
            raise ValueError("picky: expected at least 0.5")
        return samplers.top_k(1)

    monkeypatch.setitem(samplers.RULES, "picky", picky)
    at = explorer.explore(*seen).controls
    at.rule.value = "picky"
    assert "1 of" in at.status.value and "survive picky" in at.status.value
    at.value.value = 0.1
    assert "expected at least 0.5" in at.status.value


@pytest.mark.parametrize("kind", ["causal", "encoder-decoder"])
def test_each_models_tokens_and_what_nlpo_cut(kind, prompts, tokenizer):
    """Ragged prompts, a minimum length, a temperature: what the table says is what `rollout.sample` recorded."""
    config = nlpo.Config(**SETTINGS, temperature=0.7, min_new_tokens=3, mask_top_p=0.5)
    state = nlpo.init(tiny.MAKE[kind](len(tokenizer)), config, seed=0)
    for _ in range(2):  # three different models
        models.sync(state.mask_model, state.policy)
        ppo.update(state, nlpo.collect(state, prompts, score, config), config)
    seen = nlpo.collect(state, prompts, score, config)
    views = {"policy": state.policy, "reference": state.reference, "mask model": state.mask_model}
    for row in range(4):
        found, mask = explorer.look(seen, row, tokenizer, views), seen.rollout.mask[row]
        mine = found.logits["policy"].masked_fill(~found.sampled, -torch.inf).log_softmax(-1)
        taken = mine.gather(1, found.ids.unsqueeze(1)).squeeze(1)
        torch.testing.assert_close(taken, seen.rollout.behavior_logprobs[row][mask], atol=1e-4, rtol=1e-3)
        allowed = explorer.survivors(samplers.top_p(0.5), found.logits["mask model"], found.ids)
        assert (allowed == found.sampled).float().mean() > 0.9999 and not found.sampled.all() and found.moved < 1e-3
        assert found.table["policy"].tolist() != found.table["mask model"].tolist() != found.table["reference"].tolist()
    page = text(explorer.explore(seen, tokenizer, *views.values())._repr_mimebundle_()["text/html"])
    assert "encoder" not in page and "mask model, p" in page and "has moved" not in page


def test_it_says_when_the_policy_has_been_trained_since(seen):
    experience, tokenizer, policy, reference = seen
    assert "The policy is not the one" not in explorer.explore(*seen).controls.table.value
    later = explorer.explore(experience, tokenizer, reference, reference)  # another model in its place
    moved = (
        (
            reference_logprobs(reference, experience, 0, 1.0).log()
            - experience.rollout.logprobs[0][experience.rollout.mask[0]]
        )
        .abs()
        .max()
    )
    assert f"has moved by up to {moved:.2g} nats" in text(later.controls.table.value)


def test_an_error_in_a_callback_is_shown(seen, monkeypatch):
    """ipywidgets would send it to a log that nobody has open."""
    at = explorer.explore(*seen).controls
    with monkeypatch.context() as broken:
        broken.setattr(explorer, "bars", lambda *_: 1 / 0)
        at.token.value = 2
    assert (
        "ZeroDivisionError" in at.trouble.value and "Traceback" in at.trouble.value and at.trouble.layout.display == ""
    )
    at.forward.click()
    assert at.trouble.layout.display == "none" and "token 3 (0 to" in at.status.value


def test_the_explorer_on_paper(seen):
    experience, tokenizer, *_ = seen
    view = explorer.explore(*seen)
    bundle = view._repr_mimebundle_()
    assert set(bundle) == {"text/html", "text/plain"}
    rows = re.findall(r"<tr[ >]", bundle["text/html"])
    assert len(rows) == 1 + experience.rollout.mask[0].sum()  # every token of the episode
    assert len(alts(bundle["text/html"])) == 1 and "tokens survive top_p 0.9" in bundle["text/html"]
    assert all(
        name in bundle["text/html"] for name in ("policy, p", "reference, p", "value", "reward", "KL", "advantage")
    )


# a live run ----------------------------------------------------------------------------------------------------------


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


# the run browser -----------------------------------------------------------------------------------------------------


def chosen(at) -> list[str]:
    return [name for name, box in at.boxes.items() if box.value]


def choose(at, *names: str) -> None:
    for name, box in at.boxes.items():
        box.value = name in names


def test_where_nothing_was_run_it_says_what_to_type(tmp_path):
    view = browse.runs(tmp_path / "runs", tmp_path / "reports")
    for page in (view.controls.shown.value, view._repr_mimebundle_()["text/html"]):
        assert "No run is finished yet" in page and "make reproduce" in page and str(tmp_path / "runs") in page
    write_run(tmp_path / "runs", "ppo_a", 0.2)
    view.controls.again.click()
    assert chosen(view.controls) == ["ppo_a"] and "ppo_a objective/score" in alts(view.controls.shown.value)[0]


def test_finished_runs_are_compared(tmp_path):
    write_run(tmp_path, "ppo_a", 0.2)
    write_run(tmp_path, "ppo_b", 0.3)
    write_run(tmp_path, "zero_shot", 0.1, updates=0)
    write_run(tmp_path, "ppo_c.part", 0.9)  # one that is being written
    at = browse.runs(tmp_path, tmp_path / "none").controls
    assert [box.description for box in at.column.children] == ["ppo_a", "ppo_b", "zero_shot"] == chosen(at)
    choose(at, "ppo_a", "ppo_b")
    at.name.value = "shot"  # and what is chosen stays in the list
    assert [box.description for box in at.column.children] == ["ppo_a", "ppo_b", "zero_shot"]
    at.name.value = "ppo"
    assert [box.description for box in at.column.children] == ["ppo_a", "ppo_b"]
    alt = alts(at.shown.value)[0]
    assert (
        "n = 3 seeds" in alt
        and "ppo_b objective/score 0.3 at first, 0.9 at last" in alt
        and "objective/kl 0.1 at first" in alt
    )
    at.metric.value = "length"
    assert "ppo_a length 5 at first" in alts(at.shown.value)[0] and at.gain.layout.display == "none"

    at.view.value = "frontier"
    assert (
        "score against kl_deployed" in alts(at.shown.value)[0]
        and "ppo_a score 0.220 at kl_deployed 0.100" in alts(at.shown.value)[0]
    )
    at.gain.value, at.decoding.value = "judge", "top_p"
    assert "ppo_b judge 0.500" in alts(at.shown.value)[0] and "decoding top_p" in alts(at.shown.value)[0]

    at.view.value, at.seed.value, at.first.value = "samples", 2, 3
    words = text(at.shown.value)
    assert "ppo_a says 2 at 2 (0.25)" in words and "ppo_b says 5 at 2 (0.25)" in words and "says 1 at 2" not in words
    assert at.first.max == 3 and not at.first.continuous_update
    choose(at, "ppo_a", "zero_shot")
    at.view.value = "curves"
    assert "no curves in zero_shot (not trained)" in text(at.shown.value)
    choose(at)
    assert "choose a run" in at.shown.value


def test_a_fresh_clone_has_the_numbers_of_the_report(tmp_path):
    view = browse.runs(tmp_path / "runs", ROOT / "reports/mini")
    at = view.controls
    assert {"zero_shot", "ppo_kl_0", "nlpo_kl_default"} <= set(chosen(at)) and len(at.boxes) > 40
    assert at.view.value == "frontier"  # opened where there is something to see
    rows = finished.find(tmp_path, ROOT / "reports/mini").per_seed
    mean = rows[(rows.condition == "ppo_kl_0") & (rows.split == "test") & (rows.decoding == "plain")].score.mean()
    assert f"ppo_kl_0 score {mean:.3f} at kl_deployed" in alts(at.shown.value)[0]
    assert alts(view._repr_mimebundle_()["text/html"]) == alts(at.shown.value)
    at.view.value = "curves"
    assert "only the numbers of zero_shot" in text(at.shown.value) and not alts(at.shown.value)
    write_run(tmp_path / "runs", "ppo_kl_0", 0.2)  # what is here counts, not what the report says
    assert (
        "ppo_kl_0 score 0.220"
        in alts(browse.runs(tmp_path / "runs", ROOT / "reports/mini")._repr_mimebundle_()["text/html"])[1]
    )


def test_more_than_eight_runs_and_a_broken_one(tmp_path):
    for i in range(9):
        write_run(tmp_path, f"ppo_{i}", i / 10, seeds=(1,))
    (tmp_path / "ppo_bad").mkdir()
    (tmp_path / "ppo_bad" / "per_seed.csv").write_text("condition,seed\nppo_bad,1\n")
    at = browse.runs(tmp_path, tmp_path / "none").controls
    choose(at, *(f"ppo_{i}" for i in range(9)))
    assert "only the first 8 of the 9 chosen" in at.shown.value and "ppo_8 objective" not in alts(at.shown.value)[0]
    assert "ppo_bad cannot be read" in at.shown.value and "no column split" in at.shown.value


def test_seeds_that_ended_early_and_runs_of_other_seeds_are_named(tmp_path):
    write_run(tmp_path, "ppo_a", 0.2)
    write_run(tmp_path, "ppo_b", 0.3, seeds=(1, 2))
    path = tmp_path / "ppo_a" / "curves.csv"
    tables.write_table(path, [row for row in tables.read_table(path) if not (row["seed"] == 2 and row["update"] > 1)])
    at = browse.runs(tmp_path, tmp_path / "none").controls
    assert "ppo_a ended early in seed 2 after update 1" in text(at.shown.value)
    assert "n = 3, 2 seeds (ppo_a, ppo_b)" in alts(at.shown.value)[0]
    at.view.value = "frontier"
    assert "n = 3, 2 seeds (ppo_a, ppo_b)" in alts(at.shown.value)[0]
    choose(at, "ppo_b")
    assert ", n = 2 seeds, decoding" in alts(at.shown.value)[0]


def test_a_name_is_found_in_any_case_and_one_torn_file_hides_one_run(tmp_path):
    write_run(tmp_path, "ppo_a", 0.2)
    write_run(tmp_path, "nlpo_b", 0.3)
    write_run(tmp_path, "NLPO_c", 0.3)
    with open(tmp_path / "ppo_a" / "samples.jsonl", "a") as file:
        file.write('{"torn')
    write_run(tmp_path, "a_few", 0.3)
    few = tmp_path / "a_few" / "samples.jsonl"
    few.write_text(
        "".join(line for line in few.read_text().splitlines(keepends=True) if '"e5"' not in line and '"e4"' not in line)
    )
    at = browse.runs(tmp_path, tmp_path / "none").controls
    at.view.value = "samples"
    at.first.value = 3
    choose(at, "a_few")
    assert "prompts 1 to 4 of 4" in at.shown.value  # the slider goes as far as the longest run
    choose(at, "ppo_a", "nlpo_b")
    at.first.value = 1
    words = text(at.shown.value)
    assert "nlpo_b says 0 at 1" in words and "ppo_a cannot be read" in words and "samples.jsonl" in words
    choose(at)
    at.name.value = "NLPO"
    assert [box.description for box in at.column.children] == ["NLPO_c", "nlpo_b"]


# in a kernel ---------------------------------------------------------------------------------------------------------

CELLS = [
    "from workbook.lab import sentence\nsentence.coloured(['superb', 'plot'], {'reward': [0.5, -1.0], 'KL': [0.1, "
    "0.2]})",
    """from workbook.lab import live
def train(state, prompts, score, config):
    for update in range(1, 6):
        if "may" in globals():  # somebody says when
            may.wait()
        yield {"update": update, "objective/score": update / 10, "objective/kl": 0.0}
view = live.run(train, {}, None, None, None, None)
view""",
    "print(len(view.rows), view.alive)",
]


def execute(client, code: str, metadata: dict) -> list[dict]:
    """What a cell sends, run as a front end that sends this metadata with it."""
    content = {
        "code": code,
        "silent": False,
        "store_history": True,
        "user_expressions": {},
        "allow_stdin": False,
        "stop_on_error": True,
    }
    message = client.session.msg("execute_request", content, metadata=metadata)
    client.shell_channel.send(message)
    sent = []
    while True:
        got = client.get_iopub_msg(timeout=240)
        sent.append(got)
        ours = got["parent_header"].get("msg_id") == message["header"]["msg_id"]
        if ours and got["msg_type"] == "status" and got["content"]["execution_state"] == "idle":
            return sent
        assert got["msg_type"] != "error", got["content"]


def displayed(sent: list[dict]) -> list[dict]:
    return [m["content"]["data"] for m in sent if m["msg_type"] in ("execute_result", "display_data")]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_who_asks_decides_what_a_kernel_shows():
    """JupyterLab, which names the cell, gets the widget and its page; anything else gets the page alone."""
    from jupyter_client.manager import start_new_kernel

    manager, client = start_new_kernel(startup_timeout=240, kernel_name="python3")
    try:
        (alone,) = displayed(execute(client, CELLS[0], {}))
        assert set(alone) == {"text/html", "text/plain"} and "superb" in alone["text/html"]
        (both,) = displayed(execute(client, CELLS[0], {"cellId": "one"}))
        assert set(both) == {"text/html", "text/plain", nb.WIDGET} and both["text/html"] == alone["text/html"]

        execute(client, "import threading\nmay = threading.Event()", {"cellId": "before"})
        (shown,) = displayed(execute(client, CELLS[1], {"cellId": "two"}))
        assert nb.WIDGET in shown  # the cell is over and the run is not
        printed = "".join(
            m["content"]["text"] for m in execute(client, CELLS[2], {"cellId": "three"}) if m["msg_type"] == "stream"
        )
        assert printed == "0 True\n"
        ended = execute(client, "may.set(); view.wait(); print(view.rows[-1]['update'])", {"cellId": "four"})
        assert "5" in "".join(m["content"].get("text", "") for m in ended if m["msg_type"] == "stream")
        last = [m["content"]["data"] for m in ended if m["msg_type"] == "update_display_data"]
        assert last and "finished: 5 updates" in last[-1]["text/html"] and nb.WIDGET in last[-1]
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)

    # the notebook as JupyterLab saves it, without the state of widgets: nbconvert takes the page
    cells = [
        nbformat.v4.new_code_cell("", outputs=[nbformat.v4.new_output("display_data", data=d)])
        for d in (both, last[-1])
    ]
    from nbconvert import HTMLExporter

    readable(HTMLExporter().from_notebook_node(nbformat.v4.new_notebook(cells=cells))[0])


def readable(page: str) -> None:
    """The page holds what the two widgets show."""
    words = text(re.sub(r"<(script|style).*?</\1>", "", page, flags=re.DOTALL))
    assert "superb" in words and "scale of KL" in words and "finished: 5 updates" in words
    assert any("Curves of 5 updates" in alt for alt in alts(page))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_unattended_notebooks_show_pages(tmp_path):
    """By this package's runner (papermill) and by nbconvert --execute, which also saves widget states."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code) for code in CELLS])
    notebook.metadata["kernelspec"] = nb.KERNEL
    nbformat.write(notebook, tmp_path / "in.ipynb")
    assert nb.run(str(tmp_path / "in.ipynb"), str(tmp_path / "out.ipynb"), {}, html=str(tmp_path / "out.html")) == 0
    executed = nbformat.read(tmp_path / "out.ipynb", as_version=4)
    assert executed.cells[2].outputs[0]["text"] == "5 False\n"  # it had ended when the cell ended
    readable((tmp_path / "out.html").read_text(encoding="utf-8"))
    command = [
        sys.executable,
        "-m",
        "nbconvert",
        "--to",
        "html",
        "--execute",
        "--ExecutePreprocessor.startup_timeout=240",
    ]
    command += ["in.ipynb", "--output", "other.html"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr[-2000:]
    readable((tmp_path / "other.html").read_text(encoding="utf-8"))


def test_no_front_end_here():
    assert static.cell() == "" and not static.front_end()
