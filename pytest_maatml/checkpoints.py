"""Which checkpoint of a model folder is meant, and what is in it."""

from __future__ import annotations

import hashlib
import json
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from pytest_maatml.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Protocol

    class ModelFolder(Protocol):
        @property
        def model_dir(self) -> Path: ...
        @property
        def output_dir(self) -> Path: ...
        @property
        def checkpoints_dir(self) -> Path: ...


__all__ = ["Checkpoint", "checkpoint_digest", "resolve_checkpoint"]

_STATUSES: Final = ("running", "completed", "aborted")
_CHUNK: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    #: None where the model folder has no checkpoints, as with a scripted policy.
    path: Path | None
    #: The training run that the checkpoint belongs to, else the name of its folder.
    run_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    run_id: str
    status: str
    started_at: str
    finished_at: str | None
    out_dir: str
    selected_checkpoint: str | None

    def checkpoint(self, checkpoints_dir: Path) -> Path | None:
        # A run that was trained elsewhere records that machine's path; its weights come to
        # lie under the run id.
        for folder in (Path(self.out_dir), checkpoints_dir / self.run_id):
            if folder.exists():
                selected = folder / (self.selected_checkpoint or "")
                return selected if selected.is_dir() else folder
        return None


def resolve_checkpoint(definition: ModelFolder, checkpoint: str | None = None) -> Checkpoint:
    """The checkpoint asked for: a run id, or a folder relative to here or to the model folder.

    Without one: that of the completed run in `output/runs.jsonl` that finished last, else the
    newest folder of `output/checkpoints`, else none. A run's `selected_checkpoint` stands for it.
    As maatml does it, but for a completed run whose recorded folder is gone: what lies under its
    run id is taken before the newest folder, since a fresh clone has no meaningful file times.

    Raises ModelError, with the known run ids, where what was asked for is not there, and where a
    file or folder cannot be looked at.
    """
    asked = (checkpoint or "").strip()
    try:
        runs = _read_runs(definition.output_dir / "runs.jsonl")
        path = _asked_for(definition, asked, runs) if asked else _latest(definition, runs)
    except OSError as error:
        raise ModelError(
            f"the checkpoint of {definition.model_dir} cannot be found: {error.strerror}: "
            f"{str(error.filename)!r:.200}"
        ) from None
    if path is None:
        return Checkpoint(path=None, run_id=None)
    return Checkpoint(path=path.resolve(), run_id=_run_id(path.resolve(), runs))


def _asked_for(definition: ModelFolder, asked: str, runs: dict[str, _Run]) -> Path:
    for folder in (Path(asked), definition.model_dir / asked):
        if folder.exists():
            return folder
    if asked in runs:
        path = runs[asked].checkpoint(definition.checkpoints_dir)
        return _gone(definition, runs[asked]) if path is None else path
    folder = definition.checkpoints_dir / asked
    if folder.exists():
        return folder
    known = ", ".join(sorted({*runs, *(f.name for f in _folders(definition))})) or "(none)"
    raise ModelError(
        f"no checkpoint {asked!r} in {definition.model_dir}: it is neither a folder nor a run id. "
        f"Known runs: {known}"
    )


def _latest(definition: ModelFolder, runs: dict[str, _Run]) -> Path | None:
    completed = [run for run in runs.values() if run.status == "completed"]
    if completed:
        last = max(completed, key=lambda run: run.finished_at or run.started_at)
        path = last.checkpoint(definition.checkpoints_dir)
        if path is not None:
            return path
        if not _folders(definition):
            _gone(definition, last)
    return max(_folders(definition), key=lambda f: (f.stat().st_mtime_ns, f.name), default=None)


def _gone(definition: ModelFolder, run: _Run) -> NoReturn:
    raise ModelError(
        f"the checkpoint of run {run.run_id!r} is gone: neither {run.out_dir} nor "
        f"{definition.checkpoints_dir / run.run_id} exists; bring it back or ask for another run"
    )


def _folders(definition: ModelFolder) -> list[Path]:
    root = definition.checkpoints_dir
    return [folder for folder in root.iterdir() if folder.is_dir()] if root.is_dir() else []


def _run_id(path: Path, runs: dict[str, _Run]) -> str:
    parent = runs.get(path.parent.name)
    if path.name not in runs and parent and parent.selected_checkpoint == path.name:
        return parent.run_id
    return path.name


def _read_runs(path: Path) -> dict[str, _Run]:
    """The latest record of each run, in order of first appearance; torn lines are passed over."""
    if not path.is_file():
        return {}
    runs: dict[str, _Run] = {}
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        if not line.strip():
            continue
        run = _parse_run(line)
        if run is None:
            warnings.warn(
                f"{path}:{number} is not a run record and was passed over",
                RuntimeWarning,
                stacklevel=3,
            )
        else:
            runs[run.run_id] = run
    return runs


def _parse_run(line: bytes) -> _Run | None:
    try:
        record = json.loads(line)
    except ValueError:
        return None
    if not isinstance(record, dict):
        return None
    required = ("run_id", "status", "started_at", "out_dir")
    optional = ("finished_at", "selected_checkpoint")
    if not all(isinstance(record.get(key), str) for key in required):
        return None
    if not all(isinstance(record.get(key), str | None) for key in optional):
        return None
    if record["status"] not in _STATUSES:
        return None
    values: dict[str, Any] = {key: record.get(key) for key in (*required, *optional)}
    return _Run(**values)


def checkpoint_digest(path: Path) -> str:
    """blake2b over the names and contents of all files below `path`, as 32 hex digits.

    The same wherever the checkpoint lies; reads in chunks. Raises ModelError where a file cannot
    be read.
    """
    digest = hashlib.blake2b(digest_size=16)
    try:
        for name, file in sorted(_files(path)):
            digest.update(b"%d:%b%d:" % (len(name), name, file.stat().st_size))
            with file.open("rb") as stream:
                while chunk := stream.read(_CHUNK):
                    digest.update(chunk)
    except OSError as error:
        raise ModelError(f"the checkpoint {path} cannot be read: {error}") from None
    return digest.hexdigest()


def _files(path: Path) -> Iterator[tuple[bytes, Path]]:
    if path.is_file():
        yield b"", path
    for file in path.rglob("*"):
        if file.is_file():
            yield file.relative_to(path).as_posix().encode("utf-8", "surrogateescape"), file
