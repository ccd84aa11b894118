"""DailyDialog: the next turn of a conversation, with the act that it should have (Li et al. 2017, arXiv:1710.03957).

Prompt: the five turns before, each with "<EOU>" after it, which is text and no token of its own. As published, a target
has five turns before it: of a dialogue of n turns n - 5 are targets, and of one with five turns or fewer none (34 % of
the real training dialogues). Of a prompt that is too long the oldest turns are cut. The act of the target is in
``meta`` and not in the prompt: how often a constant act is right belongs beside every intent accuracy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from workbook.grue.example import Decode, Example, Published, Task
from workbook.grue.published import NATURALNESS, settings, table
from workbook.grue.rows import clean, column, each, references, truth
from workbook.grue.world import daily_dialog as world
from workbook.texts.hub import DataError

ACTS = {1: "inform", 2: "question", 3: "directive", 4: "commissive"}  # the hub's codes; its 0 is no act
WINDOW = 5
END = "<EOU>"


def read(rows: Sequence[Mapping]) -> list[Example]:
    """The targets of every dialogue, dialogue by dialogue, named by the dialogue's place and the turn's. Raises:
    RowsError."""
    return each(rows, _examples)


def _examples(row: Mapping, place: int) -> list[Example]:
    turns = [clean(str(turn)) for turn in column(row, "dialog", list)]
    acts = column(row, "act", list)
    if len(acts) != len(turns):
        raise DataError(f"act: expected {len(turns)}, one a turn, found {len(acts)}")
    unknown = [act for act in acts if act not in ACTS]
    if unknown:
        known = ", ".join(f"{code} {name}" for code, name in ACTS.items())
        raise DataError(f"act: expected one of {known}, found {unknown[0]!r}")
    empty = [turn for turn, text in enumerate(turns) if not text]
    if empty or not turns:
        raise DataError(f"dialog: expected turns with words, found {'none' if not turns else f'turn {empty[0]} empty'}")
    return [_example(row, turns, acts, turn, place) for turn in range(WINDOW, len(turns))]


def _example(row: Mapping, turns: list[str], acts: list[int], turn: int, place: int) -> Example:
    before = turns[turn - WINDOW : turn]
    return Example(
        id=f"dialogue-{place}-{turn}",
        before="",
        body=f" {END} ".join(before),
        after=f" {END}",
        references=references([turns[turn]]),
        source=" ".join(before),
        meta={
            "act": acts[turn],
            "previous_acts": tuple(acts[turn - WINDOW : turn]),
            "turns": tuple(before),
            **truth(world.facts(row, turn)),
        },
        shorten="left",
    )


def inform(example: Example) -> str:
    """The same statement, whatever was said: the act that most turns have."""
    return "i think so ."


def what_follows(example: Example) -> str:
    """A promise after a directive, else a statement: of real training turns and of generated ones the likeliest act
    after the last."""
    return "ok , i will ." if ACTS[example.meta["previous_acts"][-1]] == "directive" else inform(example)


def full_stop(example: Example) -> str:
    """Next to nothing: a classifier of acts has to name one, and names the likeliest."""
    return "."


def last_turn(example: Example) -> str:
    """What was said last."""
    return example.meta["turns"][-1]


COLUMNS = f"rouge_1 rouge_2 rouge_l rouge_lsum meteor sacrebleu bertscore intent {' '.join(NATURALNESS)}"
SETTINGS = settings(
    rl=dict(total_tokens=128_000),
    sup_rl=dict(total_tokens=64_000),
    supervised=dict(batch=32, epochs=20, learning_rate=1e-5, schedule="constant"),
    update_tokens=1280,
    learning_rate=1e-6,
    entropy_coef=0.0,
    kl_coef=0.2,
    target_kl=0.5,
    top_k=20,
    mask_p=0.9,
    sync=20,
    reward="0.25 meteor + 0.75 intent (after supervision also 0.5 + 0.5 and 0.75 + 0.25)",
    response_tokens="50 printed, 20 in the settings that were released",
)
TEST = {
    "zero_shot": "0.157 0.012 0.131 0.131 0.191 0.066 0.854 0.427 0.608 0.055 0.316 7.787 1574 18.685",
    "supervised": "0.162 0.020 0.138 0.138 0.186 0.064 0.855 0.437 0.635 0.065 0.342 8.051 1925 18.919",
    "ppo": "0.168 0.012 0.142 0.142 0.221 0.085 0.861 0.474 0.581 0.058 0.310 7.653 1719 18.538",
    "nlpo": "0.169 0.013 0.142 0.142 0.221 0.087 0.860 0.490 0.568 0.059 0.309 7.630 1718 18.397",
    "sup_ppo": "0.169 0.021 0.144 0.144 0.198 0.071 0.857 0.455 0.626 0.068 0.348 8.056 1983 18.829",
    "sup_nlpo": "0.171 0.020 0.146 0.146 0.205 0.074 0.858 0.454 0.624 0.070 0.349 8.044 2051 18.763",
}

TASK = Task(
    name="daily_dialog",
    title="DailyDialog: the next turn",
    hub="li2017dailydialog/daily_dialog",
    config="",
    licence="CC BY-NC-SA 4.0",
    mirror=("daily_dialog",),
    splits={"train": "train", "validation": "validation", "test": "test"},
    read=read,
    rows=world.rows,
    judge=world.judge,
    trivial={
        "always inform": inform,
        "what mostly follows": what_follows,
        "a full stop": full_stop,
        "last turn": last_turn,
    },
    reward={"meteor_stem": 0.25, "intent": 0.75},
    metrics=(
        *("intent", "meteor_stem", "rouge_1", "rouge_2", "rouge_l", "rouge_lsum", "sacrebleu", "bertscore"),
        *NATURALNESS,
    ),
    prompt_tokens=128,
    response_tokens=20,
    decode=Decode(max_new_tokens=20, min_new_tokens=2, sample=True, top_k=20),
    published=Published(SETTINGS, table(COLUMNS, TEST), "v2, Tables 32 and 33", "test"),
    causal=True,
)
