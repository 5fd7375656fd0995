"""Corridors with one fault each; `FAULTS` says which rule it breaks."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any, Final

from pytest_maatml.rollout import Hello, Labels, StepResult, Verification

from .corridor import Corridor, Walk


class OtherProtocol(Corridor):
    def hello(self) -> Hello:
        return replace(super().hello(), protocol="maatml.rollout_env/2")


class Nameless(Corridor):
    def hello(self) -> Hello:
        return replace(super().hello(), name="")


class TasksDrift(Corridor):
    asked = 0

    def tasks(self, query: dict[str, Any]) -> list[dict[str, Any]]:
        self.asked += 1
        return [task | {"serial": self.asked} for task in super().tasks(query)]


class TasksShareAnId(Corridor):
    def tasks(self, query: dict[str, Any]) -> list[dict[str, Any]]:
        return [task | {"id": "t"} for task in super().tasks(query)]


class FamiliesAreNumbers(Corridor):
    def tasks(self, query: dict[str, Any]) -> list[dict[str, Any]]:
        return [task | {"family": 7} for task in super().tasks(query)]


class ResetGivesAList(Corridor):
    def reset(self, episode: str, task: dict[str, Any], options: dict[str, Any]) -> Any:
        return [super().reset(episode, task, options)]


class StartHangsOnTheName(Corridor):
    def reset(self, episode: str, task: dict[str, Any], options: dict[str, Any]) -> Any:
        return super().reset(episode, task, options) | {"seed": sum(map(ord, episode))}


class CandidatesTwice(Corridor):
    def candidates(self, episode: str) -> list[dict[str, Any]]:
        listed = super().candidates(episode)
        return listed + listed[-1:]


class MaskedEnds(Corridor):
    def step(self, episode: str, candidate_id: str) -> StepResult:
        result = super().step(episode, candidate_id)
        if not result.applied and candidate_id == "back":
            self.walks[episode].terminal = "fell"
        return replace(result, terminal=self.walks[episode].terminal)


class MaskedWins(Corridor):
    won: frozenset[str] = frozenset()

    def step(self, episode: str, candidate_id: str) -> StepResult:
        result = super().step(episode, candidate_id)
        if not result.applied and candidate_id == "back":
            self.won |= {episode}
        return result

    def verify(self, episode: str) -> Verification:
        verdict = super().verify(episode)
        return replace(verdict, success=verdict.success or episode in self.won)


class UnknownCandidateMoves(Corridor):
    def step(self, episode: str, candidate_id: str) -> StepResult:
        known = candidate_id if candidate_id in self.moves else "stay"
        return super().step(episode, known)


class UnknownEpisodeIsMade(Corridor):
    def __init__(self) -> None:
        super().__init__()
        self.closed: set[str] = set()

    def close(self, episode: str) -> None:
        super().close(episode)
        self.closed.add(episode)

    def walk(self, episode: str) -> Walk:
        if episode not in self.closed:
            self.walks.setdefault(episode, Walk(episode, 2, 4))
        return super().walk(episode)


class AppliedIsANumber(Corridor):
    def step(self, episode: str, candidate_id: str) -> StepResult:
        result = super().step(episode, candidate_id)
        applied: Any = int(result.applied)
        return replace(result, applied=applied)


class RewardIsText(Corridor):
    def step(self, episode: str, candidate_id: str) -> StepResult:
        reward: Any = "much"
        return replace(super().step(episode, candidate_id), reward=reward)


class TeacherIsMasked(Corridor):
    def label(self, episode: str) -> Labels:
        ids = super().label(episode).valid_ids or ()
        return Labels((*ids, "back") if self.walk(episode).at == 0 else ids)


class TeacherInvents(Corridor):
    def label(self, episode: str) -> Labels:
        return Labels((*(super().label(episode).valid_ids or ()), "fly"))


class TeacherStays(Corridor):
    def label(self, episode: str) -> Labels:
        super().label(episode)
        return Labels(("stay",))


class SuccessIsANumber(Corridor):
    def verify(self, episode: str) -> Verification:
        verdict = super().verify(episode)
        success: Any = int(verdict.success)
        return replace(verdict, success=success)


class SolvedAtReset(Corridor):
    def verify(self, episode: str) -> Verification:
        verdict = super().verify(episode)
        return replace(verdict, success=verdict.success or self.walks[episode].steps == 0)


class VerifyIsAStep(Corridor):
    def verify(self, episode: str) -> Verification:
        self.walk(episode).steps += 1
        return super().verify(episode)


class VerifyCounts(Corridor):
    asked = 0

    def reset(self, episode: str, task: dict[str, Any], options: dict[str, Any]) -> Any:
        self.asked = 0
        return super().reset(episode, task, options)

    def verify(self, episode: str) -> Verification:
        self.walk(episode).episode += "!"
        return replace(super().verify(episode), detail={"asked": self.walk(episode).episode[-2:]})


class GoesOnAfterTheEnd(Corridor):
    def step(self, episode: str, candidate_id: str) -> StepResult:
        walk = self.walk(episode)
        if walk.terminal is not None:
            return StepResult(self.seen(walk), True, walk.terminal)
        return super().step(episode, candidate_id)


class VerdictFallsAfterTheEnd(Corridor):
    def step(self, episode: str, candidate_id: str) -> StepResult:
        walk = self.walk(episode)
        if walk.terminal is not None:
            walk.terminal = "too late"
        return super().step(episode, candidate_id)


class StaysForEver(Corridor):
    def advance(self, walk: Walk, move: int) -> None:
        walk.budget += move == 0
        super().advance(walk, move)


class SeesTheOthers(Corridor):
    latest = ""

    def reset(self, episode: str, task: dict[str, Any], options: dict[str, Any]) -> Any:
        self.latest = episode
        return super().reset(episode, task, options)

    def stepped(self, walk: Walk) -> Any:
        return self.seen(self.walks.get(self.latest, walk))


class SeesTheOthersFromTen(Corridor):
    def stepped(self, walk: Walk) -> Any:
        return self.seen(walk) | {"crowded": len(self.walks) > 9}


class RemembersTheName(Corridor):
    def __init__(self) -> None:
        super().__init__()
        self.closed: set[str] = set()

    def close(self, episode: str) -> None:
        super().close(episode)
        self.closed.add(episode)

    def stepped(self, walk: Walk) -> Any:
        return self.seen(walk) | {"again": walk.episode in self.closed}


class SeesItsProcess(Corridor):
    def stepped(self, walk: Walk) -> Any:
        return self.seen(walk) | {"process": os.getpid()}


class SeesItsHashes(Corridor):
    def stepped(self, walk: Walk) -> Any:
        return self.seen(walk) | {"items": hash("corridor")}


class SeesNaN(Corridor):
    def stepped(self, walk: Walk) -> Any:
        return self.seen(walk) | {"far": float("nan")}


class SeesASurrogate(Corridor):
    def stepped(self, walk: Walk) -> Any:
        return self.seen(walk) | {"sign": "\ud800"}


class CloseKeeps(Corridor):
    def close(self, episode: str) -> None:
        self.walk(episode)


class ClosingTwiceClosesAll(Corridor):
    def close(self, episode: str) -> None:
        if episode not in self.walks:
            self.walks.clear()
        super().close(episode)


FAULTS: Final[dict[type[Corridor], str]] = {
    OtherProtocol: "hello",
    Nameless: "hello",
    TasksDrift: "tasks_are_equal",
    TasksShareAnId: "tasks_have_ids",
    FamiliesAreNumbers: "tasks_have_ids",
    ResetGivesAList: "reset_gives_an_object",
    StartHangsOnTheName: "reset_is_repeatable",
    CandidatesTwice: "candidates_are_unique",
    MaskedEnds: "masked_candidates_do_no_harm",
    MaskedWins: "masked_candidates_do_no_harm",
    UnknownCandidateMoves: "unknown_candidate_is_refused",
    UnknownEpisodeIsMade: "unknown_episode_is_refused",
    AppliedIsANumber: "steps_have_a_result",
    RewardIsText: "steps_have_a_result",
    TeacherIsMasked: "labels_are_valid",
    TeacherInvents: "labels_are_valid",
    TeacherStays: "teacher_succeeds",
    SuccessIsANumber: "verify_is_true_or_false",
    SolvedAtReset: "verify_is_false_before_any_step",
    VerifyIsAStep: "verify_changes_nothing",
    VerifyCounts: "verify_changes_nothing",
    GoesOnAfterTheEnd: "step_after_the_end_is_refused",
    VerdictFallsAfterTheEnd: "step_after_the_end_is_refused",
    StaysForEver: "episodes_end",
    SeesTheOthers: "interleaved_episodes_are_apart",
    SeesTheOthersFromTen: "interleaved_episodes_are_apart",
    RemembersTheName: "replay_is_equal",
    SeesItsProcess: "replay_in_a_fresh_process_is_equal",
    SeesItsHashes: "replay_in_a_fresh_process_is_equal",
    SeesNaN: "values_are_json",
    SeesASurrogate: "values_are_json",
    CloseKeeps: "close_frees",
    ClosingTwiceClosesAll: "close_frees",
}
