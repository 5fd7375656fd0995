from __future__ import annotations

import copy
import importlib
import json
import os
import pickle
import sys
import textwrap
from typing import TYPE_CHECKING, Any

import pytest

from pytest_maatml import registry
from pytest_maatml.errors import ConfigurationError, ModelError
from pytest_maatml.models import (
    checkpoint_digest,
    load_plugins,
    load_policy,
    load_policy_reference,
    read_model,
    resolve_checkpoint,
    suites,
)

if TYPE_CHECKING:
    from pathlib import Path

HEAD = "name: walker\nmodel_id: walker-id\n"
POLICY = """
from pytest_maatml.registry import register_predictor

@register_predictor("{name}")
class Walker:
    who = "{who}"
    seen = None

    def setup(self, checkpoint_dir, *, model_def, device):
        self.seen = (checkpoint_dir, model_def, device)

    def score(self, observation, candidates):
        return [0.0 for _ in candidates]
"""

COUNTED = """
with open({log!r}, "a") as log:
    log.write("x")
"""


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_registered", {"environment": {}, "predictor": {}, "format": {}})
    monkeypatch.setattr(registry, "_failures", {})
    monkeypatch.setattr(sys, "path", list(sys.path))


def folder(path: Path, text: str = HEAD, **files: str) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    (path / "model.yml").write_text(textwrap.dedent(text))
    for name, content in files.items():
        file = path / (name.replace("__", "/") + ".py")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    return path


def package(path: Path, **modules: str) -> None:
    path.mkdir(parents=True)
    for name, content in modules.items():
        (path / f"{name}.py").write_text(content)


# --- model.yml -------------------------------------------------------------------------------


def test_a_model_is_read_from_its_folder_or_its_file(tmp_path: Path) -> None:
    path = folder(tmp_path / "m")
    assert read_model(path) == read_model(path / "model.yml")
    assert read_model(path).model_dir == path.resolve()


def test_defaults_and_paths_are_those_of_the_peer(tmp_path: Path) -> None:
    path = folder(tmp_path / "m")
    ours = read_model(path)
    theirs = importlib.import_module("maatml.config").load_model_def(path)
    paths = ("model_dir", "output_dir", "checkpoints_dir", "prepared_dir", "eval_dir")
    sections = ("dataset", "data", "training", "evaluation", "extensions")
    for name in ("name", "model_id", "architecture", "version", "identity", *paths, *sections):
        assert getattr(ours, name) == getattr(theirs, name), name
    assert list(ours.plugins) == theirs.plugins
    for rel in ("a/../b.json", "/etc/x", "output"):
        assert ours.resolve(rel) == theirs.resolve(rel)


def test_keys_that_we_do_not_know_are_kept_as_attributes(tmp_path: Path) -> None:
    model = read_model(folder(tmp_path / "m", HEAD + "smoke: {max_steps: 3}\nnovel: [1]\n"))
    assert model.smoke == {"max_steps": 3}
    assert model.novel == [1]
    with pytest.raises(AttributeError, match="'absent'"):
        _ = model.absent


def test_a_definition_survives_a_trip_to_another_process(tmp_path: Path) -> None:
    model = read_model(folder(tmp_path / "m"))
    assert pickle.loads(pickle.dumps(model)) == copy.deepcopy(model) == model


def test_reading_a_model_runs_none_of_its_plugins(tmp_path: Path) -> None:
    path = folder(tmp_path / "m", HEAD + "plugins: [./bad.py]\n", bad="raise SystemExit")
    assert read_model(path).plugins == ("./bad.py",)


def test_no_folder_and_no_model_file_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"there is no model folder .*absent"):
        read_model(tmp_path / "absent")
    with pytest.raises(ModelError, match=r"has no model\.yml"):
        read_model(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: a\nb: [1, 2\nc: d\n", r"model\.yml:3:2 is not YAML: expected ',' or ']'"),
        ("name: a\n\tb: 1\n", r"model\.yml:2:1 is not YAML: found character '\\t'"),
        ("name: !!python/object:os.x {}\n", r"model\.yml:1:7 is not YAML: could not determine"),
        ("name: a\n---\nname: b\n", r"model\.yml:\d:\d is not YAML"),
        ("name: \x01\n", r"model\.yml cannot be read: .*special characters"),
        ("", r"must be a mapping of keys at the top level; it is empty"),
        ("- name\n", r"must be a mapping of keys at the top level; it is a list"),
        ("model_id: x\n", r"model\.yml has no name; add `name: m`"),
        ("name: ''\n", r"model\.yml has no name"),
        ("name: 7\n", r"name must be text \(quote it\), not 7"),
        ("name: a\nversion: 1.0\n", r"version must be text \(quote it\), not 1\.0"),
        ("name: a\nplugins: ./p\n", r"plugins must be a list, not '\./p'"),
        ("name: a\nplugins: [1]\n", r"plugins must be a list of text; 1 is none"),
        ("name: a\nevaluation: line\n", r"evaluation must be a mapping, not 'line'"),
        ("name: a\nextensions: [x]\n", r"extensions must be a mapping"),
    ],
)
def test_a_model_file_that_cannot_be_understood_says_where(
    tmp_path: Path, text: str, message: str
) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m/model.yml").write_text(text)
    with pytest.raises(ModelError, match=message) as error:
        read_model(tmp_path / "m")
    assert str(tmp_path) in str(error.value)


def test_a_model_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.yml").write_bytes(b"name: \xff\xfe\n")
    with pytest.raises(ModelError, match=r"model\.yml cannot be read"):
        read_model(tmp_path)


# --- plugins and policies --------------------------------------------------------------------


@pytest.mark.parametrize("peer", [True, False])
@pytest.mark.parametrize("entry", ["./plugin.py", "plugin.py", "./pack", "pack"])
def test_a_folder_local_plugin_runs_once_and_registers(
    tmp_path: Path, entry: str, peer: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not peer:
        monkeypatch.setattr(registry, "peer_registry", lambda: None)
    log = tmp_path / "log"
    text = COUNTED.format(log=str(log)) + POLICY.format(name="walk", who="me")
    path = folder(tmp_path / "m", HEAD + f"architecture: walk\nplugins: [{entry}]\n", plugin=text)
    package(path / "pack", __init__="from . import part", part=text)
    model = read_model(path)
    load_plugins(model)
    load_plugins(read_model(path))
    assert load_policy(model).policy.who == "me"
    assert log.read_text() == "x"


def test_a_plugin_that_a_reference_ran_is_not_run_again(tmp_path: Path) -> None:
    log = tmp_path / "log"
    text = COUNTED.format(log=str(log)) + POLICY.format(name="walk", who="me")
    path = folder(tmp_path / "m", HEAD + "architecture: walk\nplugins: [./p.py]\n", p=text)
    found = registry.resolve_reference("p.py:Walker", kind="predictor", base=path)
    assert type(load_policy(read_model(path)).policy) is found
    assert log.read_text() == "x"


def test_a_plugin_may_be_a_dotted_module(tmp_path: Path) -> None:
    sys.path.insert(0, str(tmp_path))
    package(tmp_path / "dotted_pack_t", __init__="", part=POLICY.format(name="walk", who="dotted"))
    text = HEAD + "architecture: walk\nplugins: [dotted_pack_t.part]\n"
    assert load_policy(read_model(folder(tmp_path / "m", text))).policy.who == "dotted"


@pytest.mark.parametrize("peer", [True, False])
def test_each_folder_gets_the_predictor_of_its_own_plugin(
    tmp_path: Path, peer: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not peer:
        monkeypatch.setattr(registry, "peer_registry", lambda: None)
    text = HEAD + "evaluation: {predictor: walk}\nplugins: [./p.py]\n"
    models = [
        read_model(folder(tmp_path / who / "m", text, p=POLICY.format(name="walk", who=who)))
        for who in ("one", "two")
    ]
    for model in models:
        load_plugins(model)
    assert [load_policy(model).policy.who for model in models] == ["one", "two"]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("./absent.py", r"'\./absent\.py' cannot be imported: .*there is no file .*absent\.py"),
        ("./empty", r"there is no file .*empty/__init__\.py"),
        ("./bad.py", r"'\./bad\.py' cannot be imported: ValueError: broken \(.*bad\.py:2\)$"),
        ("no_such_module_y", r"No module named 'no_such_module_y'$"),
    ],
)
@pytest.mark.parametrize("peer", [True, False])
def test_a_plugin_that_fails_is_named_with_file_and_line(
    tmp_path: Path, entry: str, message: str, peer: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not peer:
        monkeypatch.setattr(registry, "peer_registry", lambda: None)
    path = folder(
        tmp_path / "m", HEAD + f"plugins: [{entry}]\n", bad="\nraise ValueError('broken')"
    )
    (path / "empty").mkdir()
    with pytest.raises(ModelError, match=message) as error:
        load_plugins(read_model(path))
    assert f"{path.resolve()}/model.yml: the plugin {entry!r}" in str(error.value)
    assert f"plugins: {entry}" in registry.plugin_failures()[0][0]


def test_setup_gets_the_checkpoint_the_definition_and_the_device_as_given(tmp_path: Path) -> None:
    text = HEAD + "architecture: other\nevaluation: {predictor: walk}\nplugins: [./p.py]\n"
    path = folder(tmp_path / "m", text, p=POLICY.format(name="walk", who="me"))
    (path / "output/checkpoints/run-7").mkdir(parents=True)
    model = read_model(path)
    loaded = load_policy(model)
    assert loaded.policy.seen == (path.resolve() / "output/checkpoints/run-7", model, "auto")
    assert loaded.version == loaded.checkpoint.run_id == "run-7"
    assert loaded.digest == checkpoint_digest(path / "output/checkpoints/run-7")
    assert load_policy(model, device="cuda:1").policy.seen[2] == "cuda:1"


def test_without_checkpoints_setup_gets_none_and_the_version_is_the_identity(
    tmp_path: Path,
) -> None:
    text = HEAD + "architecture: walk\nversion: 1.2.3\nplugins: [./p.py]\n"
    path = folder(tmp_path / "m", text, p=POLICY.format(name="walk", who="me"))
    loaded = load_policy(read_model(path))
    assert loaded.policy.seen[0] is None
    assert (loaded.version, loaded.digest) == ("walker@1.2.3", None)
    assert loaded.checkpoint.path is None


class Scorer:
    def score(self, observation: dict[str, Any], candidates: list[dict[str, Any]]) -> list[float]:
        return [1.0 for _ in candidates]


@pytest.mark.parametrize("target", [Scorer, Scorer(), lambda: Scorer()])
def test_a_predictor_may_be_a_class_an_object_or_a_factory(tmp_path: Path, target: object) -> None:
    registry.register_predictor("walk")(target)
    model = read_model(folder(tmp_path / "m", HEAD + "architecture: walk\n"))
    assert load_policy(model).policy.score({}, [{}]) == [1.0]


def test_a_predictor_without_score_says_what_score_must_be(tmp_path: Path) -> None:
    registry.register_predictor("walk")(type("Classifier", (), {"predict": None}))
    model = read_model(folder(tmp_path / "m", HEAD + "architecture: walk\n"))
    message = r"model\.yml: .*'walk'.* a Classifier without .*score\(observation, candidates\)"
    with pytest.raises(ModelError, match=message):
        load_policy(model)


def test_a_predictor_that_nobody_registered_is_found_by_its_key(tmp_path: Path) -> None:
    path = folder(tmp_path / "m", HEAD + "evaluation: {predictor: wlak}\n")
    registry.register_predictor("walk")(Scorer)
    message = r"model\.yml: evaluation\.predictor: unknown predictor 'wlak'; did you mean 'walk'"
    with pytest.raises(ConfigurationError, match=message):
        load_policy(read_model(path))


@pytest.mark.parametrize("method", ["__init__", "setup"])
def test_a_predictor_that_raises_is_named_with_file_and_line(tmp_path: Path, method: str) -> None:
    code = POLICY.format(name="walk", who="me") + (
        f"    def {method}(self, *given, **named):\n        raise KeyError('weights')\n"
    )
    text = HEAD + "architecture: walk\nplugins: [./p.py]\n"
    path = folder(tmp_path / "m", text, p=code)
    line = code.splitlines().index("        raise KeyError('weights')") + 1
    with pytest.raises(ModelError, match=rf"KeyError: 'weights' \(.*p\.py:{line}\)$"):
        load_policy(read_model(path))


@pytest.mark.parametrize("attribute", ["Walker", "make", "ready"])
def test_a_policy_reference_is_loaded_with_its_text_as_version(
    tmp_path: Path, attribute: str
) -> None:
    code = POLICY.format(name="walk", who="me") + (
        "\nready = Walker()\ndef make():\n    return Walker()\n"
    )
    (tmp_path / "pol.py").write_text(code)
    loaded = load_policy_reference(f"pol.py:{attribute}", base=tmp_path)
    assert loaded.policy.who == "me"
    assert loaded.policy.seen is None
    assert (loaded.version, loaded.digest) == (f"pol.py:{attribute}", None)


def test_a_reference_to_what_is_no_policy_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pol.py").write_text("def make():\n    return 3\nnumber = 4\n")
    for attribute in ("make", "number"):
        with pytest.raises(ModelError, match="is a int without a score method"):
            load_policy_reference(f"pol.py:{attribute}", base=tmp_path)


# --- checkpoints -----------------------------------------------------------------------------


def record(run_id: str, out_dir: Path | str, **changes: Any) -> str:
    return json.dumps(
        {
            "run_id": run_id,
            "identity": "walker@0.1.0",
            "architecture": "walk",
            "status": "completed",
            "started_at": "2026-01-01T00:00:00+00:00",
            "finished_at": None,
            "out_dir": str(out_dir),
            "selected_checkpoint": None,
            **changes,
        }
    )


def with_runs(path: Path, *lines: str, folders: tuple[str, ...] = ()) -> Path:
    folder(path)
    (path / "output/checkpoints").mkdir(parents=True)
    (path / "output/runs.jsonl").write_text("".join(f"{line}\n" for line in lines))
    for name in folders:
        (path / "output/checkpoints" / name).mkdir(parents=True)
    return path.resolve()


def test_the_completed_run_that_finished_last_is_taken(tmp_path: Path) -> None:
    root = tmp_path / "m/output/checkpoints"
    path = with_runs(
        tmp_path / "m",
        record("c", root / "c", finished_at="2026-03-01"),
        record("a", root / "a", finished_at="2026-04-01"),
        record("b", root / "b", finished_at="2026-02-01"),
        record("d", root / "d", finished_at="2026-05-01", status="aborted"),
        folders=("a", "b", "c", "d"),
    )
    found = resolve_checkpoint(read_model(path))
    assert (found.path, found.run_id) == (path / "output/checkpoints/a", "a")


def test_the_latest_line_of_a_run_stands(tmp_path: Path) -> None:
    root = tmp_path / "m/output/checkpoints"
    path = with_runs(
        tmp_path / "m",
        record("a", root / "a", finished_at="2026-04-01"),
        record("b", root / "b", finished_at="2026-02-01"),
        record("a", root / "a", finished_at="2026-04-01", status="aborted"),
        folders=("a", "b"),
    )
    assert resolve_checkpoint(read_model(path)).run_id == "b"


def test_a_selected_checkpoint_stands_for_its_run(tmp_path: Path) -> None:
    root = tmp_path / "m/output/checkpoints"
    path = with_runs(
        tmp_path / "m",
        record("a", root / "a", selected_checkpoint="checkpoint-3"),
        folders=("a/checkpoint-3", "a/checkpoint-9"),
    )
    for asked in (None, "a", "output/checkpoints/a/checkpoint-3"):
        found = resolve_checkpoint(read_model(path), asked)
        assert found.path == path / "output/checkpoints/a/checkpoint-3"
        assert found.run_id == "a"
    other = resolve_checkpoint(read_model(path), "output/checkpoints/a/checkpoint-9")
    assert other.run_id == "checkpoint-9"


@pytest.mark.parametrize("asked", [None, "a"])
def test_a_run_that_was_moved_is_found_under_its_id(tmp_path: Path, asked: str | None) -> None:
    path = with_runs(
        tmp_path / "m",
        record("a", "/somewhere/else/a", selected_checkpoint="s"),
        folders=("a/s", "newer"),
    )
    os.utime(path / "output/checkpoints/a", (1, 1))
    found = resolve_checkpoint(read_model(path), asked)
    assert (found.path, found.run_id) == (path / "output/checkpoints/a/s", "a")


def test_without_runs_the_newest_folder_is_taken(tmp_path: Path) -> None:
    path = with_runs(tmp_path / "m", folders=("a", "b", "c"))
    for name, time in (("a", 100), ("b", 300), ("c", 200)):
        os.utime(path / "output/checkpoints" / name, (time, time))
    found = resolve_checkpoint(read_model(path))
    assert (found.path, found.run_id) == (path / "output/checkpoints/b", "b")


def test_a_folder_is_looked_for_from_here_and_from_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = with_runs(tmp_path / "m", folders=("a",))
    (tmp_path / "elsewhere/w").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "elsewhere")
    model = read_model(path)
    assert resolve_checkpoint(model, "w").path == (tmp_path / "elsewhere/w").resolve()
    assert resolve_checkpoint(model, "output").path == path / "output"
    assert resolve_checkpoint(model, "a").path == path / "output/checkpoints/a"
    assert resolve_checkpoint(model, str(tmp_path)).path == tmp_path.resolve()


@pytest.mark.parametrize(
    "torn",
    ['{"run_id": "z", "stat', "[]", "null", '{"run_id": "z"}', record("z", "z", status="lost")],
)
def test_a_torn_record_is_passed_over_with_its_line(tmp_path: Path, torn: str) -> None:
    root = tmp_path / "m/output/checkpoints"
    path = with_runs(tmp_path / "m", record("a", root / "a"), torn, folders=("a", "z"))
    with pytest.warns(RuntimeWarning, match=r"runs\.jsonl:2 is not a run record"):
        assert resolve_checkpoint(read_model(path)).run_id == "a"
    assert [file.name for file in (path / "output").iterdir() if file.is_file()] == ["runs.jsonl"]


def test_a_completed_run_whose_folder_is_gone_is_no_scripted_policy(tmp_path: Path) -> None:
    path = with_runs(tmp_path / "m", record("a", "/gone/a"))
    with pytest.raises(ModelError, match="the checkpoint of run 'a' is gone: neither /gone/a nor"):
        resolve_checkpoint(read_model(path))


@pytest.mark.parametrize(
    "text",
    ["name: b\n", "training:\n  lr: 1\n  lr: 2\n", "training: {lr: 1, x: [{lr: 2, lr: 2}]}\n"],
)
def test_a_key_that_comes_twice_is_refused_with_both_lines(tmp_path: Path, text: str) -> None:
    path = folder(tmp_path / "m", HEAD + text)
    with pytest.raises(ModelError, match=r"model.yml:\d+ has the key '(name|lr)', and so has line"):
        read_model(path)


def test_an_unknown_checkpoint_lists_the_known_runs(tmp_path: Path) -> None:
    path = with_runs(tmp_path / "m", record("a", "/gone/a"), folders=("b",))
    with pytest.raises(ModelError, match=r"no checkpoint 'x' in .*Known runs: a, b$"):
        resolve_checkpoint(read_model(path), "x")
    with pytest.raises(ModelError, match=r"of run 'a' is gone: neither /gone/a nor .*exists"):
        resolve_checkpoint(read_model(path), "a")


def test_the_digest_is_of_names_and_contents_wherever_they_lie(tmp_path: Path) -> None:
    for place in ("here", "there"):
        (tmp_path / place / "sub").mkdir(parents=True)
        (tmp_path / place / "w.bin").write_bytes(b"\0" * 3_000_000)
        (tmp_path / place / "sub/config.json").write_text("{}")
    base = checkpoint_digest(tmp_path / "here")
    assert checkpoint_digest(tmp_path / "there") == base
    assert len(bytes.fromhex(base)) == 16
    (tmp_path / "there/sub/config.json").write_text("[]")
    changed = checkpoint_digest(tmp_path / "there")
    (tmp_path / "there/sub/config.json").rename(tmp_path / "there/config.json")
    assert len({base, changed, checkpoint_digest(tmp_path / "there")}) == 3
    assert checkpoint_digest(tmp_path / "here/w.bin") != base


def test_the_digest_tells_a_name_from_the_content_before_it(tmp_path: Path) -> None:
    for place, names in (("one", {"a": "b", "c": ""}), ("two", {"a": "", "bc": ""})):
        (tmp_path / place).mkdir()
        for name, text in names.items():
            (tmp_path / place / name).write_text(text)
    assert checkpoint_digest(tmp_path / "one") != checkpoint_digest(tmp_path / "two")


def test_a_checkpoint_that_cannot_be_looked_at_is_a_fault_of_the_model_folder(
    tmp_path: Path,
) -> None:
    path = folder(tmp_path / "m")
    with pytest.raises(ModelError, match="cannot be found: File name too long: 'aaa"):
        resolve_checkpoint(read_model(path), "a" * 5000)


# --- suites ----------------------------------------------------------------------------------


def declare(path: Path, text: str) -> Path:
    indented = textwrap.indent(textwrap.dedent(text).strip("\n"), "      ")
    return folder(path, f"{HEAD}extensions:\n  pytest_maatml:\n    suites:\n{indented}\n")


def test_suites_keep_their_order_their_settings_and_their_lines(tmp_path: Path) -> None:
    path = declare(
        tmp_path / "m",
        """
        - name: smoke
          env: line_world
          tasks: {count: 50, seed: 1}
          options: {extra_steps: 4}
          min_success: {default: 0.9, far: 0.8, 3: 1}
          seed: 5
        - env_command: node world.js
          tasks: [{id: a, family: f}]
          min_success: 0.75
        - env: world.py:World
        """,
    )
    smoke, command, bare = suites(read_model(path))
    assert (smoke.name, smoke.env, smoke.env_command) == ("smoke", "line_world", None)
    assert smoke.tasks == {"count": 50, "seed": 1}
    assert smoke.options == {"extra_steps": 4}
    assert smoke.min_success == {"default": 0.9, "far": 0.8, "3": 1}
    assert smoke.extra == {"seed": 5}
    assert (command.name, command.env, command.env_command) == (None, None, "node world.js")
    assert command.tasks == [{"id": "a", "family": "f"}]
    assert command.min_success == {"default": 0.75}
    assert (bare.tasks, bare.options, bare.min_success, bare.extra) == ({}, {}, {}, {})
    assert [suite.line for suite in (smoke, command, bare)] == [6, 12, 15]


def test_a_model_that_declares_no_suites_has_none(tmp_path: Path) -> None:
    for extra in ("", "extensions: {pytest_maatml: {}}\n", "extensions: {other: 1}\n"):
        assert suites(read_model(folder(tmp_path / "m", HEAD + extra))) == ()


def test_a_model_file_with_suites_is_valid_for_the_peer(tmp_path: Path) -> None:
    path = declare(tmp_path / "m", "- {name: s, env: line_world, min_success: 0.5}")
    theirs = importlib.import_module("maatml.config").load_model_def(path)
    assert theirs.extensions["pytest_maatml"]["suites"][0]["name"] == "s"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- {env: a, min_sucess: 1}", r"isolate; did you mean 'min_success'\?"),
        ("- {env: a, familie: x}", r"model\.yml:6: a suite has no key 'familie'; known keys: name"),
        ("- {env: a}\n- {env: b, env_command: c}", r"model\.yml:7: a suite needs one of `env`"),
        ("- {tasks: {}}", r"model\.yml:6: a suite needs one of `env` and `env_command`"),
        ("- {env: }", r"a suite needs one of `env` and `env_command`"),
        ("- line_world", r"model\.yml:6: a suite must be a mapping, not 'line_world'"),
        ("- {env: a}\n\n- {env: a}", r"model\.yml:8: a suite called 'a' is at line 6 already"),
        ("- {env: a, name: n}\n- {env: b, name: n}", r"a suite called 'n' is at line 6"),
        ("- {env: a}\n- {env: b, name: a}", r"a suite called 'a' is at line 6"),
        ("- {env: 3}", r"model\.yml:6: env must be text, not 3"),
        ("- {env: a, name: ''}", r"name must be text, not ''"),
        ("- {env: a, tasks: 5}", r"model\.yml:6: tasks must be a mapping or a list"),
        ("- {env: a, options: [1]}", r"options must be a mapping$"),
        ("- {env: a, options: {d: 2026-01-01}}", r"options must be JSON: .*date.*quote"),
        ("- {env: a, tasks: {d: .nan}}", r"tasks must be JSON: "),
        ("- {env: a, min_success: yes}", r"min_success of default must be a rate, not True"),
        ("- {env: a, min_success: {far: [1]}}", r"min_success of far must be a rate, not \[1\]"),
    ],
)
def test_a_suite_that_is_not_as_it_must_be_is_refused_at_its_line(
    tmp_path: Path, text: str, message: str
) -> None:
    model = read_model(declare(tmp_path / "m", text))
    with pytest.raises(ModelError, match=message):
        suites(model)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("extensions: {pytest_maatml: {suite: []}}", "one key `suites`, not {'suite': "),
        ("extensions: {pytest_maatml: [1]}", "one key `suites`, not"),
        ("extensions: {pytest_maatml: {suites: {a: b}}}", "suites must be a list of suites"),
    ],
)
def test_our_extension_holds_a_list_of_suites_alone(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(ModelError, match=message):
        suites(read_model(folder(tmp_path / "m", HEAD + text)))
