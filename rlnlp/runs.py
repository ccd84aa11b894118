"""Never lose work: fingerprints of what decides a result, atomic files, resumable state, one writer at a time, tables.

A finished or half-finished seed lives in a folder named by the fingerprint of everything that decides its result:

    inputs = fingerprint_inputs(params.pick("sampling", "learner"), package_files("rlnlp.learners.ppo"), ["data/draw1"])
    folder = keyed_folder(params.scratch / "ppo_kl_0" / "seed1", inputs)
    with writer_lock(folder):
        state = load_state(folder)                  # None, or the newest one that is whole
        ...
        save_state(folder, tensors, meta)           # atomic; a kill at any moment leaves a whole state behind

Nothing here uses pickle.
"""

from __future__ import annotations

import ast
import csv
import fcntl
import hashlib
import importlib.metadata
import io
import json
import os
import re
import shutil
import signal
import socket
import sys
import threading
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).resolve().parent
LIBRARIES = ("torch", "transformers", "tokenizers", "numpy", "scikit-learn")


class LockError(RuntimeError):
    """Another process is writing; the message names it."""


# fingerprints --------------------------------------------------------------------------------------------------------

_hashes: dict[tuple, str] = {}  # (path, size, mtime in ns) -> content hash; this process only


def file_hash(path: str | Path) -> str:
    """SHA-256 of a file's bytes, hex. Raises FileNotFoundError."""
    path = Path(path).resolve()
    stat = path.stat()
    key = (str(path), stat.st_size, stat.st_mtime_ns, stat.st_ino)
    if key not in _hashes:
        with open(path, "rb") as file:
            _hashes[key] = hashlib.file_digest(file, "sha256").hexdigest()
    return _hashes[key]


def folder_hash(folder: str | Path) -> str:
    """SHA-256 over the names and contents of all files below a folder, hex; names that start with "." are left out.

    Raises: FileNotFoundError if there is no such folder.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: no such folder, so it cannot be part of a fingerprint")
    total = hashlib.sha256()
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        name = path.relative_to(folder)
        if not any(part.startswith(".") for part in name.parts):
            total.update(json.dumps([name.as_posix(), file_hash(path)]).encode())
    return total.hexdigest()


def package_files(*modules: str, without: Iterable[str] = ("rlnlp.config",), package: Path = PACKAGE) -> list[Path]:
    """The files of this package that modules need: the modules, and all they import, directly or not.

    Found by reading the source, so imports inside functions count too; an import by a computed name does not:
    name such a module yourself (rlnlp.learners.<algorithm>).
    modules: dotted names, e.g. "rlnlp.learners.ppo"; without: modules not followed (rlnlp.config: the values read are
    part of the fingerprint themselves); package: the package's folder. Returns absolute paths, sorted.
    Raises: ModuleNotFoundError for a module that the package does not have.
    """
    package = Path(package).resolve()
    skip, found, todo = set(without), {}, list(modules)
    for name in modules:
        if _module_file(name, package) is None:
            raise ModuleNotFoundError(f"{name}: not a module of {package}")
    while todo:
        name = todo.pop()
        path = _module_file(name, package)
        if name in found or name in skip or path is None:
            continue
        found[name] = path
        todo += [name.rsplit(".", i)[0] for i in range(1, name.count(".") + 1)]  # the packages around it run as well
        todo += _imports(path, name if path.name == "__init__.py" else name.rpartition(".")[0], package.name)
    return sorted(found.values())


def _module_file(name: str, package: Path) -> Path | None:
    first, *rest = name.split(".")
    if first != package.name:
        return None
    path = package.joinpath(*rest)
    candidates = (path / "__init__.py", path.with_suffix(".py")) if rest else (path / "__init__.py",)
    return next((p for p in candidates if p.is_file()), None)


def _imports(path: Path, around: str, top: str) -> set[str]:
    """Dotted names that a file may import from the package `top`; `around` is the package the file is in."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = around.rsplit(".", node.level - 1)[0] if node.level > 1 else around if node.level else ""
            base = ".".join(part for part in (base, node.module) if part)
            names |= {base} | {f"{base}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) == "import_module":
            names |= {a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)}
    return {name for name in names if name.split(".")[0] == top}


def fingerprint_inputs(
    settings: Mapping[str, Any] = {}, files: Iterable[str | Path] = (), folders: Iterable[str | Path] = ()
) -> dict[str, str]:
    """Everything that decides a result, name -> value or content hash.

    settings: values read, by dotted name (`Params.pick`), JSON-able; files, folders: hashed by content (a package file
    is named by its place in the package, an absolute path by its last part, so that a moved checkout changes nothing).
    The versions of the libraries that compute are added.
    """
    inputs = {f"setting {k}": json.dumps(v, sort_keys=True, default=_plain) for k, v in settings.items()}
    for kind, paths, digest in (("file", files, file_hash), ("folder", folders, folder_hash)):
        for path in map(Path, paths):
            if path.is_absolute():
                inside = path.resolve().is_relative_to(PACKAGE)
                label = path.resolve().relative_to(PACKAGE.parent).as_posix() if inside else path.name
            else:
                label = path.as_posix()
            base, n = label, 2
            while f"{kind} {label}" in inputs:
                label, n = f"{base} ({n})", n + 1
            inputs[f"{kind} {label}"] = digest(path)
    inputs["library python"] = ".".join(map(str, sys.version_info[:2]))
    for name in LIBRARIES:
        try:
            inputs[f"library {name}"] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            pass
    return inputs


def digest(inputs: Mapping[str, str]) -> str:
    """SHA-256 of fingerprint inputs, hex."""
    return hashlib.sha256(json.dumps(dict(inputs), sort_keys=True).encode()).hexdigest()


def fingerprint(
    settings: Mapping[str, Any] = {}, files: Iterable[str | Path] = (), folders: Iterable[str | Path] = ()
) -> str:
    """`digest(fingerprint_inputs(...))`: equal only if every value, file, folder and library version is."""
    return digest(fingerprint_inputs(settings, files, folders))


def changed(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """What differs between two fingerprints' inputs, one line each."""
    lines = []
    for name in sorted(old.keys() | new.keys()):
        before, after = old.get(name, "none"), new.get(name, "none")
        if before != after:
            lines.append(
                f"{name}: {before[:12]} -> {after[:12]}" if name.startswith("f") else f"{name}: {before} -> {after}"
            )
    return lines


def keyed_folder(parent: str | Path, inputs: Mapping[str, str]) -> Path:
    """The folder of a result: parent/<first 16 digits of the fingerprint>, made if missing, with inputs.json in it.

    Raises: RuntimeError if the folder there was made from other inputs (two fingerprints with equal beginnings).
    """
    folder = Path(parent) / digest(inputs)[:16]
    folder.mkdir(parents=True, exist_ok=True)
    record = folder / "inputs.json"
    if (known := _read_json(record)) is None:
        atomic_json(record, dict(inputs))
    elif known != dict(inputs):
        raise RuntimeError(f"{folder}: made from other inputs: {'; '.join(changed(known, inputs))}")
    return folder


def why_new(parent: str | Path, inputs: Mapping[str, str]) -> list[str]:
    """What changed since the most similar earlier result in `parent`; empty if there is none, or nothing changed."""
    records = [known for p in sorted(Path(parent).glob("*/inputs.json")) if (known := _read_json(p)) is not None]
    return min((changed(known, inputs) for known in records), key=len, default=[])


# atomic files --------------------------------------------------------------------------------------------------------


def atomic_write(path: str | Path, data: bytes | str) -> None:
    """Write a file so that a reader, or a kill at any moment, sees the old content or the new, never a part."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(data.encode("utf-8") if isinstance(data, str) else data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync(path.parent)


def atomic_json(path: str | Path, value: Any) -> None:
    """`atomic_write` of JSON: sorted names, floats by repr (they read back equal). Raises ValueError for NaN or inf."""
    atomic_write(path, json.dumps(value, indent=1, sort_keys=True, allow_nan=False, default=_plain) + "\n")


def _sync(path: Path) -> None:
    """Put a file, or a folder's list of names, on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _plain(value: Any) -> Any:
    """JSON for paths, tuples' kin, settings, and numbers of numpy or torch."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"{type(value).__name__} is not JSON: {value!r}")


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


# resumable state -----------------------------------------------------------------------------------------------------

_STATE = re.compile(r"state-(\d{8})-([0-9a-f]{64})\.safetensors")


def save_state(
    folder: str | Path, tensors: Mapping[str, Any], meta: Mapping[str, Any] | None = None, keep: int = 2
) -> Path:
    """Save tensors and JSON values as one file state-<number>-<sha256>.safetensors; only one process may write.

    Written beside, put on disk, then renamed: a kill leaves the earlier states whole. Tensors that share memory (tied
    weights) are stored once and stay tied. keep: newest states kept.
    tensors: name -> tensor, any device; meta: JSON (a tuple comes back as a list). Raises ValueError for NaN in meta.
    """
    from safetensors.torch import save_file

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for left in folder.glob(".state-*.tmp"):  # of a killed writer
        left.unlink(missing_ok=True)
    stored, ties, owners, storages = {}, {}, {}, set()
    for name, tensor in tensors.items():
        tensor = tensor.detach()
        storage = tensor.untyped_storage().data_ptr()
        view = (storage, tensor.storage_offset(), tuple(tensor.shape), tensor.stride(), tensor.dtype, tensor.device)
        if tensor.numel() and view in owners:
            ties[name] = owners[view]
            continue
        owners[view] = name
        tensor = tensor.cpu().contiguous()
        stored[name] = tensor.clone() if tensor.untyped_storage().data_ptr() in storages else tensor
        storages.add(stored[name].untyped_storage().data_ptr())
    header = {"meta": json.dumps(meta or {}, allow_nan=False, default=_plain), "ties": json.dumps(ties)}
    number = max((n for n, _, _ in _states(folder)), default=0) + 1
    temporary = folder / f".state-{number:08d}.{os.getpid()}.tmp"
    try:
        save_file(stored, temporary, metadata=header)
        with open(temporary, "rb") as file:
            checksum = hashlib.file_digest(file, "sha256").hexdigest()
            os.fsync(file.fileno())
        path = folder / f"state-{number:08d}-{checksum}.safetensors"
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync(folder)
    for _, _, old in _states(folder)[keep:]:
        old.unlink(missing_ok=True)
    for old in folder.glob("damaged-*"):
        old.unlink(missing_ok=True)
    return path


def load_state(folder: str | Path, device: str = "cpu") -> tuple[dict[str, Any], dict[str, Any]] | None:
    """(tensors, meta) of the newest whole state in a folder, None if there is none.

    A file whose bytes do not match the checksum in its name (cut short, damaged) is set aside with a warning, and the
    state before it is used.
    """
    from safetensors import safe_open

    folder = Path(folder)
    for attempt in range(3):
        gone = False
        for _, checksum, path in _states(folder):
            try:
                with open(path, "rb") as file:
                    whole = hashlib.file_digest(file, "sha256").hexdigest() == checksum
                if not whole:
                    warnings.warn(f"{path}: damaged (its bytes do not match its checksum); using the state before it")
                    os.replace(path, path.with_name(f"damaged-{path.name}"))
                    continue
                with safe_open(path, framework="pt", device=device) as file:
                    tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
                    header = file.metadata()
            except FileNotFoundError:  # the writer has moved on
                gone = True
                continue
            tensors.update({name: tensors[owner] for name, owner in json.loads(header["ties"]).items()})
            return tensors, json.loads(header["meta"])
        if not gone:
            break
    return None


def _states(folder: Path) -> list[tuple[int, str, Path]]:
    """(number, checksum, path) of the states in a folder, newest first."""
    found = [(m, p) for p in folder.glob("state-*.safetensors") if (m := _STATE.fullmatch(p.name))]
    return sorted(((int(m[1]), m[2], p) for m, p in found), reverse=True)


def publish(folder: str | Path, out: str | Path) -> None:
    """Copy a finished result into place, whole or not at all; `out` is replaced if it exists.

    Hidden names, states and damaged states stay behind. Raises FileNotFoundError if `folder` is missing.
    """
    folder, out = Path(folder), Path(out)
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: no such folder, nothing to publish")
    out.parent.mkdir(parents=True, exist_ok=True)
    for left in out.parent.glob(f".{out.name}.*.publish"):  # of a killed writer
        shutil.rmtree(left, ignore_errors=True)
    temporary = out.parent / f".{out.name}.{os.getpid()}.new.publish"
    retired = out.parent / f".{out.name}.{os.getpid()}.old.publish"
    try:
        shutil.copytree(folder, temporary, ignore=shutil.ignore_patterns(".*", "state-*.safetensors", "damaged-*"))
        for path in temporary.rglob("*"):
            _sync(path)
        if out.exists():
            os.replace(out, retired)
        os.replace(temporary, out)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.rmtree(retired, ignore_errors=True)
    _sync(out.parent)


# one writer ----------------------------------------------------------------------------------------------------------


@contextmanager
def writer_lock(folder: str | Path, wait_s: float = 60.0) -> Iterator[None]:
    """Hold the only right to write in `folder`; the kernel gives it back when the holder dies, however it dies.

    wait_s: seconds to wait for another holder. Raises LockError naming the holder's process id.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "a+", encoding="utf-8") as file:  # closing it, or dying, gives the lock back
        deadline, told = time.monotonic() + wait_s, False
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                file.seek(0)
                holder = file.read().strip() or "unknown process"
                if time.monotonic() >= deadline:
                    raise LockError(
                        f"{folder}: {holder} is writing here; waited {wait_s:g} s. "
                        "Let it finish, or stop it and start again: it continues from its last checkpoint."
                    ) from None
                if not told:
                    print(f"{folder}: waiting for {holder} to finish writing", file=sys.stderr, flush=True)
                    told = True
                time.sleep(min(0.1, max(0.0, deadline - time.monotonic())))
        file.seek(0)
        file.truncate()
        file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
        file.flush()
        yield


def die_with_parent(poll_s: float = 0.25) -> list[int]:
    """Make this process die when what started it dies, so that killing the outer process leaves no writer behind.

    Linux: the kernel kills us with our parent; and a thread watches the processes above, up to the topmost one that is
    make, dvc, papermill or this package, and kills us when any of them ends (a killed dvc does not take its shell
    along). Elsewhere: the thread watches the parent only. Killing is safe: see `save_state`.
    Call it once, from the main thread, before the first write. poll_s: seconds between looks.
    Returns the process ids watched, nearest first.
    """
    parent = os.getppid()
    chain, ours = [], 0
    pid = parent
    while pid > 1 and (born := _born(pid)) is not None:
        chain.append((pid, born))
        if _is_ours(pid):
            ours = len(chain)
        pid = _parent(pid)
    watched = chain[: max(ours, 1)]
    if sys.platform.startswith("linux"):
        import ctypes

        ctypes.CDLL(None, use_errno=True).prctl(1, int(signal.SIGKILL), 0, 0, 0)  # 1 = PR_SET_PDEATHSIG

    def watch() -> None:
        while True:
            if os.getppid() != parent or any(_born(p) != b for p, b in watched):
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(poll_s)

    threading.Thread(target=watch, name="die_with_parent", daemon=True).start()
    return [p for p, _ in watched]


def _stat(pid: int) -> list[str] | None:
    """Fields of /proc/<pid>/stat after the command's name: state, parent, ...; None if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None


def _born(pid: int) -> str | None:
    """Start time of a living process (clock ticks; tells a reused id apart), None if it is gone or a zombie."""
    fields = _stat(pid)
    return None if fields is None or fields[0] in "ZX" else fields[19]


def _parent(pid: int) -> int:
    fields = _stat(pid)
    return int(fields[1]) if fields else 0


def _is_ours(pid: int) -> bool:
    """Whether a process is part of the pipeline's own chain (a shell whose text merely mentions dvc is not)."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8", errors="replace").split("\0")
    except OSError:
        return False
    names = [os.path.basename(word) for word in words]
    if names[0] in ("make", "gmake", "dvc", "papermill"):
        return True
    return names[0].startswith("python") and any(
        name in ("dvc", "papermill") or name.split(".")[0] == PACKAGE.name for name in names[1:5]
    )


# tables --------------------------------------------------------------------------------------------------------------

Row = Mapping[str, Any]


def write_table(path: str | Path, rows: Sequence[Row], columns: Sequence[str] | None = None) -> None:
    """Write rows as CSV, atomically; the same rows give the same bytes (floats by repr, "\\n" line ends).

    columns: names in order, default: those of the first row. A missing value (None) is an empty cell.
    Raises: ValueError for a row with other columns, or text that would read back as something else ("1.5", "").
    """
    columns = list(columns if columns is not None else rows[0] if rows else ())
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    if columns:
        writer.writerow(columns)
    for i, row in enumerate(rows):
        if set(row) != set(columns):
            raise ValueError(f"{path}: row {i}: expected columns {columns}, found {list(row)}")
        writer.writerow([_cell(row[name], f"{path}: row {i}, {name}") for name in columns])
    atomic_write(path, out.getvalue())


def read_table(path: str | Path) -> list[dict[str, Any]]:
    """Rows of a table that `write_table` wrote, with numbers, booleans and None back. Raises ValueError if ragged."""
    with open(path, encoding="utf-8", newline="") as file:
        lines = [line for line in csv.reader(file) if line]
    if not lines:
        return []
    columns, *cells = lines
    for i, row in enumerate(cells):
        if len(row) != len(columns):
            raise ValueError(f"{path}: row {i}: expected {len(columns)} cells, found {len(row)}")
    return [dict(zip(columns, map(_value, row))) for row in cells]


def append_rows(path: str | Path, rows: Sequence[Row], key: Sequence[str] = ()) -> None:
    """Add rows to a table (made if missing), atomically. With `key`, a row replaces the earlier one of equal key.

    Give a key where a resumed run may repeat rows, e.g. ("seed", "update").
    """
    old = read_table(path) if Path(path).exists() else []
    if key:
        new = {tuple(row[k] for k in key) for row in rows}
        old = [row for row in old if tuple(row[k] for k in key) not in new]
    write_table(path, [*old, *rows])


def _cell(value: Any, where: str) -> str:
    if hasattr(value, "item"):
        value = value.item()
    if value is None:
        return ""
    if isinstance(value, (bool, int, float)):
        return repr(value)
    if not isinstance(value, str):
        raise TypeError(f"{where}: expected a number, text, true/false or None, found {type(value).__name__}")
    if _value(value) != value:
        raise ValueError(f"{where}: the text {value!r} would read back as another value")
    return value


_NUMBER = re.compile(r"-?\d+|-?(\d+\.\d*(e[+-]?\d+)?|\d+e[+-]?\d+|inf)|nan")


def _value(cell: str) -> Any:
    if cell in ("", "True", "False"):
        return {"": None, "True": True, "False": False}[cell]
    if _NUMBER.fullmatch(cell):
        return int(cell) if cell.lstrip("-").isdigit() else float(cell)
    return cell
