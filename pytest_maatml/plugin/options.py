"""Every option and ini key, declared once; read and checked when the plugin is active.

Imported by every pytest run, so it imports nothing else of ours at the top, and an option is a
named tuple: a dataclass takes four times as long to make.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_maatml.plugin.settings import Settings

GROUP: Final = "maatml"


class Option(NamedTuple):
    """One `--maatml-NAME` and, unless `ini` is None, the ini key `maatml_NAME` of that type."""

    name: str
    help: str
    metavar: str | None = None
    ini: Literal["string", "int", "float", "bool", "linelist"] | None = "string"
    repeats: bool = False
    flag_only: bool = False
    #: A short name that is wanted besides, where no other plugin has taken it.
    short: str | None = None

    @property
    def flag(self) -> str:
        return f"--maatml-{self.name.replace('_', '-')}"

    @property
    def dest(self) -> str:
        return f"maatml_{self.name}"

    def add(self, group: pytest.OptionGroup, flag: str) -> None:
        if self.ini == "bool" or self.flag_only:
            group.addoption(flag, dest=self.dest, action="store_true", default=None, help=self.help)
            return
        action = "append" if self.ini == "linelist" or self.repeats else "store"
        kinds: dict[str, dict[str, Any]] = {"int": {"type": int}, "float": {"type": float}}
        group.addoption(
            flag,
            dest=self.dest,
            action=action,
            default=None,
            metavar=self.metavar,
            help=self.help,
            **kinds.get(self.ini or "", {}),
        )


OPTIONS: Final = (
    Option(name="model", metavar="DIR", help="model folder whose policy is tested"),
    Option(
        name="policy",
        metavar="REF",
        help="policy without a model folder: a registered name, MODULE:ATTR or FILE.py:ATTR",
    ),
    Option(
        name="env",
        metavar="REF",
        help="environment: a registered name, MODULE:ATTR or FILE.py:ATTR",
    ),
    Option(
        name="env_command",
        metavar="CMD",
        help="command of a program that serves maatml.rollout_env/1 over stdio",
    ),
    Option(
        name="check_env",
        ini="bool",
        help="check the environment against the rules of the protocol, one item a rule",
    ),
    Option(
        name="tasks",
        metavar="JSON",
        help="task query for the environment or an array of tasks, as JSON or @FILE",
    ),
    Option(
        name="option",
        metavar="K=V",
        ini="linelist",
        help="option for every reset, repeatable; V is JSON where it parses, else text",
    ),
    Option(
        name="checkpoint",
        metavar="RUN",
        help="run id or folder of the checkpoint (default: the run that finished last)",
    ),
    Option(name="device", metavar="NAME", help="device that the predictor gets (default: auto)"),
    Option(
        name="label",
        ini="bool",
        short="--label",
        help="record at every state what the teacher would have accepted (DAgger collection)",
    ),
    Option(
        name="teacher_mix",
        metavar="SHARE",
        short="--teacher-mix",
        help="share of the decisions on which the teacher acts, in [0, 1]; needs --label",
    ),
    Option(
        name="source",
        metavar="NAME",
        help="provenance of the episodes (default: dagger with --label, else rollout)",
    ),
    Option(name="round", metavar="N", ini="int", help="round of collection (default: 0)"),
    Option(name="seed", metavar="N", ini="int", help="seed of the driver's draws (default: 0)"),
    Option(
        name="out",
        metavar="DIR",
        help="folder of the episodes (default: output/episodes/SOURCE-rROUND in the model folder)",
    ),
    Option(
        name="max_decisions",
        metavar="N",
        ini="int",
        help="decisions after which an episode is cut (default: 256)",
    ),
    Option(
        name="min_success",
        metavar="RATE",
        ini="linelist",
        help="gate: RATE or FAMILY=RATE, repeatable (default: 1, every verdict a success)",
    ),
    Option(
        name="gate",
        metavar="KIND",
        help="point: of these tasks (default); certify: of the rate behind; guard: an alarm",
    ),
    Option(
        name="alpha",
        metavar="P",
        ini="float",
        help="probability of a false pass (certify) or a false alarm (guard, baseline): 0.05",
    ),
    Option(
        name="stop",
        metavar="HOW",
        help="off (default), exact, or risk[:GAMMA]: begin no more episodes once it is decided",
    ),
    Option(
        name="baseline",
        metavar="FILE",
        help="episodes.jsonl of an earlier run, or its folder: fail where this one is worse",
    ),
    Option(
        name="margin",
        metavar="SHARE",
        help="how far successes may fall short of the baseline's, as a share of the tasks",
    ),
    Option(
        name="max_errors",
        metavar="N",
        ini="int",
        help="errors of a family that leave its gate decidable (default: 0)",
    ),
    Option(
        name="explain",
        ini="bool",
        help="say in three sentences what each gate decided, and what it did not",
    ),
    Option(
        name="task",
        metavar="ID",
        ini=None,
        repeats=True,
        help="run the tasks of this id or glob alone, repeatable; no rate is judged then",
    ),
    Option(
        name="shard",
        metavar="I/N",
        ini=None,
        help="run every N-th task, from the I-th; `pytest-maatml merge` judges the gates",
    ),
    Option(
        name="workers",
        metavar="N",
        ini="int",
        help="processes that share the episodes of a family (default: 1, this one)",
    ),
    Option(
        name="resume",
        flag_only=True,
        ini=None,
        help="go on with an unfinished run: keep its episodes, run errors and what is missing",
    ),
    Option(
        name="overwrite",
        flag_only=True,
        ini=None,
        help="let a labelled collection of another run be replaced",
    ),
    Option(
        name="timeout",
        metavar="SECONDS",
        ini="float",
        help="deadline of a request to an environment over stdio, 0 for none (default: 60)",
    ),
    Option(
        name="env_processes",
        metavar="N",
        ini="int",
        help="copies of the environment's program that share the episodes (default: 1)",
    ),
    Option(
        name="env_restarts",
        metavar="N",
        ini="int",
        help="how often each copy is started again after it broke down (default: 3)",
    ),
    Option(
        name="isolate",
        ini="bool",
        help="run a registered environment in a child process, as if over stdio",
    ),
    Option(
        name="concurrency",
        metavar="N",
        help="episodes in flight, or auto (default: 32 over stdio or with score_batch, else 1)",
    ),
)


_WITHOUT_INI: Final = frozenset(option.name for option in OPTIONS if option.ini is None)


def declare(parser: pytest.Parser) -> None:
    """Add the options and ini keys, but for the short names."""
    group = parser.getgroup(GROUP, "closed-loop policy testing")
    for option in OPTIONS:
        option.add(group, option.flag)
        if option.ini is not None:
            parser.addini(option.dest, option.help, type=option.ini, default=None)


def declare_short_names(parser: pytest.Parser) -> None:
    """Add the short names; one that another plugin or conftest has taken stays theirs."""
    group = parser.getgroup(GROUP)
    for option in OPTIONS:
        if option.short is not None and not _is_taken(parser, option.short):
            option.add(group, option.short)


def _is_taken(parser: pytest.Parser, flag: str) -> bool:
    """Asked by parsing, since pytest 8 notices a clash between two groups no earlier."""
    try:
        return flag not in parser.parse_known_and_unknown_args([flag])[1]
    except pytest.UsageError:  # it is there, and wants a value
        return True


def is_active(config: pytest.Config) -> bool:
    """Whether any option or ini key is given: what is wrong with it is to be found at the start."""
    return any(
        config.getoption(option.dest) is not None
        or (option.ini is not None and config.getini(option.dest))
        for option in OPTIONS
    )


#: Two that say the same thing: the one that is given nearer by stands.
RIVALS: Final = {
    "env": "env_command",
    "env_command": "env",
    "model": "policy",
    "policy": "model",
}


def given(config: pytest.Config, name: str) -> Any:
    """The value from the command line, else from the ini file, else None."""
    value = config.getoption(f"maatml_{name}")
    if value is not None or name in _WITHOUT_INI:
        return value
    rival = RIVALS.get(name)
    if rival is not None and config.getoption(f"maatml_{rival}") is not None:
        return None
    return config.getini(f"maatml_{name}")


def origin(config: pytest.Config, name: str) -> str:
    """The option or ini key that gave the value, for messages."""
    if config.getoption(f"maatml_{name}") is None:
        return f"maatml_{name} in {config.inipath}"
    return f"--maatml-{name.replace('_', '-')}"


def relative_to(config: pytest.Config, name: str) -> Path:
    """The folder that a path in option `name` is relative to: where it was written."""
    if config.getoption(f"maatml_{name}") is None and config.inipath is not None:
        return config.inipath.parent
    return config.invocation_params.dir


def read_settings(config: pytest.Config) -> Settings:
    """All that was given, checked. Raises pytest.UsageError (exit status 4)."""
    from pytest_maatml.errors import MaatmlError
    from pytest_maatml.plugin.settings import Settings

    try:
        return Settings.read(config)
    except MaatmlError as error:
        raise pytest.UsageError(f"maatml: {error}") from None
