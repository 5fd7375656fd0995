from __future__ import annotations

import importlib
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_maatml import registry
from pytest_maatml.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

    Write = Callable[..., Path]


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_registered", {"environment": {}, "predictor": {}, "format": {}})
    monkeypatch.setattr(registry, "_failures", {})
    monkeypatch.setattr(sys, "path", list(sys.path))


@pytest.fixture
def forgotten_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "maatml"]:
        monkeypatch.delitem(sys.modules, name)


@pytest.fixture
def no_peer(monkeypatch: pytest.MonkeyPatch, forgotten_peer: None) -> None:
    class NotInstalled:
        @staticmethod
        def find_spec(name: str, path: object = None, target: object = None) -> None:
            if name.split(".")[0] == "maatml":
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(sys, "meta_path", [NotInstalled, *sys.meta_path])


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write_module(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
        return path

    return write_module


def test_importing_the_registry_brings_in_nothing_heavy() -> None:
    script = (
        "import sys, pytest_maatml.registry\n"
        "print(sorted({'yaml', 'numpy', 'orjson', 'maatml', 'pytest'} & sys.modules.keys()))"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_a_decorator_returns_what_it_registers() -> None:
    def factory() -> str:
        return "made"

    assert registry.register_environment("mine")(factory) is factory
    assert registry.find_environment("mine") is factory
    assert registry.register_predictor("mine")(factory) is factory
    assert registry.find_predictor("mine") is factory
    assert registry.register_format("mine")(factory) is factory
    assert registry.find_format("mine") is factory


def test_a_decorator_without_its_name_is_refused_where_it_stands() -> None:
    with pytest.raises(ConfigurationError, match="register_environment takes a name"):
        registry.register_environment(lambda: None)  # type: ignore[arg-type]


def test_the_later_of_two_registrations_wins_and_the_warning_names_both() -> None:
    @registry.register_predictor("shared")
    class First:
        pass

    with pytest.warns(RuntimeWarning, match=r"Second .*replaces that of .*First"):

        @registry.register_predictor("shared")
        class Second:
            pass

    assert registry.find_predictor("shared") is Second


def test_the_same_source_may_register_again_silently() -> None:
    def define() -> type:
        @registry.register_predictor("again")
        class Again:
            pass

        return Again

    define()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        latest = define()
    assert registry.find_predictor("again") is latest


def test_a_copy_of_a_plugin_in_another_folder_is_the_same_source(write: Write) -> None:
    text = """
        from pytest_maatml.registry import register_predictor

        @register_predictor("copied")
        class Copied:
            pass
    """
    registry.load_file(write("a/plugin.py", text))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        second = registry.load_file(write("b/plugin.py", text))
    assert registry.find_predictor("copied") is second.Copied


def test_two_plugins_that_claim_one_name_warn(write: Write) -> None:
    text = """
        from pytest_maatml.registry import register_predictor

        @register_predictor("claimed")
        class Claimed:
            pass
    """
    registry.load_file(write("first.py", text))
    with pytest.warns(RuntimeWarning, match=r"second\.py:\d+\) replaces .*first\.py:\d+"):
        registry.load_file(write("second.py", text))


def test_ours_come_before_the_built_ins_and_those_before_the_peer() -> None:
    from pytest_maatml.environments.line_world import LineWorld

    assert registry.find_environment("line_world") is LineWorld

    @registry.register_environment("line_world")
    def mine() -> None:
        pass

    assert registry.find_environment("line_world") is mine


def test_a_built_in_whose_extra_is_missing_says_what_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pytest_maatml.environments.gymnasium", None)
    with pytest.raises(ConfigurationError, match=r"GymnasiumEnvironment cannot be imported: .*"):
        registry.find_environment("gymnasium")


def test_what_is_registered_with_the_peer_is_found() -> None:
    peer = importlib.import_module("maatml.registry")
    peer.discover_plugins()
    before = peer.snapshot_registries()
    try:
        factory = peer.register_environment("only_with_the_peer")(lambda: "theirs")
        assert registry.find_environment("only_with_the_peer") is factory
        assert registry.find("environment", "only_with_the_peer").from_peer
    finally:
        peer.restore_registries(before)


def test_an_unknown_name_lists_the_known_ones_and_the_nearest() -> None:
    registry.register_environment("my_world")(lambda: None)
    with pytest.raises(ConfigurationError) as error:
        registry.find_environment("line_wrold")
    message = str(error.value)
    assert "unknown environment 'line_wrold'; did you mean 'line_world'?" in message
    assert "Known: gymnasium, line_world, my_world." in message


def test_an_unknown_predictor_lists_the_predictors_of_the_peer() -> None:
    with pytest.raises(ConfigurationError, match="causal_sft"):
        registry.find_predictor("nobody")


@pytest.mark.usefixtures("no_peer")
def test_without_the_peer_an_unknown_name_is_our_plain_error() -> None:
    with pytest.raises(ConfigurationError, match=r"unknown predictor 'nobody'\. Known: \(none\)\."):
        registry.find_predictor("nobody")
    assert registry.plugin_failures() == ()


def test_a_peer_that_cannot_be_imported_is_named_and_is_no_error(
    write: Write, monkeypatch: pytest.MonkeyPatch, forgotten_peer: None
) -> None:
    broken = write("broken/maatml/__init__.py", "raise OSError('libtorch is missing')")
    monkeypatch.syspath_prepend(str(broken.parent.parent))
    with pytest.raises(ConfigurationError) as error:
        registry.find_format("nobody")
    assert f"maatml: OSError: libtorch is missing ({broken}:1)" in str(error.value)


def test_plugins_that_failed_are_part_of_the_message() -> None:
    registry.record_plugin_failure("model.yml plugins: ./p", "ValueError: no (p.py:3)")
    with pytest.raises(ConfigurationError, match=r"\./p: ValueError: no \(p\.py:3\)"):
        registry.find_environment("nobody")
    assert ("model.yml plugins: ./p", "ValueError: no (p.py:3)") in registry.plugin_failures()


def test_failures_of_the_peers_own_plugins_are_listed() -> None:
    peer = importlib.import_module("maatml.registry")
    peer.restore_load_errors([("entry_point:theirs", "ImportError: gone")])
    try:
        with pytest.raises(ConfigurationError, match="entry_point:theirs: ImportError: gone"):
            registry.find_environment("nobody")
    finally:
        peer.restore_load_errors()


@pytest.mark.parametrize("attribute", ["World", "Outer.Inner", "instance"])
def test_a_file_reference_gives_its_attribute(write: Write, attribute: str) -> None:
    path = write(
        "worlds/mine.py",
        """
        class World: pass
        class Outer:
            class Inner: pass
        instance = World()
        """,
    )
    found = registry.resolve_reference(
        f"worlds/mine.py:{attribute}", kind="environment", base=path.parent.parent
    )
    module = registry.load_file(path)
    expected = module.Outer.Inner if attribute == "Outer.Inner" else getattr(module, attribute)
    assert found is expected


def test_a_file_runs_once_a_process_and_can_be_found_by_its_module_name(write: Write) -> None:
    path = write("counted.py", "class A: pass\nclass B(A): pass\n")
    first = registry.resolve_reference("counted.py:A", kind="environment", base=path.parent)
    second = registry.resolve_reference(f"{path}:B", kind="predictor", base=Path("/"))
    assert isinstance(first, type)
    assert isinstance(second, type)
    assert second.__mro__[1] is first
    assert sys.modules[first.__module__].__dict__["A"] is first


def test_a_file_that_somebody_imported_already_is_not_run_again(write: Write) -> None:
    path = write("imported_before.py", "class A: pass\n")
    sys.path.insert(0, str(path.parent))
    import imported_before  # type: ignore[import-not-found]

    found = registry.resolve_reference("imported_before.py:A", kind="predictor", base=path.parent)
    assert found is imported_before.A


def test_files_of_the_same_name_do_not_collide(write: Write) -> None:
    one = registry.load_file(write("a/same.py", "WHO = 'a'"))
    other = registry.load_file(write("b/same.py", "WHO = 'b'"))
    assert (one.WHO, other.WHO) == ("a", "b")
    assert one.__name__ != other.__name__


def test_a_package_may_import_its_own_modules(write: Write) -> None:
    write("pack/part.py", "VALUE = 7")
    init = write("pack/__init__.py", "from .part import VALUE\nfrom . import part")
    assert registry.load_file(init).VALUE == 7


def test_a_file_that_failed_may_be_mended_and_loaded(write: Write) -> None:
    with pytest.raises(ZeroDivisionError):
        registry.load_file(write("mended.py", "1 / 0"))
    assert registry.load_file(write("mended.py", "value = 'now it is well'")).value


def test_a_module_reference_is_looked_for_from_the_base_folder(write: Write) -> None:
    base = write("user_package_q/deep.py", "class P:\n    class Q: pass").parent.parent
    found = registry.resolve_reference("user_package_q.deep:P.Q", kind="predictor", base=base)
    assert getattr(found, "__qualname__", None) == "P.Q"
    assert str(base) in sys.path


def test_a_registered_name_is_a_reference() -> None:
    target = registry.register_predictor("plain:name")(object())
    found = registry.resolve_reference("plain:name", kind="predictor", base=Path())
    assert found is target


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("absent.py:A", r"there is no file .*absent\.py"),
        ("no_such_module_x:A", r"there is no module 'no_such_module_x'; looked in "),
        ("json.no_such_part:A", r"there is no module 'json\.no_such_part'"),
        ("half.py:Nothing", r"half\.py has no 'Nothing'; it has Here"),
        ("half.py:Here.Nothing", r"has no 'Here\.Nothing'"),
        ("half:Nothing", r"half\.py has no 'Nothing'"),
        ("raises.py:A", r"ValueError: not today \(.*raises\.py:2\)$"),
        ("raises:A", r"ValueError: not today \(.*raises\.py:2\)$"),
        ("syntax.py:A", r"SyntaxError: .*\(.*syntax\.py:3\)$"),
        ("leaves.py:A", r"SystemExit: 3 \(.*leaves\.py:1\)$"),
        ("needs.py:A", r"No module named 'absent_dependency' \(.*needs\.py:1\)$"),
        ("needs:A", r"cannot be imported: .*'absent_dependency' \(.*needs\.py:1\)$"),
        (":A", r"':A' is neither a registered name nor MODULE:ATTR nor FILE\.py:ATTR"),
        ("half.py:", r"'half\.py:' is neither"),
        ("half.py:a b", "is neither"),
        ("half.py", r"unknown environment 'half\.py'.* FILE\.py:ATTR"),
    ],
)
def test_a_reference_that_leads_nowhere_says_why(write: Write, text: str, message: str) -> None:
    base = write("half.py", "class Here: pass").parent
    write("raises.py", "\nraise ValueError('not today')")
    write("syntax.py", "\n\ndef (")
    write("leaves.py", "raise SystemExit(3)")
    write("needs.py", "import absent_dependency")
    for name in ("half", "raises", "needs"):
        sys.modules.pop(name, None)
    with pytest.raises(ConfigurationError, match=message):
        registry.resolve_reference(text, kind="environment", base=base)
