"""Each command as a person or a script calls it."""

import json
import re
import shlex
import shutil
import subprocess
import sys
import typing
from dataclasses import fields, is_dataclass, replace

import pytest

import merlin
from helpers.commands import merlin_command
from helpers.format_data import episodes
from helpers.policy_files import write_run
from helpers.sizes import SCHEDULE
from merlin.cli import main
from merlin.cli.app import COMMANDS
from merlin.cli.train import Train
from merlin.errors import MerlinError
from merlin.learners import GCSL, GDQL
from merlin.learners.registry import method_names

FEW = ["--algo", "merlin", "--updates", "20", "--set", "hidden=16", "batch_size=32"]
FEW += [f"--{name.replace('_', '-')}={value}" for name, value in SCHEDULE.items()]


@pytest.fixture
def call_json(call):
    """Run a command with --json; its last line of stdout, and that whole output is that line."""

    def run(*arguments):
        output = call(*arguments, "--json").out
        assert output.count("\n") == 1
        return json.loads(output)

    return run


def test_tasks_lists_every_task(call, call_json):
    text = call("tasks").out
    found = call_json("tasks")["tasks"]
    assert [task["name"] for task in found] == list(merlin.TASKS)
    for task in found:
        assert task["name"] in text
        assert {"observation_dim", "action_dim", "goal_dim", "tolerance", "tuned"} <= task.keys()
    assert found[0]["tuned"]["random"]["horizon"] == 1


def test_collect_writes_a_dataset(call, call_json, tmp_path):
    out = tmp_path / "new" / "rooms"
    text = call("collect", "PointRooms", "--episodes", 4, "--seed", 3, "--out", out).out
    assert str(out) in text
    assert "4 episodes of 50 states" in text
    data = merlin.load(out)
    assert (data.task, data.variant, len(data)) == ("PointRooms", "random", 4)
    again = call_json(
        "collect", "PointRooms", "--episodes", 4, "--seed", 3, "--out", out, "--overwrite"
    )
    assert (again["path"], again["episodes"], again["transitions"]) == (str(out), 4, 196)
    assert merlin.load(out).fingerprint() == data.fingerprint()


def test_info_describes_a_dataset(call, call_json, point_folder):
    text = call("info", point_folder).out
    assert "PointReach random, 30 episodes of 50 states" in text
    assert "achieved_goals" in text
    found = call_json("info", point_folder)
    assert (found["task"], found["episodes"], found["states"]) == ("PointReach", 30, 1500)
    assert found["lengths"] == {"min": 50, "max": 50}
    assert len(found["ranges"]["actions"]) == 2
    assert 0 <= found["reached"]["at_the_end"] <= found["reached"]["ever"] <= 1


def test_train_writes_a_run_and_says_how_it_did(call, call_json, point_folder, tmp_path):
    out = tmp_path / "run"
    printed = call("train", point_folder, "--out", out, "--seeds", 2, "--seed", 5, *FEW)
    assert "merlin on PointReach (random), 20 updates, 2 seeds" in printed.out
    assert f"merlin eval {out}" in printed.out
    assert "20/20 updates" in printed.err
    run = merlin.load_run(out)
    assert run.config.seeds == (5, 6)
    assert run.config.settings["hidden"] == [16]

    found = call_json("train", "--out", out, "--resume", "--updates", 30)
    assert found["run"] == str(out)
    assert (found["updates"], found["algo"], found["task"]) == (30, "merlin", "PointReach")
    assert found["final"]["return"].keys() == {"mean", "ci95"}
    assert [row["seed"] for row in found["seeds"]] == [5, 6]


def test_train_takes_tuned_values_unless_they_are_set(call, tmp_path):
    folder = tmp_path / "data"
    data = merlin.collect("PointReach", "random", episodes=5)
    merlin.save(data, folder)
    expert = ["train", folder, "--variant", "expert", *FEW]
    call(*expert, "--out", tmp_path / "tuned")
    expert.insert(expert.index("batch_size=32"), "hindsight_ratio=1.0")
    call(*expert, "--out", tmp_path / "set")
    ratios = [
        merlin.load_run(tmp_path / name).config.settings["hindsight_ratio"]
        for name in ("tuned", "set")
    ]
    assert ratios == [0.2, 1.0]


def test_train_on_a_task_collects_once(call, tmp_path, monkeypatch):
    monkeypatch.setenv("MERLIN_DATA", str(tmp_path / "cache"))
    first = call("train", "PointReach", "--variant", "random", "--out", tmp_path / "a", *FEW)
    (cached,) = (tmp_path / "cache").iterdir()
    assert f"collecting 2000 episodes into {cached}" in first.err
    assert len(merlin.load(cached)) == 2000
    written = cached.stat().st_mtime_ns
    second = call("train", "PointReach", "--variant", "random", "--out", tmp_path / "b", *FEW)
    assert "collecting" not in second.err
    assert cached.stat().st_mtime_ns == written
    policies = [tmp_path / run / "seed-0" / "policy.safetensors" for run in ("a", "b")]
    assert policies[0].read_bytes() == policies[1].read_bytes()


def test_train_without_a_task_says_so(call, call_json, tmp_path):
    data = merlin.collect("PointReach", "random", episodes=5)
    merlin.save(replace(data, task=None), tmp_path / "data")
    printed = call("train", tmp_path / "data", "--out", tmp_path / "run", *FEW)
    assert "evaluated on held-out episodes" in printed.out
    # Its policies can still be scored where they belong.
    found = call_json("eval", tmp_path / "run", "--task", "PointReach", "--episodes", 5)
    assert found["task"] == "PointReach"


def test_eval_scores_a_run(call, call_json, run_folder):
    text = call("eval", run_folder, "--episodes", 10).out
    assert "merlin on PointReach, 60 updates, 2 seeds" in text
    assert "final policy, horizon 1 " in text
    found = call_json("eval", run_folder, "--episodes", 10)
    assert (found["task"], found["algo"], found["episodes"]) == ("PointReach", "merlin", 10)
    assert (found["seeds"], found["horizon"]) == (2, 1)
    for name in ("return", "success"):
        low, high = found[name]["ci95"]
        assert low <= found[name]["mean"] <= high
    assert 0 <= found["success"]["mean"] <= 1


def test_eval_repeats_the_final_score_of_the_run(call_json, run_folder):
    result = json.loads((run_folder / "result.json").read_text())
    found = call_json("eval", run_folder, "--episodes", SCHEDULE["final_episodes"])
    assert found["return"] == result["final"]["return"]
    assert found["success"] == result["final"]["success"]


def test_eval_sweeps_horizons(call, call_json, run_folder):
    text = call("eval", run_folder, "--episodes", 5, "--horizon", 1, 50).out
    assert "horizon 1 " in text
    assert "horizon 50 " in text
    found = call_json("eval", run_folder, "--episodes", 5, "--horizon", 1, 50)
    assert [row["horizon"] for row in found["sweep"]] == [1, 50]
    returns = [row["return"]["mean"] for row in found["sweep"]]
    assert returns[0] != returns[1]


def test_eval_of_the_best_and_with_noise(call_json, run_folder):
    mean = call_json("eval", run_folder, "--episodes", 5)
    noisy = call_json("eval", run_folder, "--episodes", 5, "--temperature", 1.0)
    assert noisy["temperature"] == 1.0
    assert noisy["return"] != mean["return"]
    assert call_json("eval", run_folder, "--episodes", 5, "--checkpoint", "best")


@pytest.mark.parametrize(
    ("learner", "temperature"),
    [(GCSL(hidden=(8,)), 0.0), (GDQL(hidden=(8,), candidates=1, diffusion_steps=1), 1.0)],
)
def test_eval_leaves_a_policy_its_own_temperature_and_horizon(
    learner, temperature, call, call_json, capsys, tmp_path, rng
):
    run = write_run(tmp_path / "run", merlin.TASKS["PointReach"], learner, rng)
    assert call_json("eval", run, "--episodes", 3)["temperature"] == temperature
    assert "│ final policy │" in call("eval", run, "--episodes", 3).out
    with pytest.raises(SystemExit) as stop:
        call("eval", run, "--episodes", 3, "--horizon", 1, 5)  # the rows would be equal
    assert stop.value.code == 2
    refusal = "merlin: --horizon: this policy takes none; leave it out.\n"
    assert capsys.readouterr().err == refusal


def annotated(hint):
    """Annotated dataclasses anywhere in a type: subcommands, or groups of options."""
    if is_dataclass(getattr(hint, "__origin__", None)):
        return [hint]
    return [found for part in typing.get_args(hint) for found in annotated(part)]


def is_subcommand(hint):
    return "subcommand" in type(hint.__metadata__[0]).__name__.lower()


def options(command):
    """Fields of a command, those of its groups of options in their place."""
    for field, hint in zip(
        fields(command),
        typing.get_type_hints(command, include_extras=True).values(),
        strict=True,
    ):
        groups = [inner.__origin__ for inner in annotated(hint)]
        yield from (option for group in groups for option in options(group))
        if not groups:
            yield field.name.replace("_", "-")


def every_command():
    """All commands by their words, `expert train` as well as `train`."""
    found = []
    for name, command in COMMANDS.items():
        hints = typing.get_type_hints(command, include_extras=True).values()
        nested = [inner for hint in hints for inner in annotated(hint) if is_subcommand(inner)]
        found += [([name, inner.__metadata__[0].name], inner.__origin__) for inner in nested]
        found += [] if nested else [([name], command)]
    return found


@pytest.mark.parametrize(("words", "command"), every_command(), ids=str)
def test_help_mentions_every_option(words, command, capsys):
    with pytest.raises(SystemExit) as stop:
        main([*words, "--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    names = list(options(command))
    assert len(names) >= len(fields(command))
    for option in names:
        assert f"--{option}" in text or option.upper() in text, option
    assert "(default: None)" not in text
    assert "(default: )" not in text


def test_help_has_one_paragraph_per_option(capsys):
    """Not the line breaks of the source; a default only where it says something."""
    with pytest.raises(SystemExit):
        main(["bench", "--help"])
    text = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "--tuned STR Which tuned values to use: own (for data that merlin collects)" in text
    assert "(the paper's). (default: own)" in text
    assert "--plan Print what exists" in text  # and no --no-plan
    assert "--seeds INT Number of seeds; by default 3 on the easier tasks" in text


def test_help_mentions_every_command(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    assert all(command in text for command in COMMANDS)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["trian"], "unknown command 'trian'; did you mean 'train'?"),
        (["evla", "x"], "unknown command 'evla'; did you mean 'eval'?"),
        (["xyz"], f"unknown command 'xyz'; choose from {', '.join(COMMANDS)}."),
        ([], f"no command given; choose from {', '.join(COMMANDS)}; see `merlin --help`."),
        (
            ["tasks", "PointRooms"],
            "unknown argument 'PointRooms'; choose from list, ogbench, "
            "check; see `merlin tasks --help`.",
        ),
        (
            ["tasks", "chek"],
            "unknown argument 'chek'; did you mean 'check'? see `merlin tasks --help`.",
        ),
        (
            ["expert"],
            "the subcommand is missing; choose from train, eval; see `merlin expert --help`.",
        ),
        (
            ["eval", "x", "--temperature", "hot"],
            "--temperature: 'hot' is not a number; see `merlin eval --help`.",
        ),
        (["convert"], "convert needs SOURCE and DESTINATION; see `merlin convert --help`."),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_the_installed_command_answers_slips_with_one_whole_sentence(tmp_path, words, said):
    done = merlin_command(*words, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"merlin: {said}\n")


def test_a_misspelt_method_is_answered_with_one_whole_sentence(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["train", "PointReach", "--variant", "random", "--algo", "wgcls", "--out", "x"])
    assert stop.value.code == 2
    said = "merlin: --algo: no method is called 'wgcls'; did you mean 'wgcsl'?\n"
    assert capsys.readouterr() == ("", said)


def test_the_installed_command_tells_its_version():
    assert merlin_command("--version").stdout == f"merlin {merlin.__version__}\n"


def test_help_of_train_names_every_method_without_jax():
    program = (
        "import sys; from merlin.cli import main\n"
        "try: main(['train', '--help'])\n"
        "except SystemExit: print('jax' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    help_text, _, heavy = done.stdout.rstrip().rpartition("\n")
    assert heavy == "False"
    assert set(method_names()) == set(merlin.METHODS)
    words = set(re.split(r"[\s,.│]+", help_text))
    assert set(merlin.METHODS) <= words


def test_commands_that_are_suggested_can_be_pasted(tmp_path, call, point_folder):
    """A path with a space in it is one word of the command."""
    run = tmp_path / "my run"
    printed = call("train", point_folder, "--out", run, *FEW).out
    command = shlex.split(re.search(r"`(merlin eval .*)`", printed)[1])
    assert command == ["merlin", "eval", str(run), "--episodes", "1000"]
    shutil.copytree(point_folder, tmp_path / "my data")
    with pytest.raises(MerlinError) as refusal:
        Train(data=str(tmp_path / "my data"), out=run / "x", pixels=True, variant="random")()
    command = shlex.split(re.search(r"`(merlin convert .*)`", str(refusal.value))[1])
    assert command == ["merlin", "convert", str(tmp_path / "my data"), "DESTINATION", "--pixels"]


def test_export_of_a_run_without_a_task_says_so(tmp_path, call, rng):
    data = episodes(rng)
    small = {**SCHEDULE, "updates": 2}
    run = merlin.train(merlin.GCSL(hidden=(8,), batch_size=8), data, out=tmp_path / "r", **small)
    assert run.result.task is None
    printed = call("export", tmp_path / "r", "--out", tmp_path / "p.onnx").out
    assert "gcsl for data without a task, " in printed


def test_the_installed_command_runs_into_a_closed_pipe():
    """`merlin tasks | head` is no error."""
    command = [sys.executable, "-c", "from merlin.cli import main; main()", "tasks"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()
    with process.stderr:
        errors = process.stderr.read()
    assert process.wait(timeout=60) == 0
    assert errors == b""


def test_the_default_method_needs_no_tuning(point_folder, tmp_path, call_json):
    small = ["--updates", "4", "--set", "hidden=8", "model_hidden=8", "distance_hidden=8"]
    small += ["guide_hidden=8", "batch_size=8", "candidates=1", "depth=1"]
    looks = ["--eval-episodes", "2", "--final-episodes", "2"]
    found = call_json("train", point_folder, "--out", tmp_path / "run", *small, *looks)
    assert found["algo"] == merlin.DEFAULT_METHOD == "merlin-plus"
