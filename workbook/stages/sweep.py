"""Hands the units of a pipeline's stages to workers, one each: to whom, and what to do where one dies or fails.

A worker that dies is forgotten and its unit given to another; one whose code or libraries are others is refused.
"""

from __future__ import annotations

import os
import re
import shutil
import tarfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError
from functools import cached_property
from pathlib import Path
from typing import Any
from uuid import uuid4

from rlnlp.settings import ConfigError
from workbook.runs import conditions
from workbook.stages import begun, carry, parcels, units
from workbook.stages.nb import ONLY_ASKED, ONLY_TRIED
from workbook.stages.pipeline import RUNS, key, kind
from workbook.stages.processes import ONE_THREAD
from workbook.stages.progress import progress_of
from workbook.stages.units import Outcome, Unit
from workbook.store.files import atomic_json, atomic_write, read_json
from workbook.store.locks import LockError

FETCH_S = 600.0  # seconds that what a worker finished may take to come, policies among it; then it is gone
TRIES = 3  # of a unit, where workers lack something, or die before it got further
GONE = "it is gone"
BAR = re.compile(r"(.*?):.* (\d+)/\d+ ")  # what is done, and its step
PLACES = "placement.json"  # in the scratch: draw -> kind of machine


class Sweep:
    """Hands the units of stages to workers. say: prints a line.

    Units of one draw go to one kind of machine, in a later session too: digits may differ between kinds.
    """

    def __init__(self, client: Any, folder: Path, scratch: Path, say: Callable[[str], None] = print):
        given = conditions.load_stage("models", folder)
        self.client, self.folder, self.scratch, self.say = client, folder.resolve(), scratch.resolve(), say
        self.root, mark = (self.folder / given.root).resolve(), self.scratch / "head" / uuid4().hex
        shutil.rmtree(mark.parent, ignore_errors=True)  # that of the head before
        atomic_write(mark, "")  # who sees this file shares our folder
        self.asking, self.unsent = (str(mark), given.task.name, given.device), parcels.unsent(given.bring)
        self.asked: dict[str, Any] = {}  # address -> future of what a worker says of itself, None once it is judged
        self.workers: dict[str, dict[str, Any]] = {}  # those that may take part
        self.had: dict[Any, str] = {}  # name of a worker that could take part, and has not ended -> kind of machine
        self.refused: dict[Any, str] = {}  # name of a worker -> why
        self.busy: dict[str, tuple[Unit, Any]] = {}
        self.queue: list[Unit] = []
        self.open: dict[str, set[Unit]] = {}  # stage -> its units that are not done
        self.failed: Counter[Unit] = Counter()
        self.reached: Counter[tuple[Unit, str]] = Counter()  # of what it trained the step at which it lost its worker
        self.places = read_json(self.scratch / PLACES) or {}  # draw -> kind of machine
        lock, self.looked = self.folder / "dvc.lock", 0.0
        self.recorded = set(re.findall(r"^  (\S+@\S+):$", lock.read_text(), re.M)) if lock.is_file() else set()

    @cached_property
    def head(self) -> dict[str, Any]:
        """What workers have to be like."""
        found = units.about(*self.asking)
        return {**found, "same": {**found["same"], **ONE_THREAD}}

    def ready(self, stage: str) -> bool:
        """Whether a stage can start: it has no units, or they are done. Asked first, it puts them into the queue, but
        for seeds that lie finished in the scratch, which workers without the head's folder would train again."""
        if units.has(stage) and stage not in self.open and not self.variables(stage):
            there = carry.finished(self.folder, key(stage)) if kind(stage) in RUNS else ()
            found = [unit for unit in units.of_stage(stage, self.folder) if unit.draw not in there]
            self.open[stage] = set(found)
            self.queue += found
        return not self.open.get(stage)

    def variables(self, stage: str) -> dict[str, str]:
        """Of a stage that DVC has recorded, and may restore: to be tried without running anything."""
        return {ONLY_ASKED: "1"} if stage in self.recorded and units.has(stage) else {}

    def takes(self, stage: str, log: str) -> bool:
        """Whether a stage that failed was tried only: its units are next."""
        self.recorded.discard(stage)
        return ONLY_TRIED in log

    def step(self) -> None:
        """See who is there, take what is done, hand out what waits."""
        if time.monotonic() - self.looked > 0.5:
            self._look()
            self.looked = time.monotonic()
        for address in [a for a, (_, future) in self.busy.items() if future.done() or a not in self.asked]:
            self._end(*self.busy.pop(address), address)
        for address in self.workers.keys() - self.busy.keys():
            if unit := self._next(self.workers[address]["machine"]):
                self._give(address, unit)

    def progress(self) -> None:
        """Say what runs where, and what waits for whom."""
        for address, (unit, _) in self.busy.items():
            shared = self.workers.get(address, {}).get("shared")  # else its log comes at the end
            bar = f": {progress_of(self.scratch / units.log_of(unit))}" if shared else ", in a folder of its own"
            self.say(f"{named(unit)} on {address}{bar}")
        kinds = {worker["machine"] for worker in self.workers.values()}
        if self.queue and not kinds:
            logs = self.scratch / "slurm"  # see `cluster.slurm`
            jobs = f"; what jobs say is in {os.path.relpath(logs)}" if logs.is_dir() else ""
            none = [*self.asked.values()].count(None)
            refused = f"; those that came are refused, see above ({none})" if none else ""
            self.say(f"{len(self.queue)} units wait for a worker{refused}{jobs}")
        for draw in sorted({str(u.draw) for u in self.queue if kinds and self._kind(u) not in {None, *kinds}}):
            kept = f"draw {draw} waits for a machine like that where it began, {self.places[draw]}"
            self.say(f"{kept}; it goes elsewhere once its line is out of {os.path.relpath(self.scratch / PLACES)}")

    def _kind(self, unit: Unit) -> str | None:
        return self.places.get(str(unit.draw))

    def count(self) -> int:
        """Workers: of a cluster of ours those that it was asked for, of another those that are there."""
        ours = self.client.cluster
        return len(ours.worker_spec if ours else self._seen())

    def _seen(self) -> Mapping[str, Any]:
        """Address -> what Dask knows of a worker. Its `scheduler_info` now and then names none, as it looks where every
        two seconds the client puts what it asks for itself, which is no worker."""
        asked = {"n_workers": -1, "callback_timeout": FETCH_S}
        try:
            return self.client.sync(self.client.scheduler.identity, **asked)["workers"]
        except (OSError, AttributeError) as error:  # AttributeError: the client has given it up
            raise ConfigError(f"Dask's scheduler is gone ({error}); the same command continues with another") from error

    def _look(self) -> None:
        seen = self._seen()
        for address in self.asked.keys() - seen.keys():
            del self.asked[address]
            self.workers.pop(address, None)
        for address in seen.keys() - self.asked.keys():
            self.asked[address] = self._submit(address, units.about, *self.asking)
        for address in [a for a, future in self.asked.items() if future and future.done()]:
            future, self.asked[address] = self.asked[address], None
            facts, error = fetched(future)
            if error == GONE:  # it is asked anew, if it is still there
                del self.asked[address]
                continue
            why = units.differs(self.head, facts) if facts else [error]
            if facts and not facts["shared"]:
                why += self.unsent
            name = seen[address].get("name", address)
            if why:
                self.refused[name] = why[0]
                self.had.pop(name, None)
                self.say(
                    f"worker {address} is refused: {'; '.join(why[:3])}{f'; {len(why) - 3} more' * (len(why) > 3)}"
                )
            else:
                self.workers[address], self.had[name] = facts, facts["machine"]
                self.refused.pop(name, None)
        if self.client.cluster:  # started here; None where workers are someone else's
            self._renew(self.client.cluster)

    def _renew(self, cluster: Any) -> None:
        """Ask for others in place of workers that could have done what waits, and ended, as Slurm's jobs do at their
        time limit; Dask does so only when it is told the size again. Raises ConfigError where all are refused."""
        wanted = cluster.worker_spec.keys()
        if self.queue and wanted and wanted <= self.refused.keys():
            why = next(iter(self.refused.values()))
            raise ConfigError(
                f"all workers that were asked for are refused ({len(wanted)}), the first because of {why}"
            )
        ended = [name for name in self.had.keys() & (wanted - cluster.workers.keys()) if self._next(self.had[name])]
        if ended:
            self.had = {name: machine for name, machine in self.had.items() if name not in ended}
            self.say(f"workers ended: {len(ended)}; others are asked for (units that wait: {len(self.queue)})")
            cluster.scale(len(cluster.worker_spec))

    def _submit(self, address: str, job: Callable, *given: Any) -> Any:
        only = {"workers": [address], "allow_other_workers": False, "pure": False}
        return self.client.submit(job, *given, **only, key=f"{job.__name__}-{uuid4().hex}")

    def _next(self, machine: str) -> Unit | None:
        """Of the queue the first that may go to a kind of machine; of draws that began there before others."""
        mine = [unit for unit in self.queue if self._kind(unit) in (None, machine)]
        return next((unit for unit in mine if self._kind(unit)), mine[0] if mine else None)

    def _give(self, address: str, unit: Unit) -> None:
        from workbook.stages import leaving  # only here is Dask needed

        self.queue.remove(unit)
        machine, shared = self.workers[address]["machine"], self.workers[address]["shared"]
        if not self._kind(unit):
            self.places[str(unit.draw)] = machine
            atomic_json(self.scratch / PLACES, self.places)
        manifest = None
        if shared:
            self._by(machine, unit)
        else:
            manifest = parcels.inputs(*unit, self.root, self.folder)
            try:
                parcels.send(self.client, address, manifest, self.root)
            except TimeoutError:
                self._gone(address)
                self._after(unit, Outcome(f"{address}: {GONE}", again=True), gone=True)
                return
        places = [str(path.relative_to(self.root)) for path in (self.folder, self.scratch)]
        self.busy[address] = unit, self._submit(address, leaving.run, tuple(unit), str(self.root), *places, manifest)

    def _by(self, machine: str, unit: Unit) -> None:
        """A unit goes to a kind of machine: states that another kind left of it do not count."""
        if before := begun.by(machine, *unit, self.scratch, self.head["machine"]):
            self.say(f"{named(unit)} {begun.anew(before)}")

    def _gone(self, address: str) -> None:
        """It is asked anew, if it is still there."""
        self.asked.pop(address, None)
        self.workers.pop(address, None)

    def _end(self, unit: Unit, future: Any, address: str) -> None:
        found, error = fetched(future)
        if gone := error == GONE:
            self._gone(address)
        outcome = Outcome(f"{address}: {error}", again=True) if error else Outcome(*found)
        if error:
            future.cancel()
        if outcome.log:
            parcels.told(outcome.log, self.scratch / units.log_of(unit))
        try:
            parcels.unpack(outcome.packed, self.scratch)
        except (ConfigError, tarfile.TarError, LockError) as wrong:  # no reason to end: one bad parcel is that worker's
            outcome = Outcome(f"{address}: {wrong}", again=True)
        self._after(unit, outcome, gone)

    def _after(self, unit: Unit, outcome: Outcome, gone: bool) -> None:
        """Of a unit that a worker has ended, or failed at: it is done, goes to another, or to the head."""
        if not (gone and self._further(unit)):
            self.failed[unit] += bool(outcome.error)
        if outcome.again and self.failed[unit] < TRIES:
            self.queue.insert(0, unit)
            self.say(f"{named(unit)} goes to another worker ({outcome.error})")
            return
        if outcome.error:
            self._by(self.head["machine"], unit)
        self.open[unit.stage].discard(unit)
        self.say(
            f"{named(unit)} " + (f"failed ({outcome.error}); the head tries it itself" if outcome.error else "done")
        )

    def _further(self, unit: Unit) -> bool:
        """Whether it came further than where its worker before ended, by its log: one job's time may not be enough."""
        bar = BAR.search(progress_of(self.scratch / units.log_of(unit)))
        what, step = (bar[1], int(bar[2])) if bar else ("", 0)
        before, self.reached[unit, what] = self.reached[unit, what], max(self.reached[unit, what], step)
        return self.reached[unit, what] > before


def fetched(future: Any) -> tuple[Any, str]:
    """(what a worker's task returned, "") or (None, why there is none): its error, or GONE. A worker that ends between
    the end of its task and this question would never answer."""
    if future.status == "error":
        return None, repr(future.exception())
    try:
        return (future.result(timeout=FETCH_S), "") if future.status == "finished" else (None, GONE)
    except (OSError, CancelledError):  # TimeoutError is an OSError
        return None, GONE


def named(unit: Unit) -> str:
    return f"{unit.stage}, draw {unit.draw},"
