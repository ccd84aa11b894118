"""A coloured sentence and the token explorer, without a browser: controls are moved in Python, what they show is read
and compared with what the models and the sampler say."""

from __future__ import annotations

import copy
import re

import pytest
import torch

from rlnlp import models, samplers, vocabulary
from rlnlp import rollout as rollouts
from rlnlp.learners import nlpo, ppo
from rlnlp.types import generator
from workbook.figures import tokens
from workbook.lab import explorer, sentence

from . import tiny
from .shown import SETTINGS, alts, policy_made, prompts_made, score, text, tokenizer_made  # noqa: F401 (fixtures)


@pytest.fixture(scope="module")
def seen(policy, prompts, tokenizer):
    """An experience at temperature 0.7, and the models it comes from."""
    config = ppo.Config(**SETTINGS, temperature=0.7)
    own = copy.deepcopy(policy)
    vocabulary.limit_vocabulary(own, list(range(1, 21)))  # few tokens, so that some episodes end early
    state = ppo.init(own, config, seed=0)
    ppo.update(state, ppo.collect(state, prompts, score, config), config)  # now the policy is not the reference
    return ppo.collect(state, prompts, score, config), tokenizer, state.policy, state.reference


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
