"""The carrier to an environment that is a Python object in this process."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeAlias

from pytest_maatml.engine.encoding import shown
from pytest_maatml.engine.requests import Close, Look, Pipe, Reset, Step, Verify
from pytest_maatml.errors import RolloutEnvError, describe

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_maatml.engine.protocol import Environment, Hello, JSONObject, Labels


class InProcess:
    """Calls the environment's methods; whatever they raise becomes a RolloutEnvError.

    `warn` is told when a close fails after a verdict: it never changes the outcome.
    """

    concurrency = 1

    def __init__(
        self, environment: Environment, *, warn: Callable[[str], None] | None = None
    ) -> None:
        self._environment = environment
        self._warn = warn
        #: The answer to a request of each type, at once; each raises RolloutEnvError.
        self.handlers: dict[type, Callable[[Any], Any]] = {
            Reset: self._reset,
            Look: _looker(environment),
            Step: _stepper(environment),
            Verify: self._verify,
            Close: self._close,
        }

    def hello(self) -> Hello:
        hello: Hello = _call("hello", self._environment.hello)
        return hello

    def tasks(self, query: JSONObject) -> list[JSONObject]:
        tasks: list[JSONObject] = _call("tasks", self._environment.tasks, query)
        return tasks

    def shutdown(self) -> None:
        """Nothing is held: the environment belongs to whoever made it."""

    def _reset(self, request: Reset) -> Any:
        return _call(
            "reset", self._environment.reset, request.episode, request.task, request.options
        )

    def _verify(self, request: Verify) -> Any:
        verdict = _call("verify", self._environment.verify, request.episode)
        try:
            self._environment.close(request.episode)
        except Exception as error:
            if self._warn is not None:
                self._warn(f"close of episode {request.episode} failed: {describe(error)}")
        return verdict

    def _close(self, request: Close) -> None:
        # The fault that led here is the one to report.
        with suppress(Exception):
            self._environment.close(request.episode)


#: Either way to an environment.
Carrier: TypeAlias = InProcess | Pipe


def _call(op: str, method: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return method(*arguments)
    except Exception as error:
        raise fault_of(op, error) from error


# The two that are asked at every decision are closures: a method's look-ups would cost as much
# as many an environment's step.


def _looker(environment: Environment) -> Callable[[Look], Any]:
    candidates_of, label_of = environment.candidates, environment.label

    def look(request: Look) -> tuple[list[JSONObject], Labels | None]:
        op = "candidates"
        try:
            candidates = candidates_of(request.episode)
            if not request.label or not candidates:
                return candidates, None
            op = "label"
            return candidates, label_of(request.episode)
        except Exception as error:
            raise fault_of(op, error) from error

    return look


def _stepper(environment: Environment) -> Callable[[Step], tuple[Any, ...]]:
    step_in = environment.step

    def step(request: Step) -> tuple[Any, ...]:
        try:
            result = step_in(request.episode, request.candidate)
        except Exception as error:
            raise fault_of("step", error) from error
        try:
            return result.observation, result.applied, result.terminal, result.reward
        except AttributeError:
            raise RolloutEnvError(
                f"the answer must be a StepResult, not {shown(result)}", op="step", kind="protocol"
            ) from None
        except Exception as error:
            raise fault_of("step", error) from error

    return step


def fault_of(op: str, error: Exception) -> RolloutEnvError:
    """What an exception out of the environment's own code means for the episode."""
    if isinstance(error, RolloutEnvError):
        return RolloutEnvError(str(error), op=error.op or op, kind=error.kind, stderr=error.stderr)
    return RolloutEnvError(f"the environment raised {describe(error)}", op=op)
