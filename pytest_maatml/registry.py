"""Environments, predictors and formats by name, and the bridge to an installed maatml."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import re
import sys
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar

from pytest_maatml.errors import ConfigurationError, describe, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import ModuleType

__all__ = [
    "WITHOUT_A_NAME",
    "Registration",
    "find",
    "find_environment",
    "find_format",
    "find_predictor",
    "load_file",
    "peer_registry",
    "plugin_failures",
    "ran_here",
    "record_plugin_failure",
    "register_environment",
    "register_format",
    "register_predictor",
    "resolve_reference",
]

Kind: TypeAlias = Literal["environment", "predictor", "format"]
_Registered = TypeVar("_Registered")


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    name: str
    target: Any
    #: Module and qualified name of what was registered: the same for a copy of a plugin.
    source: str
    #: Where the registering code is, for messages.
    file: str = ""
    #: The module that another process would have to import; None for what is built in.
    module: str | None = None
    #: Registered with the installed maatml, whose conventions it expects.
    from_peer: bool = False


_BUILT_IN: Final[dict[Kind, dict[str, str]]] = {
    "environment": {
        "line_world": "pytest_maatml.environments.line_world:LineWorld",
        "gymnasium": "pytest_maatml.environments.gymnasium:GymnasiumEnvironment",
    },
    "predictor": {},
    "format": {},
}
_PEER_REGISTRY: Final[dict[Kind, str]] = {
    "environment": "ENVIRONMENTS",
    "predictor": "PREDICTORS",
    "format": "FORMATS",
}
_registered: Final[dict[Kind, dict[str, Registration]]] = {
    "environment": {},
    "predictor": {},
    "format": {},
}
_failures: Final[dict[str, str]] = {}
#: Advice where any reference would do.
WITHOUT_A_NAME: Final = "One without a name is given as MODULE:ATTR or FILE.py:ATTR."
_FILE_MODULE: Final = "pytest_maatml_file_"
# Both prefixes hold a digest of the folder, which tells copies of one plugin apart.
_FOLDER_PREFIX: Final = re.compile(
    rf"^(?:{_FILE_MODULE}[0-9a-f]{{16}}_|maatml\._model_plugins\.[^.]+\.)"
)


def register_environment(name: str) -> Callable[[_Registered], _Registered]:
    """A decorator that makes an environment factory known by `name` and returns it unchanged.

    The factory takes no arguments and is called once a session. Where another factory has the
    name already, the later one wins, with a RuntimeWarning that names both.
    """
    return _decorator("environment", name)


def register_predictor(name: str) -> Callable[[_Registered], _Registered]:
    """A decorator that makes a predictor known by `name` and returns it unchanged.

    It may be a class, a factory or an object; model.yml asks for it by `evaluation.predictor`.
    """
    return _decorator("predictor", name)


def register_format(name: str) -> Callable[[_Registered], _Registered]:
    """A decorator that makes a format known by `name` and returns it unchanged."""
    return _decorator("format", name)


def _decorator(kind: Kind, name: str) -> Callable[[_Registered], _Registered]:
    if not isinstance(name, str) or not name:
        raise ConfigurationError(
            f"register_{kind} takes a name, not {name!r}: write @register_{kind}('my_{kind}')"
        )

    def register(target: _Registered) -> _Registered:
        caller = sys._getframe(1)
        module = _FOLDER_PREFIX.sub("", str(caller.f_globals.get("__name__", "?")))
        what = getattr(target, "__qualname__", type(target).__qualname__)
        _add(
            kind,
            Registration(
                name=name,
                target=target,
                source=f"{module}.{what}",
                file=f"{caller.f_code.co_filename}:{caller.f_lineno}",
                module=caller.f_globals.get("__name__"),
            ),
        )
        return target

    return register


def _add(kind: Kind, new: Registration) -> None:
    old = _registered[kind].get(new.name)
    _registered[kind][new.name] = new
    if old is not None and old.source != new.source:
        warnings.warn(
            f"{kind} {new.name!r} of {new.source} ({new.file}) replaces that of {old.source} "
            f"({old.file}); register one of them under another name if both are meant to stay",
            RuntimeWarning,
            stacklevel=3,
        )


def find_environment(name: str) -> Callable[[], Any]:
    """The environment factory of that name; `find` says where it is looked for."""
    factory: Callable[[], Any] = find("environment", name).target
    return factory


def find_predictor(name: str) -> Any:
    """The predictor of that name, as it was registered; `find` says where it is looked for."""
    return find("predictor", name).target


def find_format(name: str) -> Any:
    """The format of that name, as it was registered; `find` says where it is looked for."""
    return find("format", name).target


def find(kind: Kind, name: str, *, advice: str | None = None) -> Registration:
    """What has that name here, else among the built-ins, else in an installed maatml.

    Raises ConfigurationError where none has it, with the names that there are and the plugins
    that failed to import, and with the advice, which is to register it if nothing else is said.
    """
    found = _look_up(kind, name)
    if found is None:
        advice = advice or f"Register it with @register_{kind}."
        raise ConfigurationError(_unknown(kind, name, advice))
    return found


def _look_up(kind: Kind, name: str) -> Registration | None:
    if name in _registered[kind]:
        return _registered[kind][name]
    if name in _BUILT_IN[kind]:
        dotted = _BUILT_IN[kind][name]
        return Registration(name=name, target=_import_attribute(dotted), source=dotted)
    entry = _peer_entries(kind).get(name)
    if entry is None:
        return None
    module = getattr(entry.obj, "__module__", None)
    return Registration(
        name=name,
        target=entry.obj,
        source=entry.source,
        module=None if str(module).startswith("maatml.") else module,
        from_peer=True,
    )


def peer_registry() -> ModuleType | None:
    """The module `maatml.registry` with its plugins discovered; None without a working maatml."""
    try:
        registry = importlib.import_module("maatml.registry")
        registry.discover_plugins()
    except Exception as error:
        if not (isinstance(error, ModuleNotFoundError) and error.name == "maatml"):
            record_plugin_failure("maatml", describe(error))
        return None
    return registry


def _peer_entries(kind: Kind) -> dict[str, Any]:
    registry = peer_registry()
    if registry is None:
        return {}
    return {entry.name: entry for entry in getattr(registry, _PEER_REGISTRY[kind]).items()}


def plugin_failures() -> tuple[tuple[str, str], ...]:
    """Each plugin that failed to import and its error, those of an imported maatml included."""
    peer = sys.modules.get("maatml.registry")
    theirs = peer.load_errors() if peer is not None else ()
    return (*_failures.items(), *(pair for pair in theirs if pair[0] not in _failures))


def record_plugin_failure(source: str, error: str) -> None:
    """Keep the error for the message about a name that is unknown because of it."""
    _failures[source] = error


def _unknown(kind: Kind, name: str, advice: str) -> str:
    known = sorted({*_registered[kind], *_BUILT_IN[kind], *_peer_entries(kind)})
    question = did_you_mean(name, known) or "."
    lines = [f"unknown {kind} {name!r}{question} Known: {', '.join(known) or '(none)'}. {advice}"]
    if failures := plugin_failures():
        lines.append("Plugins that failed to import, one of which may register it:")
        lines += [f"  {source}: {error}" for source, error in failures]
    return "\n".join(lines)


def resolve_reference(text: str, *, kind: Kind, base: Path) -> object:
    """What `text` names: a registered name, `MODULE:ATTR` or `FILE.py:ATTR`; ATTR may be dotted.

    A file is relative to `base` and runs once a process; `base` is made importable for a module.
    Raises ConfigurationError where there is no such name, file, module or attribute, and where
    the import itself fails.
    """
    holder, colon, attribute = text.rpartition(":")
    if text in _registered[kind] or not colon:
        return _named(text, kind)
    if not holder or not all(part.isidentifier() for part in attribute.split(".")):
        raise ConfigurationError(
            f"{kind} {text!r} is neither a registered name nor MODULE:ATTR nor FILE.py:ATTR"
        )
    if holder.endswith(".py"):
        return _attribute(_import_file(holder, kind, base), attribute, text, kind)
    if str(base) not in sys.path:
        sys.path.insert(0, str(base))
    return _attribute(_import_named(holder, text, kind, base), attribute, text, kind)


def _named(text: str, kind: Kind) -> object:
    found = _look_up(kind, text)
    if found is None:
        raise ConfigurationError(_unknown(kind, text, WITHOUT_A_NAME))
    return found.target


def _import_attribute(dotted: str) -> Any:
    module, _, attribute = dotted.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except ImportError as error:
        raise ConfigurationError(
            f"the built-in {dotted} cannot be imported: {describe(error)}"
        ) from None


def _import_file(file: str, kind: Kind, base: Path) -> ModuleType:
    path = (base / file).resolve()
    if not path.is_file():
        raise ConfigurationError(f"{kind} {file!r}: there is no file {path}")
    try:
        return load_file(path)
    except (Exception, SystemExit) as error:
        raise ConfigurationError(f"{kind} {file!r} cannot be imported: {describe(error)}") from None


def _import_named(module: str, text: str, kind: Kind, base: Path) -> ModuleType:
    try:
        return importlib.import_module(module)
    except (Exception, SystemExit) as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing and f"{module}.".startswith(f"{missing}."):
            reason = f"there is no module {missing!r}; looked in {base} and the rest of sys.path"
        else:
            reason = f"the module cannot be imported: {describe(error)}"
        raise ConfigurationError(f"{kind} {text!r}: {reason}") from None


def _attribute(module: ModuleType, dotted: str, text: str, kind: Kind) -> object:
    found: object = module
    for part in dotted.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            public = ", ".join(sorted(n for n in vars(module) if not n.startswith("_")))
            raise ConfigurationError(
                f"{kind} {text!r}: {module.__file__ or module.__name__} has no {dotted!r}; "
                f"it has {public or 'no public names'}"
            ) from None
    return found


def load_file(path: Path) -> ModuleType:
    """The module made from a .py file, or from a package's `__init__.py`; it runs once a process.

    A module that anybody else in the process made from the same file is taken instead. Whatever
    the file raises is raised, and then it counts as not loaded.
    """
    return _made_from(path.resolve()) or _execute(path.resolve())


def ran_here(path: Path) -> bool:
    """Whether it was `load_file` that made a module from that file."""
    return _module_name(path.resolve()) in sys.modules


def _module_name(path: Path) -> str:
    stem = path.parent.name if path.name == "__init__.py" else path.stem
    digest = hashlib.blake2b(os.fsencode(path), digest_size=8).hexdigest()
    return f"{_FILE_MODULE}{digest}_" + re.sub(r"\W", "_", stem)


def _made_from(path: Path) -> ModuleType | None:
    for name, module in list(sys.modules.items()):
        if name != "__main__" and getattr(module, "__dict__", {}).get("__file__") == str(path):
            return module
    return None


def _execute(path: Path) -> ModuleType:
    name = _module_name(path)
    package = [str(path.parent)] if path.name == "__init__.py" else None
    spec = importlib.util.spec_from_file_location(name, path, submodule_search_locations=package)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
