"""Training rows on disk: the union of all rounds, and the splits that they may not touch."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import ExitStack
from hashlib import blake2b, sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pytest_maatml.engine.encoding import decode, snapshot
from pytest_maatml.errors import RolloutEnvError
from pytest_maatml.records.episodes import replacing, unwritable
from pytest_maatml.records.splits import TEST, TRAIN, VAL, RowError, SplitRule

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pytest_maatml.engine.protocol import JSONObject
    from pytest_maatml.records.episodes import Draft
    from pytest_maatml.records.splits import Trainable

__all__ = ["RowUnion", "prepare_rows", "read_rows", "write_rows"]

BENCHMARK: Final = "benchmark"
CARD_NAME: Final = "dataset_card.json"

_SOURCE_KEYS: Final = ("source", "round", "policy_version")


def read_rows(path: Path) -> Iterator[JSONObject]:
    """Each row of the JSONL file at `path`. Raises RowError with the file and the line."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield _row(line, f"{path}:{number}")
    except OSError as error:
        raise RowError(f"{path} cannot be read: {error.strerror or error}") from error


def _row(line: bytes, where: str) -> JSONObject:
    try:
        row = decode(line)
    except ValueError as error:
        raise RowError(f"{where}: not a line of JSON: {error}") from None
    if not isinstance(row, dict):
        raise RowError(f"{where}: a row must be an object, not {row!r:.80}")
    return row


def write_rows(rows: Iterable[Mapping[str, Any]], path: Path) -> int:
    """The number of rows that are now the JSONL file at `path`, one line each.

    Where `rows` raises, the file stays what it was. Raises RowError for a row that is not JSON,
    RecordError where the file cannot be written.
    """
    path = Path(path)
    _make_folder(path.parent)
    written = 0
    with replacing(path) as draft:
        for row in rows:
            draft.write(_encoded(row, f"row {_row_id(row)!r}"))
            written += 1
    return written


class RowUnion:
    """The rows of all rounds, each once.

    The aggregate of DAgger (Ross, Gordon and Bagnell 2011, algorithm 3.1): a row is one state that
    was visited, so that the same state in two episodes is two rows.
    """

    def __init__(self) -> None:
        self._seen: dict[str, tuple[str, bytes]] = {}
        #: The rows that were there already.
        self.duplicates = 0

    def add(self, row: Mapping[str, Any], split: str = TRAIN) -> bool:
        """Whether `row` is new in `split`; an exact duplicate is not.

        Raises RowError for a row whose id another row of `split` has, or any row of another split.
        """
        row_id, entry = _row_id(row), (split, _digest(row))
        known = self._seen.setdefault(row_id, entry)
        if known is entry:
            return True
        if known[0] != split:
            raise RowError(
                f"row {row_id!r} is in {known[0]} and would be in {split} too; a row is in one "
                "split, so leave one of them out"
            )
        if known != entry:
            raise RowError(
                f"two rows have the id {row_id!r} and differ; collect each round under a round or "
                "a source of its own (--maatml-round, --maatml-source)"
            )
        self.duplicates += 1
        return False

    def new(self, rows: Iterable[JSONObject]) -> Iterator[JSONObject]:
        """Yield those of `rows` that are new. Raises RowError as `add`."""
        return (row for row in rows if self.add(row))


def prepare_rows(
    model_def: Trainable,
    seed_rows: Iterable[Mapping[str, Any]],
    *,
    train_rows: Iterable[Mapping[str, Any]] | None = None,
    benchmark_rows: Iterable[Mapping[str, Any]] | None = None,
    out_dir: Path | None = None,
) -> JSONObject:
    """What the card says of the rows that are now in `out_dir`, and the paths of the files.

    `out_dir` is `output/prepared` of the model by default. `train.jsonl`, `val.jsonl` and
    `test.jsonl` hold the seed rows, each where its group goes by `SplitRule`, `benchmark.jsonl` the
    benchmark; `train_rows`, streamed, come after the seeds in `train.jsonl` and nowhere else. So
    they move no held-out row: the other three files depend on seeds and benchmark alone. Each
    row gets the `split` that it is in. An exact duplicate is dropped; an id is in one split only.

    Raises RowError with the id of a train row whose group is in val, test or the benchmark, or
    whose own `split` is not train; of a seed row for train or val whose group is in the benchmark;
    of a row without a group; of one that differs from another with its id. ConfigurationError for
    a rule that cannot be; RecordError where files cannot be written. The folder then stays what
    it was.
    """
    rule = SplitRule.of(model_def)
    out = Path(out_dir) if out_dir is not None else model_def.prepared_dir
    _make_folder(out)
    paths = {name: out / f"{name}.jsonl" for name in (TRAIN, VAL, TEST, BENCHMARK)}
    with ExitStack() as drafts:
        # The first to be opened is the last to take its place: a card never runs ahead.
        card_draft = drafts.enter_context(replacing(out / CARD_NAME))
        parts = {name: _Part(drafts.enter_context(replacing(path))) for name, path in paths.items()}
        preparation = _Preparation(rule, parts)
        preparation.add_benchmark(benchmark_rows or ())
        preparation.add_seeds(seed_rows)
        preparation.add_train_rows(train_rows or ())
        card = {"model": model_def.identity, **preparation.card()}
        card_draft.write(json.dumps(card, indent=2).encode())
    return {
        **card,
        "out_dir": str(out),
        "splits": {name: str(path) for name, path in paths.items()},
        "card": str(out / CARD_NAME),
    }


class _Part:
    """One file of rows in the making."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._sha256 = sha256()
        self.rows = 0
        self.groups: set[str] = set()

    def write(self, line: bytes, group: str) -> None:
        self._draft.write(line)
        self._sha256.update(line + b"\n")
        self.rows += 1
        self.groups.add(group)

    def digest(self) -> str:
        return self._sha256.hexdigest()


class _Preparation:
    """One call of `prepare_rows`: what is held out comes first, then what must keep clear of it."""

    def __init__(self, rule: SplitRule, parts: Mapping[str, _Part]) -> None:
        self._rule = rule
        self._parts = parts
        self._union = RowUnion()
        self._sources: dict[str, Counter[tuple[Any, ...]]] = {}
        self._duplicates: dict[str, int] = {}

    def add_benchmark(self, rows: Iterable[Mapping[str, Any]]) -> None:
        for row in rows:
            what = f"benchmark row {_row_id(row)!r}"
            self._write("benchmark", row, BENCHMARK, self._rule.group(row, what), what)

    def add_seeds(self, rows: Iterable[Mapping[str, Any]]) -> None:
        for row in rows:
            what = f"seed row {_row_id(row)!r}"
            group = self._rule.group(row, what)
            split = self._rule.split(group)
            if split != TEST:
                self._refuse_held_out(group, (BENCHMARK,), what)
            self._write("seeds", row, split, group, what)

    def add_train_rows(self, rows: Iterable[Mapping[str, Any]]) -> None:
        for row in rows:
            what = f"train row {_row_id(row)!r}"
            if row.get("split", TRAIN) != TRAIN:
                raise RowError(
                    f"{what} is of split {row['split']!r}; only rows of the training split may "
                    "join it"
                )
            group = self._rule.group(row, what)
            self._refuse_held_out(group, (VAL, TEST, BENCHMARK), what)
            self._write("train_rows", row, TRAIN, group, what)

    def card(self) -> JSONObject:
        parts = self._parts.items()
        return {
            "group_by": self._rule.group_by,
            "split_ratios": list(self._rule.ratios),
            "split_counts": {name: part.rows for name, part in parts},
            "group_counts": {name: len(part.groups) for name, part in parts},
            "sha256": {name: part.digest() for name, part in parts},
            "duplicates_dropped": self._duplicates,
            "sources": {name: _listed(counts) for name, counts in self._sources.items()},
        }

    def _refuse_held_out(self, group: str, splits: Iterable[str], what: str) -> None:
        for split in splits:
            if group in self._parts[split].groups:
                raise RowError(
                    f"{what} is of the group {group!r}, which is held out in {split}; what is "
                    "measured must not be trained on, so leave the row out, or its task"
                )

    def _write(
        self, origin: str, row: Mapping[str, Any], split: str, group: str, what: str
    ) -> None:
        tagged = {**row, "split": split}
        line = _encoded(tagged, what)
        if self._union.add(tagged, split):
            self._parts[split].write(line, group)
            sources = self._sources.setdefault(origin, Counter())
            sources[tuple(row.get(name) for name in _SOURCE_KEYS)] += 1
        else:
            self._duplicates[origin] = self._duplicates.get(origin, 0) + 1


def _listed(counts: Counter[tuple[Any, ...]]) -> list[JSONObject]:
    """The rows of each source, in the order in which they came."""
    return [
        {**dict(zip(_SOURCE_KEYS, source, strict=True)), "rows": rows}
        for source, rows in counts.items()
    ]


def _row_id(row: Mapping[str, Any]) -> str:
    """The row's `sample_id` or `id`; a digest of its content for a row without either."""
    for name in ("sample_id", "id"):
        value = row.get(name)
        if isinstance(value, str | int) and value != "":
            return str(value)
    return f"row-{_digest(row).hex()}"


def _digest(row: Mapping[str, Any]) -> bytes:
    """What only an exact duplicate shares, whatever the order of keys and the split."""
    content = {name: value for name, value in row.items() if name != "split"}
    text = json.dumps(content, sort_keys=True, default=repr)
    return blake2b(text.encode(), digest_size=16).digest()


def _encoded(row: Mapping[str, Any], what: str) -> bytes:
    try:
        return snapshot(dict(row), "row")
    except RolloutEnvError as error:
        raise RowError(f"{what} cannot be written: {error}") from None


def _make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(path, error) from error
