from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
import textwrap
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_maatml import registry
from pytest_maatml.errors import ModelError
from pytest_maatml.models import load_plugins, load_policy, read_model, resolve_checkpoint

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.peer

maatml_config: Any = importlib.import_module("maatml.config")
maatml_registry: Any = importlib.import_module("maatml.registry")
maatml_runs: Any = importlib.import_module("maatml.runs")

MODEL = """
name: line-walker
model_id: line-walker
architecture: linear_policy
version: 0.3.0
plugins:
  - ./walker_plugin
dataset:
  format: jsonl_seed
training:
  epochs: 2
evaluation:
  predictor: linear_walker
extensions:
  walker:
    bias: 0.25
"""
PLUGIN = """
import json

from maatml.config import ModelDefinition
from maatml.registry import register_environment, register_predictor

from .features import distance

RUNS = []
RUNS.append("plugin")


@register_predictor("linear_walker")
class LinearWalker:
    def setup(self, checkpoint_dir, *, model_def, device):
        if not isinstance(model_def, ModelDefinition):
            raise TypeError(f"not a ModelDefinition: {type(model_def)}")
        self.model_def = model_def
        self.device = device.type
        self.weights = json.loads((checkpoint_dir / "weights.json").read_text())
        self.weights["bias"] = model_def.extensions["walker"]["bias"]

    def predict(self, row):
        return "right"

    def score(self, observation, candidates):
        gap = distance(observation)
        return [self.weights.get(c["id"], 0.0) * gap + self.weights["bias"] for c in candidates]


@register_environment("walker_world")
def walker_world():
    return "a world"
"""
FEATURES = """
def distance(observation):
    return observation["target"] - observation["position"]
"""


@pytest.fixture(autouse=True)
def _peer_as_it_was() -> Iterator[None]:
    maatml_registry.discover_plugins()
    before = maatml_registry.snapshot_registries()
    yield
    maatml_registry.restore_registries(before)


def write_folder(path: Path) -> Path:
    (path / "walker_plugin").mkdir(parents=True)
    (path / "model.yml").write_text(MODEL)
    (path / "walker_plugin/__init__.py").write_text(PLUGIN)
    (path / "walker_plugin/features.py").write_text(FEATURES)
    return path


def train(path: Path, **weights: float) -> str:
    """The id of a run as `maatml train` leaves it behind."""
    theirs = maatml_config.load_model_def(path, load_plugins=False)
    run = maatml_runs.start_run(theirs, device="cpu")
    (Path(run.out_dir) / "weights.json").write_text(json.dumps(weights))
    maatml_runs.finish_run(theirs, run.run_id, "completed", metrics={"accuracy": 0.5})
    return str(run.run_id)


def test_a_folder_written_for_the_peer_works_unchanged(tmp_path: Path) -> None:
    path = write_folder(tmp_path / "line-walker")
    train(path, right=9.0)
    run_id = train(path, right=1.0, left=-1.0)
    loaded = load_policy(read_model(path))
    assert type(loaded.policy).__name__ == "LinearWalker"
    assert loaded.version == run_id
    assert loaded.policy.model_def.model_dir == path.resolve()
    assert loaded.policy.model_def.training == {"epochs": 2}
    scores = loaded.policy.score(
        {"position": 1, "target": 4}, [{"id": "left"}, {"id": "right"}, {"id": "finish"}]
    )
    assert scores == [-2.75, 3.25, 0.25]


def test_an_environment_of_the_folders_plugin_is_found_by_name(tmp_path: Path) -> None:
    load_plugins(read_model(write_folder(tmp_path / "w")))
    assert registry.find_environment("walker_world")() == "a world"


@pytest.mark.parametrize("device", ["auto", "cpu"])
def test_the_device_is_the_peers_and_the_cpu_where_torch_is_missing(
    tmp_path: Path, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    path = write_folder(tmp_path / "w")
    train(path, right=1.0)
    assert load_policy(read_model(path), device=device).policy.device == "cpu"


def test_another_device_without_torch_is_an_error_that_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    path = write_folder(tmp_path / "w")
    train(path, right=1.0)
    with pytest.raises(ModelError, match="device 'cuda': ImportError: torch is required"):
        load_policy(read_model(path), device="cuda")


def test_a_definition_that_the_peer_refuses_is_an_error_with_its_reason(tmp_path: Path) -> None:
    path = write_folder(tmp_path / "w")
    train(path, right=1.0)
    (path / "model.yml").write_text(MODEL + "novel: 1\n")
    with pytest.raises(ModelError, match=r"(?s)model\.yml is refused by maatml.*novel"):
        load_policy(read_model(path))


def test_a_setup_that_fails_is_named_with_file_and_line(tmp_path: Path) -> None:
    path = write_folder(tmp_path / "w")
    run_id = train(path, right=1.0)
    (path / "output/checkpoints" / run_id / "weights.json").write_text("{torn")
    with pytest.raises(ModelError, match=rf"setup\(.*{run_id}, \.\.\.\): JSONDecodeError: .*\.py:"):
        load_policy(read_model(path))


@pytest.mark.parametrize("ours_first", [True, False])
def test_no_plugin_runs_twice_whoever_comes_first(tmp_path: Path, ours_first: bool) -> None:
    path = write_folder(tmp_path / "w")
    loaders = [lambda: load_plugins(read_model(path)), lambda: maatml_config.load_model_def(path)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for load in loaders if ours_first else reversed(loaders):
            load()
            first = maatml_registry.PREDICTORS.get("linear_walker")
        load_plugins(read_model(path))
    assert maatml_registry.PREDICTORS.get("linear_walker") is first
    assert sys.modules[first.__module__].__dict__["RUNS"] == ["plugin"]


def test_two_copies_of_a_folder_keep_their_own_predictors(tmp_path: Path) -> None:
    models = [read_model(write_folder(tmp_path / name)) for name in ("one", "two")]
    for model in models:
        train(model.model_dir, right=1.0)
        load_plugins(model)
    policies = [load_policy(model).policy for model in models]
    assert type(policies[0]) is not type(policies[1])
    assert [p.model_def.model_dir.name for p in policies] == ["one", "two"]


RUN_IDS = ("run-a", "run-b", "run-c")
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("start"), st.sampled_from(RUN_IDS)),
        st.tuples(st.just("completed"), st.sampled_from(RUN_IDS)),
        st.tuples(st.just("aborted"), st.sampled_from(RUN_IDS)),
        st.tuples(st.just("select"), st.sampled_from(RUN_IDS)),
        st.tuples(st.just("deselect"), st.sampled_from(RUN_IDS)),
        st.tuples(st.just("torn"), st.sampled_from(['{"run_id": "run', "[1]", "", '"x"', "{}"])),
        st.tuples(st.just("folder"), st.sampled_from(("run-a", "legacy", "smoke"))),
        st.tuples(st.just("metadata"), st.sampled_from(("run-a", "run-b"))),
    ),
    max_size=12,
)
ASKED = (
    *(None, " ", *RUN_IDS, "legacy", "absent"),
    *("output/checkpoints/run-a", "output/checkpoints/run-a/step-1"),
    *("output/checkpoints/run-b/step-2", "output"),
)


def play(theirs: Any, events: list[tuple[str, str]]) -> None:
    """Leave behind what these events in the peer's own functions leave behind."""
    started: set[str] = set()
    for number, (event, subject) in enumerate(events):
        checkpoint = theirs.checkpoints_dir / subject
        if event == "start":
            started.add(subject)
            maatml_runs.start_run(theirs, run_id=subject, spec_hash="s")
            for step in ("step-1", "step-2"):
                (checkpoint / step).mkdir(exist_ok=True)
        elif event == "torn":
            theirs.output_dir.mkdir(exist_ok=True)
            with maatml_runs.runs_path(theirs).open("a") as stream:
                stream.write(subject + "\n")
        elif event in ("folder", "metadata"):
            checkpoint.mkdir(parents=True, exist_ok=True)
            if event == "metadata":
                (checkpoint / "run_metadata.json").write_text("{}")
        elif subject in started and event in ("completed", "aborted"):
            maatml_runs.finish_run(theirs, subject, event)
        elif subject in started:
            chosen = f"step-{number % 4}" if event == "select" else None
            maatml_runs.record_selection(theirs, subject, {}, selected_checkpoint=chosen)
    if theirs.checkpoints_dir.is_dir():
        for age, folder in enumerate(sorted(theirs.checkpoints_dir.iterdir())):
            os.utime(folder, (1000 + age * 7 % 5, 1000 + age * 7 % 5))


def peer_resolution(theirs: Any, asked: str | None) -> tuple[Path | None, str | None]:
    try:
        path = maatml_runs.resolve_checkpoint(theirs, asked)
    except FileNotFoundError:
        return None, None
    return Path(path).resolve(), maatml_runs.run_id_for_checkpoint(theirs, path)


def our_resolution(path: Path, asked: str | None) -> tuple[Path | None, str | None]:
    try:
        found = resolve_checkpoint(read_model(path), asked)
    except ModelError:
        return None, None
    return found.path, found.run_id


@settings(max_examples=40, deadline=None)
@given(events=EVENTS)
def test_checkpoints_resolve_as_the_peer_resolves_them(events: list[tuple[str, str]]) -> None:
    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        path = Path(name).resolve()
        (path / "model.yml").write_text("name: m\nmodel_id: m\n")
        theirs = maatml_config.load_model_def(path)
        play(theirs, events)
        # Ours first: the peer writes the runs that it adopts back to runs.jsonl.
        ours = {asked: our_resolution(path, asked) for asked in ASKED}
        for asked in ASKED:
            assert ours[asked] == peer_resolution(theirs, asked), asked


def test_a_selected_folder_that_is_a_run_itself_counts_as_that_run(tmp_path: Path) -> None:
    path = write_folder(tmp_path / "w")
    theirs = maatml_config.load_model_def(path, load_plugins=False)
    outer = Path(maatml_runs.start_run(theirs, run_id="outer").out_dir)
    maatml_runs.start_run(theirs, run_id="inner", out_dir=outer / "inner")
    maatml_runs.record_selection(theirs, "outer", {}, selected_checkpoint="inner")
    assert our_resolution(path, "outer") == peer_resolution(theirs, "outer")
    assert our_resolution(path, "outer") == (outer / "inner", "inner")


def test_a_relocated_run_resolves_as_the_peers_by_its_id_and_by_default_too(
    tmp_path: Path,
) -> None:
    path = write_folder(tmp_path / "trained-here")
    run_id = train(path, right=1.0)
    moved = path.rename(tmp_path / "moved-there")
    theirs = maatml_config.load_model_def(moved, load_plugins=False)
    assert our_resolution(moved, run_id) == peer_resolution(theirs, run_id)
    assert our_resolution(moved, None) == our_resolution(moved, run_id)


def test_a_newer_folder_does_not_hide_a_relocated_completed_run(tmp_path: Path) -> None:
    """Here we part from the peer: in a fresh clone the times of folders mean nothing."""
    path = write_folder(tmp_path / "trained-here")
    run_id = train(path, right=1.0)
    moved = path.rename(tmp_path / "moved-there")
    (moved / "output/checkpoints/zz-unfinished").mkdir()
    os.utime(moved / "output/checkpoints" / run_id, (1, 1))
    theirs = maatml_config.load_model_def(moved, load_plugins=False)
    assert our_resolution(moved, None)[1] == run_id
    assert peer_resolution(theirs, None)[1] == "zz-unfinished"


def test_models_and_registry_work_where_maatml_is_not_installed(tmp_path: Path) -> None:
    folder = tmp_path / "m"
    folder.mkdir()
    (folder / "model.yml").write_text("name: m\nmodel_id: m\narchitecture: walk\nplugins: [./p]\n")
    (folder / "p").mkdir()
    (folder / "p/part.py").write_text("VALUE = 3\n")
    (folder / "p/__init__.py").write_text(
        textwrap.dedent("""
            from pytest_maatml.registry import register_predictor
            from .part import VALUE

            @register_predictor("walk")
            class Walk:
                def score(self, observation, candidates):
                    return [VALUE for _ in candidates]
        """)
    )
    script = textwrap.dedent(f"""
        import sys

        class NotInstalled:
            @staticmethod
            def find_spec(name, path=None, target=None):
                if name.split(".")[0] in ("maatml", "pydantic", "torch"):
                    raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

        sys.meta_path.insert(0, NotInstalled)
        from pathlib import Path
        from pytest_maatml.models import load_policy, read_model
        print(load_policy(read_model(Path({str(folder)!r}))).policy.score({{}}, [{{}}]))
    """)

    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (run.stdout.strip(), run.stderr) == ("[3]", "")
