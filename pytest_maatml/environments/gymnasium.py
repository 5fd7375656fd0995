"""Gymnasium environments as environments of `maatml.rollout_env/1`.

Named `gymnasium` for all that is registered with Gymnasium; a GymnasiumEnvironment of one's own
adds families, a teacher, a criterion of success, another observation or other candidates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from pytest_maatml.engine.protocol import Hello, Labels, StepResult, Verification
from pytest_maatml.environments.gymnasium_instances import (
    Choices,
    Instance,
    InstancePool,
    Recipe,
    import_gymnasium,
)
from pytest_maatml.environments.gymnasium_state import EpisodeState, as_json, as_observation
from pytest_maatml.environments.gymnasium_success import judge, parse_criterion
from pytest_maatml.environments.gymnasium_tasks import FamilySettings, make_tasks
from pytest_maatml.errors import RolloutEnvError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_maatml.engine.protocol import JSONObject
    from pytest_maatml.environments.gymnasium_instances import Wrap

__all__ = ["EpisodeState", "GymnasiumEnvironment"]

TERMINATED = "terminated"
TRUNCATED = "truncated"
RUNNING = "running"
SOLVED_AT_RESET = "solved_at_reset"

Teacher: TypeAlias = "Callable[[EpisodeState], Labels]"
Success: TypeAlias = "str | Callable[[EpisodeState], bool]"
CandidateLister: TypeAlias = "Callable[[EpisodeState], Mapping[str, Any]]"
Observer: TypeAlias = "Callable[[EpisodeState], JSONObject]"


@dataclass(slots=True, kw_only=True)
class _Play:
    """An episode that is being played on an instance."""

    state: EpisodeState
    instance: Instance
    named: str | None
    observation: JSONObject
    choices: Choices
    solved_at_reset: bool = False


class GymnasiumEnvironment:
    """Hosts episodes of Gymnasium environments, each in flight on an instance of its own.

    A task has `env` (an id; else its `family` is one) and `seed`, and may have `make` (keyword
    arguments), `wrappers`, `success` and `options` (for Gymnasium's reset). The options of a reset
    join those; `max_episode_steps` among them replaces the environment's own limit.

    All parameters are optional. `families` are those that a query can name without settings, or
    leave out altogether. `make` takes an id and keyword arguments and returns an environment;
    `wrappers` are put around each. `success` is a criterion, or a function of the state that is
    asked at reset and at the end and overrules all else. `teacher` returns the ids that it
    accepts, `observation` an object, `candidates` the actions by their ids, for an action space
    that is not discrete. `reuse=False` makes a new instance for each episode, for wrappers that
    remember earlier ones.

    Raises ConfigurationError where gymnasium is not installed.
    """

    def __init__(
        self,
        *,
        name: str = "gymnasium",
        version: str | None = None,
        families: Mapping[str, FamilySettings] | None = None,
        make: Callable[..., Any] | None = None,
        wrappers: Sequence[Wrap] = (),
        success: Success | None = None,
        teacher: Teacher | None = None,
        observation: Observer | None = None,
        candidates: CandidateLister | None = None,
        reuse: bool = True,
    ) -> None:
        gymnasium = import_gymnasium()
        if isinstance(success, str):
            parse_criterion(success)
        self._name = name
        self._version = version or str(gymnasium.__version__)
        self._families = dict(families or {})
        self._success = success
        self._teacher = teacher
        self._observe = observation or as_observation
        self._list_actions = candidates
        self._pool = InstancePool(
            make or gymnasium.make, wrappers, lists_actions=candidates is None, reuse=reuse
        )
        self._plays: dict[str, _Play] = {}

    def hello(self) -> Hello:
        capabilities = ("tasks",) if self._teacher is None else ("label", "tasks")
        return Hello(name=self._name, version=self._version, capabilities=capabilities)

    def tasks(self, query: JSONObject) -> list[JSONObject]:
        """The tasks, once an instance of each environment could be made.

        The query takes `families`, `seed` (0), `split` (stamped on each task), and for all
        families `count` (1), `success`, `make`, `wrappers` and `options`; a family takes the
        latter five, `env` and `seeds`.
        """
        tasks = make_tasks(query, self._families)
        for recipe in dict.fromkeys(Recipe.of(task, max_episode_steps=None) for task in tasks):
            self._pool.check(recipe)
        return tasks

    def reset(self, episode: str, task: JSONObject, options: JSONObject) -> JSONObject:
        self.close(episode)
        seed = task.get("seed")
        if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
            raise RolloutEnvError(
                f"task {task.get('id')!r} must have a seed, an integer from 0, not {seed!r}"
            )
        merged = {**(task.get("options") or {}), **options}
        limit = merged.pop("max_episode_steps", None)
        instance = self._pool.take(Recipe.of(task, max_episode_steps=limit))
        play = self._begin(instance, seed, merged, task.get("success"))
        self._plays[episode] = play
        return play.observation

    def _begin(
        self, instance: Instance, seed: int, options: JSONObject, success: str | None
    ) -> _Play:
        env = instance.env
        try:
            # Some environments and wrappers sample their own action space.
            env.action_space.seed(seed)
            observation, info = env.reset(seed=seed, options=options or None)
            state = EpisodeState(env=env, observation=observation, info=info)
            play = _Play(
                state=state,
                instance=instance,
                named=success,
                observation=self._observe(state),
                choices=self._choices(instance, state),
            )
            play.solved_at_reset = self._judge(play)[0]
        except Exception:
            self._pool.discard(instance)
            raise
        return play

    def candidates(self, episode: str) -> list[JSONObject]:
        play = self._play(episode)
        return [] if play.state.over else play.choices.candidates()

    def label(self, episode: str) -> Labels:
        state = self._play(episode).state
        if self._teacher is None:
            raise RolloutEnvError(f"environment {self._name!r} has no teacher")
        if state.over:
            return Labels(valid_ids=None, reason="the episode is over")
        return self._teacher(state)

    def step(self, episode: str, candidate_id: str) -> StepResult:
        play = self._play(episode)
        state, choices = play.state, play.choices
        if state.over:
            raise RolloutEnvError(f"episode {episode!r} has ended ({_status(state)})")
        if candidate_id not in choices.actions:
            raise RolloutEnvError(
                f"unknown candidate {candidate_id!r}; there are {', '.join(choices.actions)}"
            )
        if choices.masks(candidate_id):
            return StepResult(play.observation, applied=False)
        try:
            self._advance(play, choices.actions[candidate_id])
        except Exception:
            play.instance.broken = True
            raise
        terminal = _status(state) if state.over else None
        return StepResult(play.observation, True, terminal, state.reward)

    def _advance(self, play: _Play, action: Any) -> None:
        state = play.state
        state.step(action)
        play.observation = self._observe(state)
        if not state.over:
            play.choices = self._choices(play.instance, state)

    def verify(self, episode: str) -> Verification:
        """Success, with how the episode stands as its status.

        `terminated`, `truncated` or `running`; `solved_at_reset` for a success that was one before
        the first decision. The reward is the undiscounted return.
        """
        play = self._play(episode)
        state = play.state
        success, judged_by = self._judge(play)
        solved = success and play.solved_at_reset
        return Verification(
            success=success,
            status=SOLVED_AT_RESET if solved else _status(state),
            reward=state.total_reward,
            detail={
                "steps": state.steps,
                "terminated": state.terminated,
                "truncated": state.truncated,
                "solved_at_reset": play.solved_at_reset,
                "judged_by": judged_by,
            },
        )

    def close(self, episode: str) -> None:
        play = self._plays.pop(episode, None)
        if play is not None:
            self._pool.give_back(play.instance)

    def _play(self, episode: str) -> _Play:
        play = self._plays.get(episode)
        if play is None:
            raise RolloutEnvError(f"unknown episode {episode!r}")
        return play

    def _judge(self, play: _Play) -> tuple[bool, str]:
        if callable(self._success):
            return bool(self._success(play.state)), "success="
        return judge(play.state, play.instance.recipe.env, play.named or self._success)

    def _choices(self, instance: Instance, state: EpisodeState) -> Choices:
        if self._list_actions is None:
            return instance.choices(state)
        actions: Any = self._list_actions(state)
        if not isinstance(actions, Mapping):
            raise RolloutEnvError(
                f"candidates= must return the actions by their ids, not {actions!r:.200}"
            )
        named = {str(name): action for name, action in actions.items()}
        return Choices(actions=named, listed=as_json(named))


def _status(state: EpisodeState) -> str:
    if state.terminated:
        return TERMINATED
    return TRUNCATED if state.truncated else RUNNING
