"""Make the base model of real reviews that many runs start from: measure, choose, train.

    python -m workbook.stages.base_model speed SETTINGS   # tokens per second of each candidate, steps that fit
    python -m workbook.stages.base_model pilot SETTINGS   # candidates at small budgets on burn reviews
    python -m workbook.stages.base_model train SETTINGS   # the model, in half precision, with card and samples

SETTINGS: a YAML file, e.g. profiles/reviews/base_model.yaml. Stop each at any time; the same command goes on.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from pydantic import Field, ValidationError, model_validator
from tqdm import tqdm

from rlnlp.settings import ConfigError, Settings
from workbook.draws import pilot
from workbook.draws.prose import Prose, Shop, check_size
from workbook.draws.release import release
from workbook.draws.shapes import Misfit
from workbook.draws.training import TrainingError
from workbook.figures import bits, parts
from workbook.runs.reading import read
from workbook.stages.command import status
from workbook.store.tables import write_table
from workbook.texts.hub import DataError
from workbook.texts.reviews import SIZES, by_role
from workbook.texts.tasks.imdb import splits_of

DEFAULT = Path("profiles/reviews/base_model.yaml")


class Pilot(Settings):
    """Candidates for the base model, and how long each is tried."""

    minutes: float = Field(gt=0, le=600, description="that each candidate's steps were chosen to take; see `speed`")
    shares: tuple[float, ...] = Field((0.25, 0.5, 1.0), description="of the steps, each a training of its own")
    candidates: dict[str, dict[str, Any]] = Field(description="name: what differs from `model`, its steps included")


class Plan(Settings):
    """One base model: its texts, shape, training and budget. Paths are relative to the file."""

    mirror: str = Field("", description="folder that holds datasets/imdb; empty: $RLNLP_MIRROR, then the hub")
    work: str = Field(description="folder of states and finished parts, untracked")
    out: str = Field(description="folder of the finished model")
    report: str = Field(description="folder of the pilot's table and figure")
    seed: int = Field(0, ge=0, le=10**9, description="of weights, batches and samples")
    threads: int = Field(2, ge=1, le=64, description="of torch; part of what decides the last digits")
    device: str = Field("cpu", pattern=r"^(cpu|cuda(:\d+)?)$", description="where models are trained and measured")
    largest_mb: float = Field(12.0, gt=0, le=1e6, description="of the weights in half precision, 10^6 bytes")
    samples: int = Field(400, ge=1, le=10**5, description="texts in which invented words are counted")
    sizes: dict[str, int] = Field(default=SIZES, description="reviews of each role; see workbook.texts.reviews")
    model: Prose
    pilot: Pilot

    @model_validator(mode="after")
    def _candidates_are_models(self):
        for name, changes in self.pilot.candidates.items():
            try:
                self.model.replace(**changes)
            except ValueError as error:
                said = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
                key = ".".join(map(str, error.errors()[0]["loc"])) if isinstance(error, ValidationError) else ""
                raise Misfit((("pilot", "candidates", name, key), said)) from None
        if not self.pilot.shares or not all(0 < share <= 1 for share in self.pilot.shares):
            raise Misfit((("pilot", "shares"), f"expected shares above 0, at most 1, found {self.pilot.shares}"))
        return self

    def candidates(self) -> dict[str, Prose]:
        """The candidates, whole."""
        return {name: self.model.replace(**changes) for name, changes in self.pilot.candidates.items()}


def load(path: Path) -> Plan:
    """The settings of a file. Raises: ConfigError naming the file, the keys, and what was expected."""
    raw, lines = read(path)
    try:
        return Plan.model_validate(raw)
    except ValidationError as error:
        said = []
        for one in error.errors():
            inner = one.get("ctx", {}).get("error")
            where, what = one["loc"], one["msg"]
            if isinstance(inner, Misfit):
                where, what = (*where, *inner.problems[0][0]), inner.problems[0][1]
            at = next((lines[where[:n]] for n in range(len(where), 0, -1) if where[:n] in lines), None)
            said.append(f"{f'line {at}: ' if at else ''}{'.'.join(map(str, where)).rstrip('.')}: {what}")
        raise ConfigError(f"{path}: " + "; ".join(said), said) from None


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m workbook.stages.base_model",
        description=__doc__.partition("\n")[0],
        epilog="Stop a command at any time; the same one goes on where it stopped.",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    said = {
        speeds: "tokens per second of each candidate, and the steps that fit the pilot's minutes",
        piloted: "candidates at small budgets on burn reviews: pilot.csv and pilot.svg",
        trained: "the base model in half precision, with its card and samples",
    }
    for work, name in ((speeds, "speed"), (piloted, "pilot"), (trained, "train")):
        command = commands.add_parser(name, help=said[work], description=said[work])
        command.add_argument("settings", nargs="?", type=Path, default=DEFAULT, help=f"default: {DEFAULT}")
        command.set_defaults(work=work)
    given = parser.parse_args(argv)
    try:
        plan = load(given.settings)
        return status(lambda: given.work(plan, given.settings.parent), False, "the same command goes on")
    except (ConfigError, DataError, TrainingError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def speeds(plan: Plan, folder: Path) -> bool:
    """Print a line per candidate; nothing is kept."""
    shop, _ = prepared(plan, folder)
    print(f"{'candidate':<24}{'weights':>12}{'MB':>7}{'tokens/s':>10}{'steps in ' + f'{plan.pilot.minutes:g} min':>20}")
    for name, candidate in {"model": plan.model, **plan.candidates()}.items():
        found = pilot.speed(shop, candidate)
        fit = pilot.steps_within(found, candidate, plan.pilot.minutes)
        print(f"{name:<24}{candidate.weights:>12,}{candidate.megabytes:>7.1f}{found:>10,.0f}{fit:>20,}", flush=True)
    return True


def piloted(plan: Plan, folder: Path) -> bool:
    """Write pilot.csv and pilot.svg into the report's folder."""
    for candidate in plan.candidates().values():
        check_size(candidate, plan.largest_mb)
    shop, roles = prepared(plan, folder)
    rows = pilot.rows(shop, plan.candidates(), plan.pilot.shares, plan.pilot.minutes, roles["language_model_burn"])
    write_table(folder / plan.report / "pilot.csv", rows)
    picture = parts.save(bits.pilot(rows), folder / plan.report, "pilot")
    best = pilot.best(rows)
    print(f"wrote {picture} and pilot.csv beside it; lowest at the whole budget: {best['candidate']}")
    return True


def trained(plan: Plan, folder: Path) -> bool:
    """Write the finished model's folder."""
    check_size(plan.model, plan.largest_mb)
    shop, roles = prepared(plan, folder)
    held_out, human = roles["language_model_validation"], roles["human_reviews"]
    facts = release(shop, plan.model, held_out, human, folder / plan.out, plan.samples, plan.largest_mb)
    found = facts["invented"]
    print(
        f"wrote {folder / plan.out}: {facts['bits_per_byte']:.4f} bits per byte, 5-gram "
        f"{facts['five_gram_bits_per_byte']:.4f}; invented words {found['share']:.2%}, human {found['human_share']:.2%}"
    )
    return True


def prepared(plan: Plan, folder: Path) -> tuple[Shop, dict[str, list[str]]]:
    """Where models are made, and the texts of each role. Raises: DataError."""
    torch.set_num_threads(plan.threads)
    source = plan.model_copy(update={"mirror": str(folder / plan.mirror) if plan.mirror else ""})
    with tqdm(total=1, desc="reading the reviews", file=sys.stderr, bar_format="{desc} ({elapsed})") as bar:
        roles = by_role(splits_of(source), plan.sizes)
        bar.update()
    texts = {name: [row["text"] for row in rows] for name, rows in roles.items() if not name.startswith("prompts")}
    return Shop(texts["language_model"], folder / plan.work, plan.seed, plan.threads, plan.device), texts


if __name__ == "__main__":
    sys.exit(main())
