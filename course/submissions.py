"""Made-up students: what each hands in for an assignment, and what a plausible mistake must cost.

correct, other, wrong and empty hand in everything; wrong2 and so on where a cell has more than one mistake to make;
crashing, endless and dying are about how a cell can end, not about what it is asked, and need one assignment.
"""

from __future__ import annotations

import copy

from course.cells import filled, name, role

STUDENTS = ("correct", "other", "wrong", "empty")
MORE = tuple(f"wrong{n}" for n in range(2, 7))
KERNEL = ("crashing", "endless", "dying")

# assignment -> solution cell -> another right solution: in place, in float64, vectorised, from library functions.
OTHERS = {
    "ps1": {
        "mask": (
            "ends = responses == eos\n"
            "first = torch.where(ends.any(1), ends.int().argmax(1), responses.shape[1])\n"
            "return torch.arange(responses.shape[1]) <= first[:, None]"
        ),
        "pay": "kl *= -beta\nkl[~mask] = 0\nkl[range(len(kl)), mask.sum(1) - 1] += scores\nreturn kl",
        "returns": (
            "t = torch.arange(paid.shape[1])\n"
            "weights = float(gamma) ** (t - t[:, None]).clamp(min=0).double() * (t >= t[:, None])\n"
            "return (paid * mask).double() @ weights.T * mask"
        ),
    },
    "ps2": {
        "nucleus": (
            "ordered, order = torch.sort(logits, descending=True)\n"
            "cut = ordered.softmax(-1).cumsum(-1) >= p\n"
            "cut = torch.cat([torch.zeros_like(cut[:, :1]), cut[:, :-1]], 1) & (p < 1)\n"
            "return ~cut.gather(-1, order.argsort(-1))"
        ),
        "left": "logits[~allowed] = -float('inf')\nreturn torch.log_softmax(logits, dim=-1)",
        "count": "return allowed[mask].sum(-1).double().mean()",
    },
    "ps3": {
        "whiten": (
            "real = values[mask]\n"
            "values[~mask] = 0\n"
            "values[mask] = (real - real.mean()) / (real.std() + 1e-8)\n"
            "return values"
        ),
        "ppo": (
            "r = (logprobs - old_logprobs).exp()\n"
            "return -(torch.where(adv > 0, r.clamp(max=1 + clip), r.clamp(min=1 - clip)) * adv).mean()"
        ),
        "gradient": "return -torch.dot(logprobs, adv) / len(adv)",
    },
    "ps4": {
        "masked": "logits[~samplers.top_p(p)(mask_logits, None)[1]] = -torch.inf\nreturn torch.log_softmax(logits, -1)",
        "repaired": (
            "def sync(self, policy):\n"
            "    self.mask_model = models.frozen_copy(policy)\n"
            "    self.sample = partial(self.sample, mask_model=self.mask_model)\n"
            "\n"
            "def logprobs(self, policy, seen):\n"
            "    logits = models.head(policy, models.hidden_states(policy, seen)[seen.mask])\n"
            "    new = models.chosen_logprobs(models.behavior_logits(logits, seen), seen.responses[seen.mask])\n"
            "    return models.scatter(new, seen.mask)"
        ),
    },
    "ps5": {
        "target": "paid[~ended] += gamma * next_q[~ended].max(dim=1)[0]\nreturn paid",
        "steps": (
            "import numpy as np\nreturn torch.from_numpy(paid.double().numpy() @ gamma ** np.arange(paid.shape[1]))"
        ),
        "truth": (
            "if len(prefix) == horizon:\n"
            "    return score(prefix)\n"
            "after = [q_star((*prefix, token), score, vocabulary, horizon, gamma) for token in vocabulary]\n"
            "return after if len(prefix) + 1 == horizon else [gamma * max(values) for values in after]"
        ),
    },
    "ps6": {
        "pairs": "return torch.nn.functional.softplus(worse - better).mean()",
        "attack": (
            "text = ''\n"
            "for _ in range(length):\n"
            "    texts = [f'{text} {word}'.strip() for word in words]\n"
            "    text = texts[torch.as_tensor(score(texts)).argmax()]\n"
            "return text"
        ),
    },
    "ps7": {
        "overlap": (
            "best = 0.0\n"
            "for reference in references:\n"
            "    left, common = reference.split(), 0\n"
            "    for word in answer.split():\n"
            "        if word in left:\n"
            "            left.remove(word)\n"
            "            common += 1\n"
            "    if common:\n"
            "        P, R = common / len(answer.split()), common / len(reference.split())\n"
            "        best = max(best, 10 * P * R / (R + 9 * P))\n"
            "return best"
        ),
        "rule": "return ' '.join(f'the {word}' for word in concepts) + ' .'",
        "witness": (
            "def asked(seen):\n"
            "    notes.append(torch.as_tensor(judge(seen)).double().mean().item())\n"
            "    return score(seen)\n"
            "return asked"
        ),
        "parted": (
            "for update in range(len(paid)):\n"
            "    if paid[update] > paid[0] + margin and not judged[update] > judged[0] + margin:\n"
            "        return update"
        ),
    },
}

# assignment -> solution cell -> (what the student wrote, {test that must fail: a part of what it must say}).
# No other test may fail.
MISTAKES = {
    "ps1": {
        "mask": (
            "mask = torch.ones_like(responses, dtype=torch.bool)\nmask[:, 1:] = responses[:, :-1] != eos\nreturn mask",
            {"mask-hidden": "nothing after it is real again"},
        ),
        "pay": (  # the package's own, under another name
            "from rlnlp.losses import token_rewards as mine\nreturn mine(scores, kl * mask, mask, beta)",
            dict.fromkeys(("pay-seen", "pay-hidden"), "write it yourself, without token_rewards"),
        ),
        "play": (
            "world.reset(options={'row': row})\n"
            "total = 0.0\n"
            "for played, token in enumerate(tokens, 1):\n"
            "    _, reward, terminated, _, _ = world.step(token)\n"
            "    total += reward\n"
            "    if terminated:\n"
            "        return total, played, 'terminated'\n"
            "return total, len(tokens), 'running'",
            {"play-hidden": "no episode is running"},
        ),
    },
    "ps2": {
        "nucleus": (  # ranks, never put back into the order of the vocabulary
            "chances = logits.softmax(-1).sort(-1, descending=True).values\n"
            "return (chances.cumsum(-1) - chances < p) | (p == 1)",
            {"nucleus-hidden": "not of rank v"},
        ),
        "left": (  # not renormalised
            "return logits.log_softmax(-1).masked_fill(~allowed, -torch.inf)",
            {"left-hidden": "yours sums to"},
        ),
    },
    "ps3": {
        "gae": (  # no mask
            "result, later, after = torch.zeros_like(paid), 0.0, 0.0\n"
            "for t in reversed(range(paid.shape[1])):\n"
            "    later = paid[:, t] + gamma * after - values[:, t] + gamma * lam * later\n"
            "    result[:, t], after = later, values[:, t]\n"
            "return result * mask",
            {"gae-hidden": "must not reach real tokens"},
        ),
        "ppo": (  # clipped, without the minimum
            "return -((logprobs - old_logprobs).exp().clamp(1 - clip, 1 + clip) * adv).mean()",
            {"ppo-hidden": "take the minimum"},
        ),
    },
    "ps4": {
        "masked": (  # the policy's own nucleus
            "_, allowed, _ = samplers.top_p(p)(logits, None)\n"
            "return logits.masked_fill(~allowed, -torch.inf).log_softmax(-1)",
            {"masked-hidden": "the mask model's nucleus decides"},
        ),
        "ratio": (  # a ratio that is not renormalised
            "logits = models.head(policy, models.hidden_states(policy, seen)[seen.mask])\n"
            "new = models.chosen_logprobs(logits, seen.responses[seen.mask])\n"
            "return (new - seen.behavior_logprobs[seen.mask]).exp()",
            {"ratio-hidden": "score it by the renormalised distribution"},
        ),
        "repaired": (  # a copy that the sampler never holds
            "def sync(self, policy):\n"
            "    self.mask_model = models.frozen_copy(policy)\n"
            "\n"
            "def logprobs(self, policy, seen):\n"
            "    logits = models.head(policy, models.hidden_states(policy, seen)[seen.mask])\n"
            "    new = models.chosen_logprobs(models.behavior_logits(logits, seen), seen.responses[seen.mask])\n"
            "    return models.scatter(new, seen.mask)",
            {"repaired-hidden": "the sampler still uses the old mask model"},
        ),
    },
    "ps5": {
        "target": (  # bootstraps past the end
            "return paid + gamma * next_q.max(-1).values",
            {"target-hidden": "nothing follows the end of an episode"},
        ),
        "double": (  # the two networks' parts exchanged
            "choice = target_q.argmax(-1, keepdim=True)\n"
            "return paid + gamma * online_q.gather(-1, choice).squeeze(-1) * ~ended",
            {"double-hidden": "the online network chooses, the target"},
        ),
    },
    "ps6": {
        "pairs": ("return -(better - worse).sigmoid().log().mean()", {"pairs-hidden": "must be taken together"}),
        "hacked": (
            "return after['score'] - before['score'] > margin and after['judge'] < before['judge']",
            {"hacked-hidden": "has not risen"},
        ),
    },
    "ps7": {
        "overlap": (  # a word counts as often as the answer says it
            "def one(reference):\n"
            "    mine, theirs = answer.split(), reference.split()\n"
            "    common = sum(word in theirs for word in mine)\n"
            "    return 10 * common / (len(mine) + 9 * len(theirs))\n"
            "return max(one(reference) for reference in references)",
            {"overlap-hidden": "a word counts as often as the reference has it"},
        ),
        "rule": (  # looks the answer up
            "known = {e.meta['concepts']: e.references[0] for e in test}\nreturn known.get(tuple(concepts), '')",
            {"rule-seen": "say every concept", "rule-hidden": "on other concepts METEOR"},
        ),
        "witness": (  # interferes
            "def asked(rollout):\n"
            "    given, parts = score(rollout)\n"
            "    notes.append(float(np.mean(judge(rollout))))\n"
            "    return given * (1 if notes[-1] else 0.5), parts\n"
            "return asked",
            {"witness-hidden": "what is paid must not change"},
        ),
        "parted": (  # compares with the update before
            "for update in range(1, len(paid)):\n"
            "    if paid[update] - paid[update - 1] > margin and judged[update] - judged[0] <= margin:\n"
            "        return update",
            {"parted-hidden": "compare with update 0"},
        ),
    },
}

# assignment -> one more such submission after the other, each of a student of its own: mistakes in a cell that has one.
_FIRST = (  # of ps4 4.3: what was allowed at the first tokens, and the policy's own nucleus there
    "_, nucleus, _ = samplers.top_p(p)(models.Decoder(policy, seen.prompts).logits(), None)\n"
    "kept = seen.allowed.unpack(seen.mask & (torch.arange(seen.mask.shape[1]) == 0))\n"
)
_RATIO = (  # of ps4 4.2: the right numbers
    "logits = models.head(policy, models.hidden_states(policy, seen)[seen.mask])\n"
    "if seen.allowed is not None:\n"
    "    logits = logits.masked_fill(~seen.allowed.unpack(seen.mask), -torch.inf)\n"
    "new = models.chosen_logprobs(logits, seen.responses[seen.mask])\n"
    "old = seen.behavior_logprobs[seen.mask]\n"
)
_MOVED = {"ratio-hidden": "a policy that has moved since: new / old probability of each real token"}
_ROW = {"own-mask-hidden": "compare every row, token by token"}

MORE_MISTAKES = {
    "ps1": [
        {
            "play": (  # whichever row is asked for
                "world.reset(options={'row': 0})\n"
                "total = 0.0\n"
                "for played, token in enumerate(tokens, 1):\n"
                "    _, reward, terminated, truncated, _ = world.step(token)\n"
                "    total += reward\n"
                "    if terminated or truncated:\n"
                "        return total, played, 'terminated' if terminated else 'truncated'\n"
                "return total, len(tokens), 'running'",
                {"play-hidden": "the prompt is number `row`, not always the first"},
            ),
        },
        {
            "play": (  # goes on until the world complains
                "world.reset(options={'row': row})\n"
                "total, played, end = 0.0, 0, 'running'\n"
                "for token in tokens:\n"
                "    try:\n"
                "        _, reward, terminated, truncated, _ = world.step(token)\n"
                "    except Exception:\n"
                "        break\n"
                "    total, played = total + reward, played + 1\n"
                "    end = 'terminated' if terminated else 'truncated' if truncated else end\n"
                "return total, played, end",
                {"play-hidden": "stop where the episode ends"},
            ),
        },
    ],
    "ps2": [
        {
            "left": (  # one sum for the whole batch
                "kept = logits.exp() * allowed\nreturn (kept / kept.sum()).log()",
                {"left-hidden": "what is left of each row must sum to 1"},
            ),
        },
    ],
    "ps3": [
        {
            "gae": (  # the next value is not discounted
                "result, later, after = torch.zeros_like(paid), 0.0, 0.0\n"
                "for t in reversed(range(paid.shape[1])):\n"
                "    later = (paid[:, t] + after - values[:, t] + gamma * lam * later) * mask[:, t]\n"
                "    result[:, t], after = later, values[:, t] * mask[:, t]\n"
                "return result",
                {"gae-seen": "delta and A as in the formulas", "gae-hidden": "no padding here: is gamma at V(t+1)"},
            ),
            "ppo": (  # trains nothing
                "ratio = (logprobs.detach() - old_logprobs).exp()\n"
                "return -torch.minimum(ratio * adv, ratio.clamp(1 - clip, 1 + clip) * adv).mean()",
                {"ppo-hidden": "the loss has lost its gradient"},
            ),
        },
        {
            "ppo": (
                "import numpy as np\n"
                "ratio, A = np.exp((logprobs - old_logprobs).detach().numpy()), adv.numpy()\n"
                "return torch.tensor(-np.minimum(ratio * A, ratio.clip(1 - clip, 1 + clip) * A).mean())",
                {"ppo-hidden": "the loss has lost its gradient"},
            ),
        },
    ],
    "ps4": [
        {
            "ratio": (_RATIO + "return (old - new).exp()", _MOVED),
            "own-mask": (_FIRST + "return torch.equal(kept.sum(-1), nucleus.sum(-1))", _ROW),
            "repaired": (  # the ratio is 1 for ever
                "def sync(self, policy):\n"
                "    models.sync(self.mask_model, policy)\n"
                "\n"
                "def logprobs(self, policy, seen):\n"
                "    return seen.behavior_logprobs",
                {"repaired-hidden": "score with the policy as it is now"},
            ),
        },
        {
            "ratio": (_RATIO + "return (new - old).exp().mean()", _MOVED),
            "own-mask": (_FIRST + "return not (nucleus & ~kept).any()", _ROW),
            "repaired": (  # under the mask of today, not of the day when the text was drawn
                "def sync(self, policy):\n"
                "    models.sync(self.mask_model, policy)\n"
                "\n"
                "def logprobs(self, policy, seen):\n"
                "    new, old = (\n"
                "        models.head(m, models.hidden_states(m, seen)[seen.mask]) for m in (policy, self.mask_model)\n"
                "    )\n"
                "    new = new.masked_fill(~samplers.top_p(self.p)(old, None)[1], -torch.inf)\n"
                "    return models.scatter(models.chosen_logprobs(new, seen.responses[seen.mask]), seen.mask)",
                {"repaired-hidden": "under what was allowed when the text was drawn"},
            ),
        },
        {
            "ratio": (_RATIO + "return (new - old).exp()[:1]", _MOVED),
            "own-mask": (_FIRST + "return bool((kept == nucleus).all(-1).any())", _ROW),
            "repaired": (  # right numbers that train nothing
                "def sync(self, policy):\n"
                "    models.sync(self.mask_model, policy)\n"
                "\n"
                "@torch.no_grad()\n"
                "def logprobs(self, policy, seen):\n"
                "    logits = models.head(policy, models.hidden_states(policy, seen)[seen.mask])\n"
                "    new = models.chosen_logprobs(models.behavior_logits(logits, seen), seen.responses[seen.mask])\n"
                "    return models.scatter(new, seen.mask)",
                {"repaired-hidden": "keep their gradient"},
            ),
        },
        {
            "ratio": (_RATIO + "return 1 + (new - old).abs()", _MOVED),
            "own-mask": (_FIRST + "return torch.equal(kept[0], nucleus[0])", _ROW),
        },
        {"ratio": (_RATIO + "return 1 + (new.exp() - old.exp())", _MOVED)},
    ],
    "ps5": [
        {
            "double": (  # an episode that goes on loses its reward
                "choice = online_q.argmax(-1, keepdim=True)\n"
                "return torch.where(ended, paid, gamma * target_q.gather(-1, choice).squeeze(-1))",
                {"double-hidden": "every row has its reward"},
            ),
            "cost": (  # as if each update sampled as many as the last
                "steps = sum(m['dqn/gradient_steps'] for m in history)\n"
                "return history[-1]['dqn/tokens'] * len(history) / steps",
                {"cost-hidden": "all 216 tokens over all 9 steps"},
            ),
        },
    ],
    "ps6": [
        {
            "pairs": (
                "return -torch.nn.functional.logsigmoid((better - worse).detach()).mean()",
                {"pairs-hidden": "the loss has lost its gradient"},
            ),
            "attack": (  # every text of so many words, where they are few
                "import itertools\n"
                "texts = [' '.join(text) for text in itertools.product(words[:3], repeat=length)]\n"
                "scores = [float(s) for s in score(texts)]\n"
                "return texts[scores.index(max(scores))]",
                {"attack-hidden": "greedily: the first word stays"},
            ),
        },
    ],
    "ps7": [
        {
            "overlap": (  # the largest P and the largest R, each of another reference
                "said = answer.split()\n"
                "pairs = [(sum((Counter(said) & Counter(r.split())).values()), len(r.split())) for r in references]\n"
                "P, R = max(n / len(said) for n, _ in pairs), max(n / size for n, size in pairs)\n"
                "return 10 * P * R / (R + 9 * P) if P else 0.0",
                {"overlap-hidden": "the best F of any one reference counts: 1.000"},
            ),
        },
        {
            "overlap": (  # the reference that has most words in common
                "said = Counter(answer.split())\n"
                "best = max((r.split() for r in references), key=lambda r: sum((said & Counter(r)).values()))\n"
                "return 10 * sum((said & Counter(best)).values()) / (said.total() + 9 * len(best))",
                {"overlap-hidden": "the best F of any one reference counts: 0.400"},
            ),
        },
        {
            "overlap": (  # each word counts once
                "def one(reference):\n"
                "    mine, theirs = answer.split(), reference.split()\n"
                "    return 10 * len(set(mine) & set(theirs)) / (len(mine) + 9 * len(theirs))\n"
                "return max(one(reference) for reference in references)",
                {"overlap-hidden": "a word that both say twice is two in common"},
            ),
            "parted": (  # what is paid beside update 0, the judge beside the update before
                "for update in range(1, len(paid)):\n"
                "    if paid[update] - paid[0] > margin and judged[update] - judged[update - 1] <= margin:\n"
                "        return update",
                {"parted-hidden": "compare it with update 0 too"},
            ),
        },
    ],
}


def mistakes(student: str, assignment: str) -> dict[str, tuple[str, dict[str, str]]]:
    """Solution cell -> (what this student wrote wrong, what it must cost); empty for those who make no mistake."""
    if student in MORE:
        return MORE_MISTAKES[assignment][MORE.index(student)]
    return MISTAKES[assignment] if student == "wrong" else {}


def bodies(student: str, assignment: str) -> dict[str, str]:
    """Solution cell -> what this student wrote there; the instructor's own elsewhere."""
    if wrong := mistakes(student, assignment):
        return {cell: body for cell, (body, _) in wrong.items()}
    return OTHERS[assignment] if student == "other" else {}


def hand_in(student: str, release: dict, original: dict, bodies: dict[str, str]) -> dict:
    """The notebook that a student hands in. release, original: the student's and the instructor's notebook."""
    notebook = copy.deepcopy(release)
    originals = {name(cell): cell for cell in original["cells"]}
    own = [cell for cell in notebook["cells"] if role(cell, "solution") and student != "empty"]
    code = [cell for cell in own if cell["cell_type"] == "code"]
    for cell in own:
        body = "1 / 0" if student == "crashing" and cell in code else bodies.get(name(cell))
        cell["source"] = filled(originals[name(cell)], body)
    if student == "endless":
        code[0]["source"] = "while True:\n    pass\n" + code[0]["source"]
    if student == "dying":
        code[1]["source"] = "import os\nos._exit(1)\n" + code[1]["source"]
    return notebook
