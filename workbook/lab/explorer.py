"""The token explorer: at every token of an episode, what each model said, what it was worth, and what a sampler would
cut."""

from __future__ import annotations

import html
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import ipywidgets as widgets
import pandas as pd
import torch
from torch import Tensor

from rlnlp import models, samplers
from rlnlp import rollout as rollouts
from rlnlp.types import Experience, take
from workbook.figures.parts import alt_text
from workbook.lab import static

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

LIKELIEST = 20  # bars
AROUND = 4  # rows of the table before and after the token
MOVED = 0.01  # nats: above rounding, of half-precision models too
NOTE = (
    "p: each model's own probability, before a sampler cuts. The learner's numbers: value, of the text before "
    "the token; reward; KL, nats; advantage."
)
MASSES = [i / 20 for i in range(1, 21)]
SMALL = [0, 0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3]
VALUES = {  # of each rule: where its slider can stand, and where it starts; a rule of your own gets the masses
    "none": ([0], 0),
    "top_k": ([1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 100, 200, 500, 1000], 10),
    "top_p": (MASSES, 0.9),
    "min_p": ([0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1], 0.1),
    "typical": (MASSES, 0.9),
    "epsilon": (SMALL, 0.01),
    "eta": (SMALL, 0.01),
    "mirostat": ([0.5, 1, 1.5, 2, 2.5, 3, 4, 5, 6, 8], 3),
}
SAMPLED = "as sampled"  # the tokens that could be chosen when the episode was written


@dataclass(frozen=True)
class Episode:
    """One response of n tokens: ids [n]; logits: model -> [n, V], tempered, EOS blocked early, nothing cut; table: a
    row per token; moved: the largest change of a token's log-probability since the policy wrote it, nats."""

    ids: Tensor
    words: list[str]
    logits: dict[str, Tensor]
    table: pd.DataFrame
    sampled: Tensor | None  # [n, V] bool; None = every token could be chosen
    moved: float


def explore(
    experience: Experience,
    tokenizer: PreTrainedTokenizerBase,
    policy: PreTrainedModel,
    reference: PreTrainedModel,
    mask_model: PreTrainedModel | None = None,
) -> Explorer:
    """Step through the episodes of an experience, token by token, and try samplers on what the models say there.

    Probabilities are those of the models as they are now (the view says so where the policy has been trained since),
    tempered and with EOS blocked as the rollout was; values,
    rewards, KL and advantages are the experience's. The sampler's rule is applied to the model you choose (NLPO: the
    mask model), to the whole vocabulary; what survives is counted, and weighed by the policy. Episodes and tokens count
    from 0, like the tensors' rows and columns. Raises ValueError for an empty experience.
    """
    if not len(experience):
        raise ValueError("the experience holds no episode")
    views = {"policy": policy, "reference": reference} | ({} if mask_model is None else {"mask model": mask_model})
    return Explorer(experience, tokenizer, views)


class Explorer(static.View):
    """The controls, and what they show of one token of an episode. Made by `explore`."""

    def __init__(self, experience: Experience, tokenizer: PreTrainedTokenizerBase, views: dict[str, PreTrainedModel]):
        self._experience, self._tokenizer = experience, tokenizer
        self._looked = lru_cache(maxsize=4)(lambda row: look(experience, row, tokenizer, views))
        self._drawn: tuple | None = None  # the values of the controls that the screen shows
        self._setting = False  # whether a control is being set by another one
        slow = {"continuous_update": False, "layout": {"width": "18em"}}
        fits, menu = {"width": "auto"}, {"width": "18em"}
        episode = widgets.IntSlider(0, 0, len(experience) - 1, description="episode", **slow)
        token = widgets.IntSlider(0, 0, len(self._looked(0).ids) - 1, description="token", **slow)
        back = widgets.Button(description="previous token", icon="arrow-left", tooltip="one token back", layout=fits)
        forward = widgets.Button(description="next token", icon="arrow-right", tooltip="one token on", layout=fits)
        rules = [*([SAMPLED] if experience.rollout.allowed is not None else []), *samplers.RULES]
        about = {"description": "sampler", "tooltip": "the rule that cuts tokens"}
        rule = widgets.Dropdown(options=rules, value="top_p", layout=menu, **about)
        about = {"description": "its value", "tooltip": "the rule's one number"}
        value = widgets.SelectionSlider(**_options("top_p"), **about, **slow)
        about = {"description": "applied to", "tooltip": "the model whose tokens the rule cuts"}
        source = widgets.Dropdown(options=list(views), layout=menu, **about)
        status, bar_chart, table, trouble = widgets.HTML(), widgets.HTML(), widgets.HTML(), static.Trouble()
        controls = {"episode": episode, "token": token, "back": back, "forward": forward, "rule": rule, "value": value}
        controls |= {"source": source, "status": status, "bars": bar_chart, "table": table, "trouble": trouble}
        rows = [static.row(episode, token, back, forward), static.row(rule, value, source)]
        super().__init__(
            [*rows, trouble, status, bar_chart, table],
            self._page,
            f"token explorer: {len(experience)} episodes",
            **controls,
        )
        back.on_click(lambda _: setattr(token, "value", max(token.value - 1, 0)))
        forward.on_click(lambda _: setattr(token, "value", min(token.value + 1, token.max)))
        episode.observe(trouble.guard(self._change_episode), "value")
        rule.observe(trouble.guard(self._change_rule), "value")
        for control in (token, value, source):
            control.observe(trouble.guard(self._show), "value")
        self._show()

    def _cut(self, seen: Episode) -> tuple[Tensor, str]:
        """What the chosen rule allows [n, V] at each token, and its name. Raises ValueError where it refuses its
        number."""
        rule, value, source = self.controls.rule.value, self.controls.value.value, self.controls.source.value
        if rule == SAMPLED:
            return seen.sampled, "the sampler of the episode"
        name = "without a rule" if rule == "none" else f"{rule} {value:g} of the {source}"
        return survivors(samplers.named(rule, value), seen.logits[source], seen.ids), name

    def _show(self, *_) -> None:
        at = self.controls
        now = (at.episode.value, at.token.value, at.rule.value, at.value.value, at.source.value)
        if self._setting or now == self._drawn:
            return
        row, t = at.episode.value, at.token.value
        seen, refused = self._looked(row), ""
        try:
            allowed, name = self._cut(seen)
        except ValueError as error:  # a rule that cannot use this number says why
            everything = torch.ones_like(seen.logits["policy"], dtype=torch.bool)
            allowed, name, refused = everything, "without a rule", str(error)
        at.status.value = static.say(describe(seen, t, allowed, name), refused)
        at.bars.value = static.picture(bars(seen, t, allowed, self._tokenizer, name))
        at.table.value = _text(self._experience, row, seen, t) + _table(seen, allowed, t, AROUND)
        self._drawn = now

    def _change_episode(self, *_) -> None:
        at, self._setting = self.controls, True
        at.token.value, at.token.max = 0, len(self._looked(at.episode.value).ids) - 1
        self._setting = False
        self._show()

    def _change_rule(self, *_) -> None:
        at, self._setting = self.controls, True
        options = _options(at.rule.value)
        at.value.options, at.value.value = options["options"], options["value"]
        at.value.disabled = at.source.disabled = at.rule.value == SAMPLED
        self._setting = False
        self._show()

    def _page(self) -> str:
        at = self.controls
        seen = self._looked(at.episode.value)
        text = _text(self._experience, at.episode.value, seen, at.token.value)
        table = _table(seen, self._cut(seen)[0], at.token.value, len(seen.ids))
        return text + table + at.status.value + at.bars.value


@torch.no_grad()
def look(experience: Experience, row: int, tokenizer, views: dict[str, PreTrainedModel]) -> Episode:
    """Episode `row` of an experience, under each of the models."""
    one = take(experience, torch.tensor([row]))
    mask = one.rollout.mask
    ids, steps = one.rollout.responses[mask], mask.nonzero()[:, 1]
    logits, moved = {}, 0.0
    for name, model in views.items():
        training = model.training
        model.eval()
        raw = models.head(model, models.hidden_states(model, rollouts.trim(one.rollout))[0, : len(ids)]).float()
        model.train(training)
        logits[name] = models.restrict(raw, one.rollout.sampling, steps, None).cpu()
        then = one.rollout.logprobs[mask]
        if name == "policy" and then.any():  # references that were never sampled have zeros
            now = models.chosen_logprobs(models.playable(raw, one.rollout.sampling, steps), ids)
            moved = float((now - then).abs().max())
    ids = ids.cpu()
    words = [static.word(tokenizer, i) for i in ids.tolist()]
    columns = {name: at.softmax(-1).gather(1, ids.unsqueeze(1)).squeeze(1) for name, at in logits.items()}
    columns |= {
        "value": one.values[mask],
        "reward": one.rewards[mask],
        "KL": one.kl[mask],
        "advantage": one.advantages[mask],
    }
    table = pd.DataFrame({name: column.cpu().numpy() for name, column in columns.items()}, index=words)
    sampled = None if one.rollout.allowed is None else one.rollout.allowed.unpack(mask).cpu()
    return Episode(ids, words, logits, table, sampled, moved)


def survivors(rule: samplers.Sampler, logits: Tensor, tokens: Tensor) -> Tensor:
    """What a rule allows [n, V] at each token of one episode, logits [n, V]; one that remembers is told the tokens [n]
    drawn."""
    allowed, state = [], None
    for t in range(len(tokens)):
        _, kept, state = rule(logits[t : t + 1], state)
        state = state and state.observe(tokens[t : t + 1])
        allowed.append(kept)
    return torch.cat(allowed)


def describe(seen: Episode, t: int, allowed: Tensor, name: str) -> str:
    """How much survives at token t, and whether the token that was drawn does."""
    mass, number = samplers.kept(seen.logits["policy"][t : t + 1], allowed[t : t + 1])
    drawn = "survives" if allowed[t, seen.ids[t]] else "is cut"
    return (
        f"token {t} (0 to {len(seen.ids) - 1}): {int(number)} of {allowed.shape[1]} tokens survive {name}; "
        f"they hold {mass.item():.3f} of the policy's mass; the token that was drawn, “{seen.words[t]}”, {drawn}"
    )


def bars(seen: Episode, t: int, allowed: Tensor, tokenizer, name: str):
    """The policy's likeliest tokens at token t, those that survive in blue; the other models as marks; the drawn one
    framed."""
    chance, order = seen.logits["policy"][t].softmax(-1).sort(descending=True, stable=True)
    order, chance = order[:LIKELIEST], chance[:LIKELIEST]
    kept, drawn = allowed[t, order].tolist(), (order == seen.ids[t]).tolist()
    words = [static.word(tokenizer, i) for i in order.tolist()]
    figure, (axis,) = static.panels(1, 8.4, 3.0)
    axis.bar(
        range(len(words)),
        chance,
        color=[static.KEPT if k else static.CUT for k in kept],
        edgecolor=[static.INK if d else "none" for d in drawn],
        linewidth=2,
        label="policy (blue: survives; framed: drawn)",
    )
    for (other, logits), marker, color in zip(list(seen.logits.items())[1:], ("D", "x"), ("#D55E00", "#000000")):
        axis.plot(
            logits[t].softmax(-1)[order],
            marker,
            color=color,
            fillstyle="none",
            markersize=6,
            markeredgewidth=1.4,
            label=other,
        )
    axis.set_xticks(
        range(len(words)), [w.replace("$", r"\$") for w in words], rotation=60, ha="right", rotation_mode="anchor"
    )
    axis.set(ylabel="probability", ylim=(0, None))
    axis.grid(False, axis="x")
    axis.legend(frameon=False, fontsize=9)
    after = f"after “{' '.join(seen.words[max(0, t - 4) : t])}”" if t else "after the prompt"
    axis.set_title(f"{after}: the {len(words)} likeliest tokens".replace("$", r"\$"), fontsize=11)
    said = ", ".join(f"{w} {c:.2f} {'kept' if k else 'cut'}" for w, c, k in zip(words[:6], chance.tolist(), kept))
    return alt_text(figure, f"The likeliest tokens under the policy, and which survive {name}: {said}.")


def _options(rule: str) -> dict:
    values, first = VALUES.get(rule, (MASSES, MASSES[-2])) if rule != SAMPLED else VALUES["none"]
    return {"options": [(f"{v:g}", v) for v in values], "value": first}


def _text(experience: Experience, row: int, seen: Episode, t: int) -> str:
    """The episode with the token in a frame."""
    frame = (
        '<span aria-current="true" style="border:2px solid currentColor;border-radius:3px;padding:0 '
        '2px;font-weight:bold">'
    )
    words = [f"{frame}{html.escape(w)}</span>" if i == t else html.escape(w) for i, w in enumerate(seen.words)]
    prompt = html.escape(experience.rollout.prompts.texts[row])
    text = (
        f'<p style="line-height:1.7">episode {row}, score {experience.scores[row]:.3f}: <i>{prompt}</i> » '
        f"{' '.join(words)}</p>"
    )
    if seen.moved < MOVED:
        return text
    return text + (
        f'<p style="line-height:1.5">The policy is not the one that wrote this episode any more: its '
        f"log-probability of a token "
        f"here has moved by up to {seen.moved:.2g} nats. KL, values, rewards and advantages are from then.</p>"
    )


def _table(seen: Episode, allowed: Tensor, t: int, around: int) -> str:
    first, last = max(0, t - around), min(len(seen.ids), t + around + 1)
    rows = []
    for i in range(first, last):
        kept = "survives" if allowed[i, seen.ids[i]] else "cut"
        rows.append(
            [str(i), seen.words[i], *(f"{round(float(v), 3) + 0.0:.3f}" for v in seen.table.iloc[i]), kept]
        )  # no -0.000
    chances = [f"{name}, p" if name in seen.logits else name for name in seen.table]
    return (
        static.table(["", "token", *chances, "under the sampler"], rows, mark=t - first)
        + f'<p style="line-height:1.5"><small>{NOTE}</small></p>'
    )
