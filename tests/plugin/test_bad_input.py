"""Each mistake is found as early as it can be, in words, with the exit status of its kind."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest

from pytest_maatml.cli import main

if TYPE_CHECKING:
    from .conftest import ModelFolder

MODEL = "--maatml-model=walker"
ENV = "--maatml-env=line_world"
TASKS = '--maatml-tasks={"count": 6, "seed": 1}'

#: An environment of one walk a task, which tests make wrong in one place.
ENVIRONMENT = """\
from pytest_maatml.rollout import Hello, Labels, StepResult, Verification

class Env:
    def hello(self):
        return Hello("odd", "7", capabilities=("label", "tasks"))
    def tasks(self, query):
        return [{"id": f"t{i}", "family": "only"} for i in range(query.get("count", 3))]
    def reset(self, episode, task, options):
        self.task = task
        return {"bad": task["id"] == "t1"}
    def candidates(self, episode):
        return [{"id": "a"}, {"id": "b", "valid": False}]
    def label(self, episode):
        return Labels(("a",))
    def step(self, episode, candidate_id):
        return StepResult({}, True, "success", 1.0)
    def verify(self, episode):
        return Verification(True, "success", 1.0)
    def close(self, episode):
        pass
"""


def bad(pytester: pytest.Pytester, *arguments: str) -> tuple[int, str]:
    result = pytester.runpytest(*arguments)
    text = result.stdout.str() + result.stderr.str()
    assert "Traceback" not in text
    assert "INTERNALERROR" not in text
    return int(result.ret), text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--maatml-model=nowhere", ENV], "there is no model folder"),
        (["--maatml-model=.", ENV], "there is no model.yml in"),
        ([MODEL, ENV, "--maatml-env-command=cat"], "--maatml-env and --maatml-env-command both"),
        ([MODEL, "--maatml-policy=x:y", ENV], "--maatml-model and --maatml-policy both"),
        (["--maatml-policy=x:y"], "--maatml-policy needs an environment"),
        (["--maatml-policy=no_such_module:y", ENV], "there is no module 'no_such_module'"),
        (["--maatml-policy=unheard_of", ENV], "unheard_of"),
        ([MODEL, ENV, "--maatml-tasks={count: 3}"], "--maatml-tasks is not JSON"),
        ([MODEL, ENV, "--maatml-tasks=3"], "must be a JSON object or a list of tasks, not 3"),
        ([MODEL, ENV, "--maatml-tasks=@gone.json"], "gone.json cannot be read"),
        ([MODEL, ENV, "--maatml-option=extra_steps"], "--maatml-option wants KEY=VALUE"),
        ([MODEL, ENV, "--label", "--teacher-mix=1.5"], "in [0, 1], not 1.5"),
        (
            [MODEL, ENV, "--label", "--teacher-mix=half"],
            "wants a share in [0, 1], linear:A:B:ROUNDS or exp:P, not 'half'",
        ),
        ([MODEL, ENV, "--teacher-mix=0.3"], "--teacher-mix needs --label"),
        ([MODEL, ENV, "--maatml-min-success=1.2"], "a success rate lies in [0, 1], not 1.2"),
        ([MODEL, ENV, "--maatml-min-success=far=much"], "'much' is not a number"),
        (
            [MODEL, ENV, "--maatml-min-success=far=0.8", "--maatml-min-success=far=0.9"],
            "two gates for 'far'",
        ),
        (
            [MODEL, ENV, "--maatml-min-success=0.9", "--label", "--teacher-mix=0.3"],
            "exclude one another",
        ),
        ([MODEL, ENV, "--maatml-round=-1"], "--maatml-round must be at least 0"),
        ([MODEL, ENV, "--maatml-max-decisions=0"], "--maatml-max-decisions must be at least 1"),
        ([MODEL, ENV, "--maatml-concurrency=none"], "a number from 1 or auto, not 'none'"),
    ],
)
def test_an_option_that_is_wrong_in_itself_is_a_usage_error(
    pytester: pytest.Pytester, walker: ModelFolder, arguments: list[str], said: str
) -> None:
    status, text = bad(pytester, *arguments)
    assert said in text
    assert status == pytest.ExitCode.USAGE_ERROR
    assert not (walker.path / "output").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([MODEL, "--maatml-env=line_wold"], "line_world"),
        ([MODEL], "declares no suite under extensions.pytest_maatml.suites"),
        ([MODEL, "--maatml-env=env.py:Missing"], "has no 'Missing'"),
        ([MODEL, "--maatml-env-command=node 'x"], "cannot be split into words: No closing quot"),
        ([MODEL, ENV, "--maatml-source=../up"], "source must be a name, not '../up'"),
        ([MODEL, "--maatml-env=env.py:NOT_ONE"], "neither an environment nor something that makes"),
        ([MODEL, "--maatml-env=env.py:Half"], "lacks the methods"),
        ([MODEL, "--maatml-env=env.py:Broken"], "cannot be made: ZeroDivisionError"),
        ([MODEL, "--maatml-env=env.py:OtherProtocol"], "speaks 'other/9'"),
        ([MODEL, "--maatml-env=env.py:NoTasks"], "give a JSON array of tasks"),
        ([MODEL, "--maatml-env=env.py:NoTeacher", "--label"], "cannot label states"),
        ([MODEL, "--maatml-env=env.py:Env", '--maatml-tasks={"count": 0}'], "returned no task"),
        (
            [MODEL, ENV, '--maatml-tasks=[{"id": "x"}, {"id": "x"}]'],
            "tasks[0] and tasks[1] have the same id 'x'",
        ),
        ([MODEL, ENV, '--maatml-tasks=[{"family": "x"}]'], "tasks[0] must have an id"),
        ([MODEL, ENV, "--maatml-tasks=[3]"], "tasks[0] must be an object"),
        ([MODEL, ENV, '--maatml-tasks=[{"id": 1, "family": "overall"}]'], "is the name of a gate"),
        ([MODEL, ENV, TASKS, "--maatml-min-success=fra=0.8"], "a gate for the family 'fra'"),
        ([MODEL, "--maatml-env-command=no-such-program"], "no-such-program"),
        ([MODEL, "--maatml-env-command=false"], "1"),
        ([MODEL, "--maatml-env-command=echo hello there"], "hello there"),
    ],
)
def test_what_only_the_environment_or_the_folder_can_tell_is_a_collection_error(
    pytester: pytest.Pytester, walker: ModelFolder, arguments: list[str], said: str
) -> None:
    pytester.path.joinpath("env.py").write_text(
        ENVIRONMENT
        + "NOT_ONE = 3\n"
        + "class Half:\n    def reset(self): pass\n"
        + "def Broken(): return 1 / 0\n"
        + "class OtherProtocol(Env):\n    def hello(self): return Hello('x', '1', 'other/9')\n"
        + "class NoTasks(Env):\n    def hello(self): return Hello('x', '1')\n"
        + "class NoTeacher(Env):\n"
        + "    def hello(self): return Hello('x', '1', capabilities=('tasks',))\n"
    )
    status, text = bad(pytester, *arguments)
    assert said in text
    assert status == pytest.ExitCode.INTERRUPTED
    assert not (walker.path / "output").exists()


@pytest.mark.parametrize(
    "environment",
    [
        "--maatml-env=line_world",
        f"--maatml-env-command={sys.executable} -m pytest_maatml serve line_world",
    ],
    ids=["in-process", "stdio"],
)
def test_a_misspelt_key_of_a_task_query_is_said_in_one_line(
    pytester: pytest.Pytester,
    walker: ModelFolder,
    capsys: pytest.CaptureFixture[str],
    environment: str,
) -> None:
    tasks = '--maatml-tasks={"sapn": 9}'
    status, text = bad(pytester, MODEL, environment, tasks)
    assert status == pytest.ExitCode.INTERRUPTED
    said = "no key 'sapn'; known: count, seed, slack, span, split; did you mean 'span'?"
    (line,) = (line for line in text.splitlines() if said in line)
    assert line.endswith(f"a task query of line_world has {said}")
    capsys.readouterr()
    arguments = [word.replace("--maatml-", "--") for word in (environment, tasks)]
    assert main(["rollout", "walker", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("pytest-maatml rollout: ")
    assert line.endswith(f"a task query of line_world has {said}")


def test_a_task_without_family_is_of_the_family_unknown(
    pytester: pytest.Pytester, walker: ModelFolder
) -> None:
    tasks = '--maatml-tasks=[{"id": 1, "start": 0, "target": 1, "max_steps": 5}]'
    result = pytester.runpytest(MODEL, ENV, tasks, "-v")
    result.stdout.fnmatch_lines(["*::line_world::unknown PASSED*"])


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("name: [unclosed\n", "model.yml:2"),
        ("name: w\nmodel_id: w\nextensions: {pytest-maatml: {}}\n", "must be extensions.pytest_ma"),
        (
            "name: w\nmodel_id: w\nextensions: {pytest_maatml: {suites: }}\n",
            "suites must be a list of suites, not None",
        ),
        ("name: w\nmodel_id: w\nname: x\n", "model.yml:3 has the key 'name', and so has line 1"),
        ("- a\n- b\n", "mapping"),
        ("name: w\nmodel_id: w\narchitecture: nobody\n", "nobody"),
        ("name: w\nmodel_id: w\nplugins: [./gone.py]\n", "gone.py"),
        ("name: w\nmodel_id: w\nplugins: [./broken.py]\n", "broken.py:2"),
        (
            "name: w\nmodel_id: w\nextensions: {pytest_maatml: {suites: [{env: a, nev: b}]}}\n",
            "no key 'nev'",
        ),
    ],
)
def test_a_model_folder_that_cannot_be_read_is_a_collection_error(
    pytester: pytest.Pytester, walker: ModelFolder, model: str, said: str
) -> None:
    walker.write("model.yml", model)
    walker.write("broken.py", "import json\nraise RuntimeError('no weights here')\n")
    status, text = bad(pytester, MODEL, ENV, TASKS)
    assert said in text
    assert status == pytest.ExitCode.INTERRUPTED


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ("class Walker: pass", "score"),
        ("class Walker:\n    def setup(self, *a, **k): raise OSError('no weights')\n"
         "    def score(self, o, c): return []", "OSError: no weights"),
    ],
)  # fmt: skip
def test_a_policy_that_cannot_be_loaded_is_an_error_of_its_items(
    pytester: pytest.Pytester, walker: ModelFolder, policy: str, said: str
) -> None:
    walker.write(
        "walker_plugin.py",
        "from pytest_maatml.registry import register_predictor\n"
        f"@register_predictor('scripted_walker')\n{policy}\n",
    )
    status, text = bad(pytester, MODEL, ENV, TASKS)
    assert said in text
    assert status == pytest.ExitCode.TESTS_FAILED


@pytest.mark.parametrize(
    ("scores", "said"),
    [
        ("[1.0]", "1 score for 4 candidates"),
        ("[float('nan')] * 4", "the score of candidate 'finish' is nan"),
        ("[0, 0, float('inf'), 0]", "the score of candidate 'left' is inf"),
        ("[1e308, -1e308, 0, 0]", "log-probability of candidate 'jump' is not finite"),
        ("None", "score must return one number a candidate"),
        ("[].pop()", "IndexError: pop from empty list"),
    ],
)
def test_scores_that_no_choice_can_be_made_from_are_errors_of_their_episodes(
    pytester: pytest.Pytester, walker: ModelFolder, scores: str, said: str
) -> None:
    walker.write(
        "walker_plugin.py",
        "from pytest_maatml.registry import register_predictor\n"
        "@register_predictor('scripted_walker')\n"
        "class Walker:\n"
        "    def score(self, observation, candidates):\n"
        "        if observation['target'] > 0:\n"
        f"            return {scores}\n"
        "        return [1.0, 0.0, 0.0, 0.0]\n",
    )
    status, text = bad(pytester, MODEL, ENV, TASKS, "--maatml-min-success=0")
    assert said in text
    assert status == pytest.ExitCode.TESTS_FAILED
    errors, episodes = walker.errors(), walker.episodes()
    assert errors
    assert episodes
    assert {error["kind"] for error in errors} == {"policy"}
    assert all(said in error["message"] for error in errors)
    assert len(errors) + len(episodes) == 6
    assert "seed 0" in errors[0]["message"]
    assert "decision 0" in errors[0]["message"]


@pytest.mark.parametrize(
    ("method", "body", "op", "said"),
    [
        ("candidates", "return [{'valid': True}]", "candidates", "must have an id"),
        ("candidates", "return [{'id': 'a'}, {'id': 'a'}]", "candidates", "unique ids"),
        ("candidates", "return {'id': 'a'}", "candidates", "must be a list"),
        ("label", "return Labels(('c',))", "label", "'c' is not among the candidates"),
        ("label", "return Labels(('b',))", "label", "'b' is masked"),
        ("step", "return StepResult({}, 1, None, 0.0)", "step", "applied must be true or false"),
        ("step", "return StepResult([], True, None, 0.0)", "step", "must be an object"),
        ("verify", "return Verification('yes', 'success')", "verify", "success must be true"),
        ("verify", "raise KeyError('state')", "verify", "KeyError: 'state'"),
        ("reset", "return {'x': float('nan')}", "reset", "observation.x is NaN"),
    ],
)
def test_an_environment_that_breaks_the_protocol_costs_that_episode_alone(
    pytester: pytest.Pytester, walker: ModelFolder, method: str, body: str, op: str, said: str
) -> None:
    pytester.path.joinpath("env.py").write_text(
        ENVIRONMENT
        + f"class Odd(Env):\n    def {method}(self, *arguments):\n"
        + ("        self.task = arguments[1]\n" if method == "reset" else "")
        + f"        if self.task['id'] == 't1':\n            {body}\n"
        + f"        return super().{method}(*arguments)\n"
    )
    walker.write(
        "walker_plugin.py",
        "from pytest_maatml.registry import register_predictor\n"
        "@register_predictor('scripted_walker')\n"
        "class Walker:\n"
        "    def score(self, observation, candidates):\n"
        "        return [0.0] * len(candidates)\n",
    )
    status, text = bad(pytester, MODEL, "--maatml-env=env.py:Odd", "--label")
    assert status == pytest.ExitCode.TESTS_FAILED
    (error,) = walker.errors("dagger-r0")
    assert (error["task_id"], error["op"]) == ("t1", op)
    assert said in error["message"]
    assert said in text
    assert [e["task_id"] for e in walker.episodes("dagger-r0")] == ["t0", "t2"]


def test_errors_are_neither_success_nor_failure_and_leave_the_gate_undecided(
    pytester: pytest.Pytester, walker: ModelFolder
) -> None:
    pytester.path.joinpath("env.py").write_text(
        ENVIRONMENT
        + "class Odd(Env):\n    def verify(self, episode):\n"
        + "        if self.task['id'] == 't1': raise KeyError('state')\n"
        + "        return super().verify(episode)\n"
    )
    walker.write(
        "walker_plugin.py",
        "from pytest_maatml.registry import register_predictor\n"
        "@register_predictor('scripted_walker')\n"
        "class Walker:\n"
        "    def score(self, observation, candidates):\n"
        "        return [0.0] * len(candidates)\n",
    )
    _, text = bad(pytester, MODEL, "--maatml-env=env.py:Odd", "--maatml-min-success=0.5")
    assert "NOT DECIDED" in text
    assert "The gate could not be decided: 1 episode errored. That" in text
    assert "of 2 episodes verified as success (100.0%), 1 error, 3 planned" in text
    assert "\n1 episode errored:\n" in text
    assert "2 decisions · 0 truncated · 1 error\n" in text
    summary = walker.summary()
    assert (summary["episodes"], summary["success"], summary["errors"]) == (2, 2, 1)
    assert summary["complete"] is False
    assert json.dumps(summary["gates"]["only"]["verdict"]) == '"NOT DECIDED"'
