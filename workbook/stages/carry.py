"""Take what a long profile has finished to another machine, in git: small files, no weights.

    python -m workbook.stages.carry PROFILE      # what is finished and not packed yet: profiles/PROFILE/finished/

Commit the new file. `make reproduce PROFILE=...` unpacks all of them first, so that it goes on where the machines
before it stopped: the tables that are committed in the end are the same bytes (of a curve and of prompts no more is
packed than they hold, of episodes the first seed's). A finished seed counts as ever under the key of all that decides
its numbers, the bytes of the models that it started from among them: where these differ, what was unpacked is left
aside and the seed runs again. After an edit of the code that changes no digit (`rekey`), its folder under the new key
points to it. Runs that others start from are not packed, as their policies would have to be. Once the profile's tables
are committed, its folder `finished` can go.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

from rlnlp.settings import ConfigError
from workbook.results.files import CURVES, PER_SEED
from workbook.results.tidy import shown, thinned
from workbook.runs import checks, conditions
from workbook.runs.params import Params
from workbook.stages import cards, depends
from workbook.store import rekeyed
from workbook.store.archives import unpacked
from workbook.store.files import atomic_json, atomic_write, is_sealed, read_json, seal, whole
from workbook.store.fingerprint import digest
from workbook.store.tables import read_table, write_table

RESPONSES, EPISODE = "samples.json", "episode.json"  # of a finished seed
IN_PLACE = "policy/README.md"  # of its weights, which stay where they were trained
SAID = "These weights stayed on the machine that trained them. Remove this seed's folder to train it again.\n"
SEED, ROW = "runs/*/*/final", "tune/*/*/row.json"
FINAL = r"runs/[\w-]+/seed\d+-[0-9a-f]{16}/final/(\.hash|[\w.]+|policy/README\.md)"
PLACE = re.compile(FINAL + r"|tune/[\w-]+/[\w.+-]+/row\.json")


def pack(params: Params) -> Path | None:
    """Write the next archive of what no archive has; None where there is nothing."""
    folder, known = archives(params), {name for path in packed(params) for name in names(path)}
    followed = {entry.get("start") for entry in params.all_runs.values()}
    seeds = [
        path
        for path in sorted(params.scratch.glob(SEED))
        if path.parents[1].name in params.all_runs
        and path.parents[1].name not in followed
        and f"{path.relative_to(params.scratch)}/.hash" not in known
        and not path.is_symlink()  # of `recount`: it is there under its own key
        and is_sealed(path)
    ]
    rows = [path for path in sorted(params.scratch.glob(ROW)) if f"{path.relative_to(params.scratch)}" not in known]
    if not seeds and not rows:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    out = folder / f"{len(packed(params)) + 1:04d}.tar.xz"
    with tempfile.TemporaryDirectory() as given:
        fresh = Path(given)
        for path in seeds:
            _slim(path, fresh / path.relative_to(params.scratch), params.seeds[0])
        for path in rows:
            place = fresh / path.relative_to(params.scratch)
            place.parent.mkdir(parents=True)
            shutil.copyfile(path, place)
        part = out.with_name(f".{out.name}.part")
        with tarfile.open(part, "w:xz", preset=9) as archive:
            for path in sorted(p for p in fresh.rglob("*") if p.is_file()):
                archive.add(path, path.relative_to(fresh).as_posix(), filter=_nobody)
        part.replace(out)
    return out


def _slim(final: Path, place: Path, first: int) -> None:
    """What is packed of a finished seed; first: the profile's first seed."""
    (place / "policy").mkdir(parents=True)
    (place / IN_PLACE).write_text(SAID)
    shutil.copyfile(final / PER_SEED, place / PER_SEED)
    atomic_json(place / RESPONSES, [shown(sample) for sample in read_json(final / RESPONSES)])
    curve = read_table(final / CURVES)
    columns = list(curve[0]) if curve else []
    write_table(place / CURVES, [{name: row.get(name) for name in columns} for row in thinned(curve)], columns)
    if final.parent.name.startswith(f"seed{first}-") and (final / EPISODE).is_file():
        atomic_json(place / EPISODE, shown(read_json(final / EPISODE)))
    seal(place)


def unpack(folder: Path, scratch: Path) -> int:
    """Put what is packed in a profile's folder where its runs look for it, and leave what is there; how many seeds and
    candidates were put there. Raises: ConfigError naming an archive that is damaged or holds anything else."""
    put = 0
    for path in sorted((folder / "finished").glob("*.tar.xz")):
        with unpacked(path, PLACE, "finished seeds and candidates", scratch) as found:
            for one in [*sorted(found.glob(SEED)), *sorted(found.glob(ROW))]:
                place = scratch / one.relative_to(found)
                if place.exists():
                    continue
                if one.is_file():
                    atomic_write(place, one.read_bytes())
                else:
                    with whole(place) as fresh:
                        shutil.copytree(one, fresh, dirs_exist_ok=True)
                put += 1
    return put


def recount(folder: Path, condition: str) -> int:
    """Let finished seeds of a condition count whose code was edited since without changing a digit: their folder under
    today's key points to them. How many; asked before the condition runs, when all that it starts from is there."""
    with contextlib.chdir(folder):  # where its runs look for what they start from: a base model's place is relative
        return _recount(condition) if rekeyed.names(depends.ROOT) else 0


def _begun(condition: str) -> conditions.Condition | None:
    """A condition, where some seed of it is finished here by whatever code and its keys can be asked."""
    if not Path("build/conditions", f"{condition}.json").is_file():
        return None
    given = conditions.load_condition(condition)
    there = any((given.scratch / "runs" / condition).glob("*/final"))
    return given if there and cards.there(given.device) else None  # its key names the GPU; its stage says so


def _recount(condition: str) -> int:
    if (given := _begun(condition)) is None:
        return 0
    from workbook.runs import experiment  # brings torch

    home, config = given.scratch / "runs" / condition, given.config(**experiment.chosen(given))
    put = 0
    for seed in given.seeds:
        known = experiment.inputs(given, seed, given.run, experiment.settings_of(given, seed, config))
        codes = known["code"], *rekeyed.others(depends.ROOT, known["code"])
        now, *before = (home / f"seed{seed}-{digest({**known, 'code': code})[:16]}" for code in codes)
        if (now / "final").is_symlink() and not (now / "final").exists():
            (now / "final").unlink()  # what it led to was removed: the seed is trained again
        if not (now / "final").exists() and (there := [path for path in before if is_sealed(path / "final")]):
            now.mkdir(exist_ok=True)
            (now / "final").symlink_to(Path("..") / there[0].name / "final", target_is_directory=True)
            put += 1
    return put


def finished(folder: Path, condition: str) -> set[int]:
    """The seeds of a condition that lie finished in the scratch, by today's code and settings."""
    with contextlib.chdir(folder):
        if (given := _begun(condition)) is None:
            return set()
        from workbook.runs import experiment  # brings torch

        tuned = experiment.chosen(given)
        places = {seed: experiment.place(given, seed, tuned)[1] for seed in given.seeds}
        return {seed for seed, place in places.items() if experiment.finished(given, place / "final")}


def archives(params: Params) -> Path:
    """The folder of a profile's archives."""
    return params.folder / "finished"


def packed(params: Params) -> list[Path]:
    """The archives of a profile, in order."""
    return sorted(archives(params).glob("*.tar.xz"))


def names(path: Path) -> Iterator[str]:
    """The files of an archive."""
    with tarfile.open(path) as archive:
        yield from archive.getnames()


def _nobody(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """The same archive from the same files, whoever packs it and when."""
    member.mtime, member.uid, member.gid, member.uname, member.gname, member.mode = 0, 0, 0, "", "", 0o644
    return member


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m workbook.stages.carry", description=__doc__.partition("\n")[0])
    parser.add_argument("profile", help="mini (top level) or the name of a folder in profiles/")
    args = parser.parse_args(argv)
    folder = Path() if args.profile == "mini" else Path("profiles") / args.profile
    try:
        out = pack(checks.load(folder / "params.yaml"))
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"wrote {out} ({out.stat().st_size / 1000:.0f} kB); commit it" if out else "nothing new is finished")
    return 0


if __name__ == "__main__":
    sys.exit(main())
