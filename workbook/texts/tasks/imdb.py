"""Real film reviews, other ones in every draw for as long as they last."""

from __future__ import annotations

from random import Random

from rlnlp.settings import nearest
from workbook.texts.hub import DataError, beside, find, load_dataset
from workbook.texts.tasks import Task, halves


def load(params, draw: int) -> dict[str, list[dict]]:
    """Real film reviews (hub id ``imdb``: columns text, label; splits train, unsupervised, test).

    ``<br />`` becomes a blank, blanks become one space; a text that occurs again (also in a later split) is dropped.
    Labels for the reward model and for the judge are different reviews of ``train``. The language model reads other
    reviews of ``train`` and ``unsupervised``, in the shares these have; its validation, the evaluator and the
    training prompts are other ``unsupervised`` reviews; the other prompts and the human reviews are of ``test``. A
    prompt is the first half of a review's words (as in the original), its reference the other half (the original:
    the whole review). Draws are disjoint for as long as a split lasts, then it is shuffled again.

    Raises: DataError for a source not found or not of this form, and for more reviews asked for than there are.
    """
    task = params.task
    splits = splits_of(params)
    train, unsupervised, test = (splits[name] for name in ("train", "unsupervised", "test"))
    labelled = [("reward", task.reward_reviews), ("reward_validation", task.reward_validation_reviews)]
    labelled.append(("judge", task.judge_reviews))
    unlabelled = [("language_model_validation", task.language_model_validation_reviews)]
    unlabelled += [("evaluator", task.evaluator_reviews), ("prompts_train", task.train_prompts)]
    held_out = [("prompts_validation", task.validation_prompts), ("prompts_test", task.test_prompts)]
    held_out.append(("human_reviews", params.evaluation.human_reviews))
    spare_train = len(train) - sum(n for _, n in labelled)
    spare_unsupervised = len(unsupervised) - sum(n for _, n in unlabelled)
    wanted = task.language_model_reviews
    from_train = round(wanted * len(train) / max(len(train) + len(unsupervised), 1))
    from_train = max(0, min(max(from_train, wanted - spare_unsupervised), spare_train))
    parts = {
        **_window("train", train, [*labelled, ("language_model", from_train)], draw),
        **_window("test", test, held_out, draw),
    }
    rest = _window("unsupervised", unsupervised, [*unlabelled, ("language_model", wanted - from_train)], draw)
    mixed = parts["language_model"] + rest["language_model"]
    parts |= {**rest, "language_model": Random(f"imdb mixed {draw}").sample(mixed, len(mixed))}
    for part in ("prompts_train", "prompts_validation", "prompts_test"):
        parts[part] = [halves(row) for row in parts[part]]
    return parts


def _window(split: str, rows: list[dict], parts: list[tuple[str, int]], draw: int) -> dict[str, list[dict]]:
    """Draw ``draw``'s share of a split, cut into parts. Draws are neighbouring windows of one shuffle; when the next
    one does not fit any more, the split is shuffled anew."""
    size = sum(n for _, n in parts)
    if size > len(rows):
        asked = " + ".join(f"{name} {n}" for name, n in parts)
        raise DataError(f"imdb: {split} holds {len(rows)} different reviews, but {asked} = {size} were asked for")
    lap, place = divmod(draw, len(rows) // max(size, 1))
    shuffled = Random(f"imdb {split} {lap}").sample(rows, len(rows))[place * size : (place + 1) * size]
    cut, begin = {}, 0
    for name, n in parts:
        cut[name] = shuffled[begin : begin + n]
        begin += n
    return cut


def splits_of(params) -> dict[str, list[dict]]:
    """{split: rows {id, text[, label]}}, cleaned, without repeated texts (first of test, then train, unsupervised).

    params: anything with ``mirror``.
    """
    source = find("datasets", "imdb", beside(params, params.mirror))
    loaded = load_dataset(source)
    missing = [name for name in ("train", "unsupervised", "test") if name not in loaded]
    if missing:
        raise DataError(f"imdb at {source}: no split {missing}; there: {list(loaded)}")
    splits, seen = {}, set()
    for split in ("test", "train", "unsupervised"):
        columns = loaded[split].column_names
        for column in ("text", "label"):
            if column not in columns:
                raise DataError(f"imdb at {source}: {split} has no column {column!r}{nearest(column, columns)}")
        splits[split] = []
        rows = loaded[split].with_format(None)[:]  # all at once: row by row takes ten times as long
        for number, (text, label) in enumerate(zip(rows["text"], rows["label"])):
            text = " ".join((text or "").replace("<br />", " ").split())
            if not text or (key := text.lower()) in seen:
                continue
            seen.add(key)
            known = {"label": int(label)} if label in (0, 1) else {}
            splits[split].append(dict(id=f"imdb/{split}/{number}", text=text, **known))
    return splits


TASK = Task(
    load,
    source="hub id imdb (Maas et al. 2011)",
    licence="none stated; research use, cite Maas et al. 2011",
    hub="imdb",
)
