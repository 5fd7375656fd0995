"""A model folder: model.yml, its plugins and its policy."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pytest_maatml import registry
from pytest_maatml.checkpoints import Checkpoint, checkpoint_digest, resolve_checkpoint
from pytest_maatml.errors import ConfigurationError, ModelError, describe
from pytest_maatml.suites import SuiteDefinition, suites

if TYPE_CHECKING:
    from yaml.nodes import Node

    from pytest_maatml.registry import Registration

__all__ = [
    "Checkpoint",
    "LoadedPolicy",
    "ModelDefinition",
    "SuiteDefinition",
    "check_predictor",
    "checkpoint_digest",
    "load_plugins",
    "load_policy",
    "load_policy_object",
    "load_policy_reference",
    "read_model",
    "resolve_checkpoint",
    "suites",
]

MODEL_FILE: Final = "model.yml"
_ARCHITECTURE: Final = "architecture, as there is no evaluation.predictor"
_SCORE: Final = "score(observation, candidates) -> one finite number a candidate, higher is better"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelDefinition:
    """What model.yml says, under the names that maatml's ModelDefinition has for it.

    A top-level key of model.yml without a field here is an attribute all the same.
    """

    name: str
    model_id: str
    architecture: str = "causal_sft"
    version: str = "0.1.0"
    plugins: tuple[str, ...] = ()
    dataset: Mapping[str, Any] = field(default_factory=dict)
    data: Mapping[str, Any] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)
    evaluation: Mapping[str, Any] = field(default_factory=dict)
    extensions: Mapping[str, Any] = field(default_factory=dict)
    #: The absolute path of the model folder.
    model_dir: Path
    #: All of model.yml, as it was parsed.
    raw: Mapping[str, Any] = field(default_factory=dict)
    #: The line of each suite in model.yml.
    suite_lines: tuple[int, ...] = ()

    def __getattr__(self, key: str) -> Any:
        if key != "raw" and key in self.raw:
            return self.raw[key]
        raise AttributeError(f"{MODEL_FILE} has no {key!r}")

    @property
    def identity(self) -> str:
        return f"{self.name}@{self.version}"

    @property
    def model_file(self) -> Path:
        return self.model_dir / MODEL_FILE

    def resolve(self, rel: str | Path) -> Path:
        """The path that model.yml means by `rel`: relative to the model folder."""
        return (self.model_dir / rel).resolve() if not Path(rel).is_absolute() else Path(rel)

    @property
    def output_dir(self) -> Path:
        return self.model_dir / "output"

    @property
    def checkpoints_dir(self) -> Path:
        return self.output_dir / "checkpoints"

    @property
    def prepared_dir(self) -> Path:
        return self.output_dir / "prepared"

    @property
    def eval_dir(self) -> Path:
        return self.output_dir / "eval"


def read_model(path: Path) -> ModelDefinition:
    """The definition in a model folder, or in its model.yml, by either path.

    Only parses: no plugin runs and no weights are read; keys that we do not know are kept.
    Raises ModelError where there is no such folder or file, or where it cannot be understood.
    """
    file = _model_file(path).resolve()
    raw, node = _parse(file)
    name = _field(file, raw, "name", str, None)
    if not name:
        raise ModelError(f"{file} has no name; add `name: {file.parent.name}`")
    mappings = {
        key: _field(file, raw, key, Mapping, {})
        for key in ("dataset", "data", "training", "evaluation", "extensions")
    }
    return ModelDefinition(
        name=name,
        model_id=_field(file, raw, "model_id", str, name),
        architecture=_field(file, raw, "architecture", str, "causal_sft"),
        version=_field(file, raw, "version", str, "0.1.0"),
        plugins=_plugin_names(file, raw),
        **mappings,
        model_dir=file.parent,
        raw=raw,
        suite_lines=_suite_lines(node),
    )


def _model_file(path: Path) -> Path:
    if path.is_dir():
        path = path / MODEL_FILE
        if not path.is_file():
            raise ModelError(f"{path.parent} has no {MODEL_FILE}, so it is not a model folder")
    elif not path.is_file():
        raise ModelError(f"there is no model folder {path}; a model folder holds a {MODEL_FILE}")
    return path


def _parse(file: Path) -> tuple[Mapping[str, Any], Node]:
    import yaml

    try:
        loader = yaml.SafeLoader(file.read_bytes())
        node = loader.get_single_node()
        raw = loader.construct_document(node) if node is not None else None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        raise ModelError(f"{file}{where} is not YAML: {error.problem or error.context}") from None
    except (yaml.YAMLError, OSError, ValueError) as error:
        raise ModelError(f"{file} cannot be read: {error}") from None
    if node is None or not isinstance(raw, dict):
        found = "empty" if raw is None else f"a {type(raw).__name__}"
        raise ModelError(f"{file} must be a mapping of keys at the top level; it is {found}")
    _refuse_doubles(file, node)
    return raw, node


def _refuse_doubles(file: Path, root: Node) -> None:
    """YAML would take the last of two, and so a gate could stand that nobody sees."""
    from yaml import MappingNode, SequenceNode

    left, seen = [root], set()
    while left:
        node = left.pop()
        if id(node) in seen:  # by an alias
            continue
        seen.add(id(node))
        if isinstance(node, SequenceNode):
            left += node.value
        elif isinstance(node, MappingNode):
            lines: dict[str, int] = {}
            for key, value in node.value:
                line = key.start_mark.line + 1
                if isinstance(key.value, str) and key.value in lines:
                    raise ModelError(
                        f"{file}:{line} has the key {key.value!r}, and so has line "
                        f"{lines[key.value]}: give it once"
                    )
                lines[str(key.value)] = line
                left.append(value)


_KIND_NAMES: Final[dict[type, str]] = {str: "text (quote it)", Mapping: "a mapping", list: "a list"}


def _field(file: Path, raw: Mapping[str, Any], key: str, kind: type, default: Any) -> Any:
    value = raw.get(key)
    if value is None:
        return default
    if not isinstance(value, kind):
        raise ModelError(f"{file}: {key} must be {_KIND_NAMES[kind]}, not {value!r}")
    return value


def _plugin_names(file: Path, raw: Mapping[str, Any]) -> tuple[str, ...]:
    plugins = _field(file, raw, "plugins", list, [])
    for entry in plugins:
        if not isinstance(entry, str):
            raise ModelError(f"{file}: plugins must be a list of text; {entry!r} is none")
    return tuple(entry.strip() for entry in plugins if entry.strip())


def _suite_lines(node: Node) -> tuple[int, ...]:
    found: Any = node
    for key in ("extensions", "pytest_maatml", "suites"):
        if found.id != "mapping":
            return ()
        found = next((value for name, value in found.value if name.value == key), None)
        if found is None:
            return ()
    return tuple(e.start_mark.line + 1 for e in found.value) if found.id == "sequence" else ()


# The predictor that a folder's own plugins registered, before another folder's take its name.
_predictors: Final[dict[tuple[Path, str], Registration]] = {}


def load_plugins(definition: ModelDefinition) -> None:
    """Run what `plugins:` lists, once a process: modules, folder-local files and packages.

    With maatml installed its own loader does it, so that neither of us runs a plugin again.
    Raises ModelError with the entry, the error and its file and line where one fails.
    """
    for entry in definition.plugins:
        try:
            _load_plugin(definition, entry)
        except (Exception, SystemExit) as error:
            reason = describe(error)
            registry.record_plugin_failure(f"{definition.model_file} plugins: {entry}", reason)
            raise ModelError(
                f"{definition.model_file}: the plugin {entry!r} cannot be imported: {reason}"
            ) from None
    key = (definition.model_dir, _predictor_name(definition))
    if definition.plugins and key not in _predictors:
        try:
            _predictors[key] = registry.find("predictor", key[1])
        except ConfigurationError:
            return


def _load_plugin(definition: ModelDefinition, entry: str) -> None:
    path = definition.resolve(entry)
    file = path / "__init__.py" if path.is_dir() else path
    if not (entry.endswith(".py") or entry[0] in "./" or "/" in entry or path.exists()):
        importlib.import_module(entry)
    elif not file.is_file():
        raise FileNotFoundError(f"there is no file {file}")
    elif (peer := registry.peer_registry()) is None or registry.ran_here(file):
        registry.load_file(file)
    else:
        peer.load_model_plugins(definition.model_dir, [entry])


def _predictor_name(definition: ModelDefinition) -> str:
    return str(definition.evaluation.get("predictor") or definition.architecture)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedPolicy:
    #: Has `score(observation, candidates)`.
    policy: Any
    #: What an episode records as its `policy_version`.
    version: str
    checkpoint: Checkpoint
    #: `checkpoint_digest` of the checkpoint; None without one.
    digest: str | None = None
    #: Where the policy's code comes from.
    source: str


def load_policy(
    definition: ModelDefinition, *, checkpoint: str | None = None, device: str = "auto"
) -> LoadedPolicy:
    """The policy of a model folder with its checkpoint loaded; its plugins are run first.

    The predictor is `evaluation.predictor`, else `architecture`. Its `setup`, where it has one,
    gets the checkpoint's folder (None without one), `model_def` and `device`. A predictor
    registered here gets our definition and `device` as it was given, "auto" included; one
    registered with maatml gets maatml's definition and what its `resolve_device` makes of it,
    the cpu where that fails for "auto" because torch is not installed.

    Raises ModelError where a plugin, the predictor or the checkpoint fails, and
    ConfigurationError where nobody registered the predictor.
    """
    load_plugins(definition)
    name = _predictor_name(definition)
    found = _predictors.get((definition.model_dir, name)) or _find_predictor(definition, name)
    where = f"{definition.model_file}: the predictor {name!r} of {found.source}"
    resolved = resolve_checkpoint(definition, checkpoint)
    policy = _made(found.target, where)
    setup = getattr(policy, "setup", None)
    if setup is not None:
        model_def, resolved_device = _setup_arguments(definition, found, device)
        _guard(
            partial(setup, resolved.path, model_def=model_def, device=resolved_device),
            f"{where} failed in setup({resolved.path}, ...)",
        )
    return LoadedPolicy(
        policy=policy,
        version=resolved.run_id or definition.identity,
        checkpoint=resolved,
        digest=checkpoint_digest(resolved.path) if resolved.path else None,
        source=found.source,
    )


def check_predictor(definition: ModelDefinition) -> None:
    """Raise ConfigurationError where nobody registered the predictor. Loads no weights."""
    name = _predictor_name(definition)
    if (definition.model_dir, name) not in _predictors:
        _find_predictor(definition, name)


def _find_predictor(definition: ModelDefinition, name: str) -> Registration:
    try:
        return registry.find("predictor", name)
    except ConfigurationError as error:
        key = "evaluation.predictor" if definition.evaluation.get("predictor") else _ARCHITECTURE
        raise ConfigurationError(f"{definition.model_file}: {key}: {error}") from None


def _setup_arguments(
    definition: ModelDefinition, found: Registration, device: str
) -> tuple[Any, Any]:
    if not found.from_peer:
        return definition, device
    config = importlib.import_module("maatml.config")
    devices = importlib.import_module("maatml.device")
    model_def = _guard(
        partial(config.load_model_def, definition.model_dir, load_plugins=False),
        f"{definition.model_file} is refused by maatml, whose predictor it asks for",
    )
    try:
        return model_def, devices.resolve_device(device)
    except ImportError as error:
        if device != "auto":
            raise ModelError(f"device {device!r}: {describe(error)}") from None
        return model_def, devices.resolve_device("cpu")
    except Exception as error:
        raise ModelError(f"device {device!r}: {describe(error)}") from None


def _made(target: Any, where: str) -> Any:
    made = not isinstance(target, type) and _scores(target)
    policy = target if made or not callable(target) else _guard(target, f"{where} failed")
    if not _scores(policy):
        raise ModelError(
            f"{where} is a {type(policy).__name__} without a score method; a policy has {_SCORE}"
        )
    return policy


def _scores(policy: Any) -> bool:
    """Whether it has what scores: itself, or what it starts for each episode."""
    return any(callable(getattr(policy, name, None)) for name in ("score", "start_episode"))


def _guard(call: Any, what: str) -> Any:
    try:
        return call()
    except (Exception, SystemExit) as error:
        raise ModelError(f"{what}: {describe(error)}") from None


def load_policy_reference(text: str, *, base: Path) -> LoadedPolicy:
    """The policy that `text` names: a registered predictor, `MODULE:ATTR` or `FILE.py:ATTR`.

    A class or a factory is called without arguments, an object that has `score` is used as it
    is, and `text` is the version. No checkpoint is loaded and `setup` is not called. Raises
    ConfigurationError where nothing has that name and ModelError where it is no policy.
    """
    target = registry.resolve_reference(text, kind="predictor", base=base)
    return LoadedPolicy(
        policy=_made(target, f"the policy {text!r}"),
        version=text,
        checkpoint=Checkpoint(path=None, run_id=None),
        source=text,
    )


def load_policy_object(target: Any, *, version: str | None = None) -> LoadedPolicy:
    """The policy that is, or is made by, an object of this process; its version is its name.

    Raises ModelError where it is no policy.
    """
    named = target if isinstance(target, type) or hasattr(target, "__qualname__") else type(target)
    name = f"{named.__module__}:{named.__qualname__}"
    return LoadedPolicy(
        policy=_made(target, f"the policy {name!r}"),
        version=version or name,
        checkpoint=Checkpoint(path=None, run_id=None),
        source=name,
    )
