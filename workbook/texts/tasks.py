"""``TASKS``: where the examples come from. A task is a frozen record of functions; adding one is adding an entry.

``load(params, draw)`` returns the rows of each file of a data folder (see ``workbook.texts.data``): no text is in two
parts, so that what judges a policy has not seen what trained it. Everything is seeded by the draw.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from random import Random

from rlnlp.settings import nearest
from workbook.texts import corpus, language
from workbook.texts.hub import DataError, find

EVALUATOR_DRAW = 1000  # the evaluator of draw k reads corpus draw 1000 + k
CSV_COLUMNS = ("prompt", "reference", "split")
SPLITS = ("train", "validation", "test")


@dataclass(frozen=True)
class Task:
    """load: (params, draw) -> {part: rows}; judge: (responses, prompts) -> parts [B], or None where a judge is
    trained; vocabulary: every word, or None where a tokenizer is trained; cut: (params, text) -> {"prompt",
    "reference"}, by default half of the words each; source and licence: for ``facts.json``. The source of a task that
    ``load`` reads from the hub begins with ``hub id <id>``."""

    name: str
    load: Callable
    source: str
    licence: str
    judge: Callable | None = None
    vocabulary: Callable | None = None
    cut: Callable = lambda params, text: cut_at(text, max(1, len(text.split()) // 2))


def hub_id(task: Task) -> str:
    """The data set of the hub that a task reads, by its ``source``; "" where it reads none."""
    words = task.source.split()
    return words[2] if words[:2] == ["hub", "id"] else ""


def normalised(text: str) -> str:
    """What decides whether two texts are the same: lower case, blanks as one space."""
    return " ".join(text.lower().split())


# -------------------------------------------------------------------------------------------- generated reviews
def load_generated(params, draw: int) -> dict[str, list[dict]]:
    """Reviews of corpus draw ``draw`` (``evaluator``: of draw 1000 + draw), each part from a stream of its own.

    A prompt is the first ``task.prompt_tokens`` words of a review, its reference the rest. A text (or prompt) that
    occurred in an earlier part is passed over and the stream read on.
    Raises: DataError if ``task.prompt_tokens`` leaves nothing of the shortest review.
    """
    task = params.task
    if task.prompt_tokens >= corpus.MIN_WORDS:
        limit = f"expected < {corpus.MIN_WORDS}, the shortest generated review"
        raise DataError(f"task.prompt_tokens: {limit}, got {task.prompt_tokens}")
    seen: set[str] = set()

    def reviews(part: str, n: int, draw: int = draw) -> list[dict]:
        cut = task.prompt_tokens if part.startswith("prompts") else None
        rows = _new_rows(part, n, draw, cut, seen)
        if cut is None:
            return rows
        return [dict(id=row["id"], **cut_at(row["text"], cut), label=row["label"]) for row in rows]

    return {
        "prompts_test": reviews("prompts_test", task.test_prompts),
        "prompts_validation": reviews("prompts_validation", task.validation_prompts),
        "prompts_train": reviews("prompts_train", task.train_prompts),
        "human_reviews": reviews("human_reviews", params.evaluation.human_reviews),
        "reward": reviews("reward", task.reward_reviews),
        "reward_validation": reviews("reward_validation", task.reward_validation_reviews),
        "judge": reviews("judge", task.judge_reviews),
        "language_model_validation": reviews("language_model_validation", task.language_model_validation_reviews),
        "language_model": reviews("language_model", task.language_model_reviews),
        "evaluator": reviews("evaluator", task.evaluator_reviews, draw + EVALUATOR_DRAW),
    }


def _new_rows(part: str, n: int, draw: int, cut: int | None, seen: set[str]) -> list[dict]:
    """The first ``n`` reviews of a stream whose text, and whose first ``cut`` words, are not in ``seen`` (added to)."""
    rows: list[dict] = []
    for number, review in enumerate(islice(corpus.stream(draw, part), 20 * n + 1000)):
        if len(rows) == n:
            break
        keys = {review.text, " ".join(review.text.split()[:cut])}
        if not keys & seen:
            seen |= keys
            rows.append({"id": f"draw{draw}/{part}/{number}", "text": review.text, "label": review.label})
    if len(rows) < n:
        raise DataError(f"generated reviews, draw {draw}: {part}: asked for {n}, found only {len(rows)} different ones")
    return rows


def cut_at(text: str, words: int) -> dict[str, str]:
    """The first words of a text as a prompt, the others as its reference."""
    split = text.split()
    return {"prompt": " ".join(split[:words]), "reference": " ".join(split[words:])}


# -------------------------------------------------------------------------------------------------- real reviews
def load_imdb(params, draw: int) -> dict[str, list[dict]]:
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
    splits = imdb_splits(params)
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


def halves(row: dict) -> dict:
    """A review as a prompt, the first half of its words, and a reference, the others."""
    label = {"label": row["label"]} if "label" in row else {}
    return dict(id=row["id"], **cut_at(row["text"], max(1, len(row["text"].split()) // 2)), **label)


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


def imdb_splits(params) -> dict[str, list[dict]]:
    """{split: rows {id, text[, label]}}, cleaned, without repeated texts (first of test, then train, unsupervised).

    params: anything with ``mirror``.
    """
    source = find("datasets", "imdb", _beside(params, params.mirror))
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


def load_dataset(source: Path | str):
    """A ``datasets.DatasetDict`` from a folder (``<split>.parquet``, or as on the hub) or from the hub.

    Raises: DataError that says which and why.
    """
    import datasets

    files = {path.stem: str(path) for path in sorted(source.glob("*.parquet"))} if isinstance(source, Path) else {}
    datasets.disable_progress_bars()
    try:
        return datasets.load_dataset("parquet", data_files=files) if files else datasets.load_dataset(str(source))
    except Exception as error:  # the hub, a cache and the file formats raise what they like
        hint = "" if isinstance(source, Path) else "; set RLNLP_MIRROR to a folder that holds datasets/" + str(source)
        place = f"folder {source}" if isinstance(source, Path) else f"hub id {source!r}"
        first = str(error).strip().splitlines() or [""]
        raise DataError(f"{place} could not be read as a data set: {type(error).__name__}: {first[0]}{hint}") from error
    finally:
        datasets.enable_progress_bars()


def _beside(params, path: str) -> Path | str:
    """A path of the params file, relative to that file."""
    return Path(getattr(params, "folder", ".")) / path if path else ""


# ------------------------------------------------------------------------------------------- bring your own prompts
def load_csv(params, draw: int) -> dict[str, list[dict]]:
    """Prompts from ``bring.prompts``: a CSV (UTF-8, comma) with a column ``prompt`` and, if wanted, ``reference`` and
    ``split`` (train, validation or test; given for all rows or for none).

    Without ``split``, rows are shuffled by the draw and split 80 / 10 / 10, rows with the same prompt together; each
    split gets at least one prompt. ``task.train_prompts`` and so on are the most that is used. With references the
    test rows also make ``human_reviews`` (prompt and reference).

    Raises: DataError naming the file and the row (the header is row 1) or the nearest column.
    """
    if not params.bring.prompts:
        raise DataError("task csv: bring.prompts is empty; set it to a CSV file with a column 'prompt'")
    path = _beside(params, params.bring.prompts)
    splits = _csv_splits(path, _csv_rows(path), draw)
    task, parts = params.task, {}
    for split, most in zip(SPLITS, (task.train_prompts, task.validation_prompts, task.test_prompts)):
        parts[f"prompts_{split}"] = splits[split][:most]
    human = [row for row in splits["test"] if row.get("reference")][: params.evaluation.human_reviews]
    if human:
        parts["human_reviews"] = [{"id": row["id"], "text": f"{row['prompt']} {row['reference']}"} for row in human]
    return parts


def _csv_rows(path: Path) -> list[dict]:
    if not path.is_file():
        there = sorted(p.name for p in path.parent.glob("*.csv")) if path.parent.is_dir() else []
        raise DataError(f"bring.prompts: {path}: no such file{nearest(path.name, there)}")
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, strict=True)
            columns = reader.fieldnames or []
            if not columns:
                raise DataError(f"bring.prompts: {path}: an empty file; expected a header with a column 'prompt'")
            for column in columns:
                if column not in CSV_COLUMNS:
                    raise DataError(f"bring.prompts: {path}: unknown column {column!r}{nearest(column, CSV_COLUMNS)}")
            if "prompt" not in columns or len(set(columns)) < len(columns):
                raise DataError(f"bring.prompts: {path}: expected one column 'prompt', found {columns}")
            rows = list(reader)
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"bring.prompts: {path}: not a CSV in UTF-8: {error}") from None
    if not rows:
        raise DataError(f"bring.prompts: {path}: a header and no rows")
    for number, row in enumerate(rows, 2):
        if None in row or None in row.values():
            raise DataError(f"bring.prompts: {path}, row {number}: expected {len(columns)} cells (quote commas)")
        if not row["prompt"].strip():
            raise DataError(f"bring.prompts: {path}, row {number}: the prompt is empty")
        if row.get("split") and row["split"] not in SPLITS:
            raise DataError(
                f"bring.prompts: {path}, row {number}: expected split {', '.join(SPLITS)}, "
                f"got {row['split']!r}{nearest(row['split'], SPLITS)}"
            )
    return rows


def _csv_splits(path: Path, rows: list[dict], draw: int) -> dict[str, list[dict]]:
    entries, given = [], {row.get("split") or "" for row in rows}
    for number, row in enumerate(rows, 2):
        reference = {"reference": row["reference"]} if row.get("reference") else {}
        entries.append((row.get("split") or "", dict(id=f"{path.name}/{number}", prompt=row["prompt"], **reference)))
    if given != {""}:
        return _given_splits(path, entries)
    groups: dict[str, list[dict]] = {}
    for _, entry in entries:
        groups.setdefault(normalised(entry["prompt"]), []).append(entry)
    if len(groups) < 3:
        raise DataError(f"bring.prompts: {path}: expected >= 3 different prompts (three splits), found {len(groups)}")
    order = Random(f"csv {draw}").sample(list(groups), len(groups))
    tenth = max(1, len(order) // 10)
    cut = {"test": order[:tenth], "validation": order[tenth : 2 * tenth], "train": order[2 * tenth :]}
    return {split: [entry for key in keys for entry in groups[key]] for split, keys in cut.items()}


def _given_splits(path: Path, entries: list[tuple[str, dict]]) -> dict[str, list[dict]]:
    splits: dict[str, list[dict]] = {split: [] for split in SPLITS}
    home: dict[str, str] = {}
    for split, entry in entries:
        where = f"bring.prompts: {path}, row {entry['id'].rpartition('/')[2]}"
        if not split:
            raise DataError(f"{where}: no split, though other rows have one")
        if home.setdefault(normalised(entry["prompt"]), split) != split:
            raise DataError(f"{where}: this prompt is in {home[normalised(entry['prompt'])]} and in {split}")
        splits[split].append(entry)
    for split, found in splits.items():
        if not found:
            raise DataError(f"bring.prompts: {path}: no row with split {split}")
    return splits


TASKS = {
    task.name: task
    for task in (
        Task(
            "generated_reviews",
            load_generated,
            "generated by workbook.texts.corpus",
            "that of this repository",
            corpus.judge_parts,
            language.vocabulary,
            lambda params, text: cut_at(text, params.task.prompt_tokens),
        ),
        Task("imdb", load_imdb, "hub id imdb (Maas et al. 2011)", "none stated; research use, cite Maas et al. 2011"),
        Task("csv", load_csv, "bring.prompts", "the user's"),
    )
}
