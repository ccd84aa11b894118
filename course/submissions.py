"""Six made-up students: what each hands in for an assignment, and what a plausible mistake must cost.

correct, wrong, empty and crashing hand in everything; endless and dying are about the kernel and need one assignment.
"""

from __future__ import annotations

import copy

from course.cells import filled, name, role

STUDENTS = ("correct", "wrong", "empty", "crashing")
KERNEL = ("endless", "dying")

# assignment -> solution cell -> (what the student wrote, {test that must fail: a part of what it must say}).
# No other test may fail.
MISTAKES = {
    "ps1": {
        "mask": (
            "mask = torch.ones_like(responses, dtype=torch.bool)\nmask[:, 1:] = responses[:, :-1] != eos\nreturn mask",
            {"mask-hidden": "nothing after it is real again"},
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
}


def hand_in(student: str, release: dict, assignment: dict, mistakes: dict) -> dict:
    """The notebook that a student hands in. release, assignment: the student's and the instructor's notebook."""
    notebook = copy.deepcopy(release)
    originals = {name(cell): cell for cell in assignment["cells"]}
    own = [cell for cell in notebook["cells"] if role(cell, "solution") and student != "empty"]
    code = [cell for cell in own if cell["cell_type"] == "code"]
    for cell in own:
        wrong = mistakes.get(name(cell), (None,))[0] if student == "wrong" else None
        body = "1 / 0" if student == "crashing" and cell in code else wrong
        cell["source"] = filled(originals[name(cell)], body)
    if student == "endless":
        code[0]["source"] = "while True:\n    pass\n" + code[0]["source"]
    if student == "dying":
        code[1]["source"] = "import os\nos._exit(1)\n" + code[1]["source"]
    return notebook
