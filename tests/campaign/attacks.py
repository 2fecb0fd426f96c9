"""Attacks by hand: each of the findings that this software was hardened against.

An attack gets the material and an empty folder, and returns what went wrong, or None.
"""

import datetime
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np

from campaign.material import TRAIN, Material, content
from campaign.processes import HANG, Running, run, start
from campaign.refusals import change_minari_task, refused, say
from campaign.strangers import STRANGERS
from helpers.breaking import rewrite_policy
from helpers.format_data import change_minari
from merlin.errors import MerlinError
from merlin.io import tensors

Attack = Callable[[Material, Path], str | None]


def link_as_temporary(material: Material, folder: Path) -> str | None:
    """1: a link under the name of a temporary file, or anywhere in a run or bench folder."""
    victim = folder / "victim"
    victim.write_text("precious")
    copy = material.copy(material.run, folder / "run")
    for name in ("seed-0/.metrics.jsonl.partial", ".lock", "seed-0/events.out.tfevents"):
        (copy / name).unlink(missing_ok=True)
        (copy / name).symlink_to(victim)
        ended = run(["train", "--out", copy, "--resume", "--updates", 70], folder)
        (copy / name).unlink(missing_ok=True)
        if problem := refused(ended):
            return f"{name}: {problem}"
    bench = material.copy(material.bench, folder / "bench")
    (bench / ".report.md.partial").symlink_to(victim)
    if problem := refused(run(["report", bench], folder)):
        return problem
    return None if victim.read_text() == "precious" else "the victim was written to"


def module_in_working_directory(material: Material, folder: Path) -> str | None:
    """2: a module in the working directory, which worker processes must not import."""
    for name in ("numpy.py", "gymnasium.py", "merlin.py"):
        (folder / name).write_text(f"open({str(folder / 'PWNED')!r}, 'w').close()\n")
    command = "import sys; sys.path.remove(''); import merlin.cli; "
    command += "merlin.cli.main(['collect', 'Reacher', '--episodes', '1', '--out', 'd'])"

    def work() -> None:
        os.execve(sys.executable, [sys.executable, "-c", command], os.environ)

    ended = Running(work, folder).wait()
    if (folder / "PWNED").exists():
        return "code of the working directory was run"
    return ended.problem(0)


def task_that_names_code(material: Material, folder: Path) -> str | None:
    """3: a task in data or in a run that names a module."""
    (folder / "evil.py").write_text(f"open({str(folder / 'PWNED')!r}, 'w').close()\n")
    paths = {"PYTHONPATH": f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    data = material.copy(material.data, folder / "data")
    native = material.copy(material.run, folder / "run")
    hdf5 = material.copy(material.formats["minari"], folder / "minari")
    for task in ("evil:X", "evil:merlin/PointReach-v0", "evil:CartPole-v1", "evil:PointReach"):
        say(data / "meta.json", task=task)
        say(native / "run.json", task=task)
        change_minari_task(hdf5, task)
        for words in (
            *(["train", data, "--out", "new", *TRAIN], ["train", hdf5, "--out", "new", *TRAIN]),
            *(["eval", native, "--episodes", 1], ["play", native, "--out", "p.html"]),
        ):

            def work(words: list = words) -> None:
                sys.path.insert(0, str(folder))
                import merlin.cli

                merlin.cli.main([str(word) for word in words])

            if problem := refused(Running(work, folder, **paths).wait()):
                return f"{words[0]} of {task}: {problem}"
            if (folder / "PWNED").exists():
                return f"{words[0]} of {task}: code was run"
    return None


def memory_bombs(material: Material, folder: Path) -> str | None:
    """4: small files that claim to be large."""
    bomb = folder / "bomb.npz"
    big = np.zeros((40_000_000, 2), np.float32)
    np.savez_compressed(bomb, observations=big, actions=big, terminals=np.zeros(len(big), bool))
    del big
    if bomb.stat().st_size * 200 > 640_000_000:
        return "the bomb is no bomb"
    hdf5 = material.copy(material.formats["minari"], folder / "minari")

    def grow(file: h5py.File) -> None:
        for path in list(file["episode_0"]):
            if path not in ("actions", "observations"):
                continue
            nodes = file[f"episode_0/{path}"]
            names = [path] if isinstance(nodes, h5py.Dataset) else [f"{path}/{n}" for n in nodes]
            for name in names:
                width = file[f"episode_0/{name}"].shape[1:]
                del file[f"episode_0/{name}"]
                shape = (10**9 + (path != "actions"), *width)
                file.create_dataset(f"episode_0/{name}", shape, "f4", chunks=(1024, *width))

    change_minari(hdf5, grow, total_steps=10**9)
    endless = material.copy(material.data, folder / "endless")
    (endless / "meta.json").unlink()
    (endless / "meta.json").symlink_to("/dev/zero")
    for data in (bomb, hdf5, endless):
        if problem := refused(run(["info", data], folder)):
            return f"{data.name}: {problem}"
    for values in (
        {"observation_shape": [3_000_000_000]},
        {"goal_dim": 3_000_000_000},
        {"max_horizon": 10**12},
        {"action_dim": 10**400},
    ):
        copy = material.copy(material.run, folder / "run")
        rewrite_policy(lambda arrays, about, values=values: about.update(values))(copy)
        if problem := refused(run(["eval", copy, "--episodes", 1], folder)):
            return f"{values}: {problem}"
    return None


def silent_damage(material: Material, folder: Path) -> str | None:
    """5: NaN in weights and in checkpoints, and a flipped bit in a checkpoint."""
    copy = material.copy(material.run, folder / "run")
    rewrite_policy(_poison)(copy)
    for words in (["eval", copy, "--episodes", 1], ["play", copy, "--out", "page.html"]):
        if problem := refused(run(words, folder)):
            return f"{words[0]}: {problem}"
    copy = material.copy(material.run, folder / "run")
    last = copy / "checkpoint-0.safetensors"
    spoilt = bytearray(last.read_bytes())
    spoilt[-5] ^= 64
    last.write_bytes(spoilt)
    ended = run(["train", "--out", copy, "--resume", "--updates", 70], folder)
    if "checksum is wrong" not in ended.err or "Continuing from" not in ended.err:
        return f"a flipped bit went unnoticed: {ended.err[-200:]}"
    whole = material.copy(material.run, folder / "whole")
    ended_too = run(["train", "--out", whole, "--resume", "--updates", 70], folder)
    if problem := ended.problem(0) or ended_too.problem(0):
        return problem
    if content(copy, "seed-0/*.safetensors") != content(whole, "seed-0/*.safetensors"):
        return "the checkpoint before the last led to another policy"
    arrays, about = tensors.read(last)
    _poison(arrays, about)
    for name in ("checkpoint-0.safetensors", "previous-0.safetensors"):
        tensors.write(copy / name, arrays, {**about, "step": 60})
    return refused(run(["train", "--out", copy, "--resume", "--updates", 80], folder))


def _poison(arrays: dict[str, np.ndarray], about: dict) -> None:
    name = next(name for name in sorted(arrays) if name.endswith("bias"))
    arrays[name] = np.full_like(arrays[name], np.nan)


def diverging(material: Material, folder: Path) -> str | None:
    """5: training that is no longer finite stops, with the last good checkpoint."""
    words = ["train", material.data, "--out", "run", *TRAIN, "--algo", "gcsl"]
    words[words.index("hidden=8,8")] = "learning_rate=1e30"
    words[words.index("60")] = "100"
    ended = run(words, folder)
    if problem := ended.problem(2):
        return problem
    for file in (folder / "run").glob("*.safetensors"):
        try:
            tensors.read(file)
        except MerlinError as error:
            return f"the checkpoint is no good: {error}"
    return None if "no longer finite" in ended.err else f"said {ended.err[-200:]}"


def two_at_once(material: Material, folder: Path) -> str | None:
    """6: two processes in one run folder, and in one place of the cache."""
    copy = material.copy(material.run, folder / "run")
    words = ["train", "--out", copy, "--resume", "--updates", 400]
    both = [start(words, folder), start(words, folder)]
    ends = [one.wait() for one in both]
    codes = sorted(end.code for end in ends)
    if codes not in ([0, 0], [0, 2]):
        return f"training ended with {codes}: {ends[0].err[-200:]} {ends[1].err[-200:]}"
    for end in ends:
        if problem := end.problem(0, 2):
            return problem
        if end.code == 2 and "is in use by" not in end.err:
            return f"said {end.err[-200:]}"
    steps = [json.loads(line)["step"] for line in (copy / "seed-0/metrics.jsonl").open()]
    if len({*steps}) != 80:
        return f"{len({*steps})} of 80 rows of metrics are left"
    words = ["train", "Reacher", "--variant", "random", "--episodes", 20, *TRAIN]
    words[words.index("60")] = "10"
    cache = {"MERLIN_DATA": str(folder / "cache")}
    both = [start([*words, "--out", f"r{i}"], folder, **cache) for i in range(2)]
    ends = [one.wait() for one in both]
    problem = next(filter(None, (end.problem(0) for end in ends)), None)
    if problem is None and (folder / "cache").glob("*.lock") and list((folder / "cache").iterdir()):
        left = [path.name for path in (folder / "cache").iterdir() if path.name.startswith(".")]
        return f"left behind: {left}" if left else None
    return problem


def dead_holder(material: Material, folder: Path) -> str | None:
    """6: a lock ends with its holder."""
    copy = material.copy(material.run, folder / "run")
    words = ["train", "--out", copy, "--resume", "--updates", 5000]
    holder = start(words, folder)
    while not (copy / ".lock").exists():
        time.sleep(0.01)
        if holder.began + HANG < time.monotonic():
            return "no lock after 20 s"
    holder.kill()
    holder.wait()
    words[-1] = 70 if json.loads((copy / "run.json").read_text())["updates"] == 60 else 5000
    second = start(words, folder)
    time.sleep(1.0)
    second.kill(signal.SIGTERM)
    # A few updates may be done by then, and Python on its way out with its own handlers.
    return second.wait().problem(0, 130, -signal.SIGTERM)


def odd_files(material: Material, folder: Path) -> str | None:
    """8, 9: JSON that is not what it should be, pipes in place of files, names that are long."""
    for change in (
        *({"seeds": ["0"]}, {"data": None}, {"algo": 5}, {"dimensions": []}, {"seeds": []}),
        *({"settings": []}, {"schedule": 3}, {"updates": "x"}, {"goal": 7}, {"augment": {}}),
        *({"latents": 3}, {"latents": {"x": 1}}, {"phi": "a"}, {"augment": {"name": []}}),
        *({"task": 3}, {"data": {"path": 3}}, {"data": {"path": "\0"}}, {"seeds": [10**30]}),
    ):
        copy = material.copy(material.run, folder / "run")
        say(copy / "run.json", **change)
        for words in (["eval", copy, "--episodes", 1], ["train", "--out", copy, "--resume"]):
            ended = run(words, folder)
            if problem := ended.problem(0, 2) or (ended.hangs and "hangs"):
                return f"{words[0]} with {change}: {problem}"
    for source, name, command in (
        (material.data, "meta.json", "info"),
        (material.data, "actions.npy", "info"),
        (material.run, "run.json", "eval"),
        (material.run, "seed-0/policy.safetensors", "eval"),
        (material.run, "result.json", "eval"),
        (material.bench, "rows.jsonl", "report"),
        (material.bench, "bench.json", "report"),
    ):
        copy = material.copy(source, folder / "copy")
        (copy / name).unlink()
        os.mkfifo(copy / name)
        if problem := refused(run([command, copy], folder)):
            return f"{name} as a pipe: {problem}"
    for suffix in (".npz", ".pkl", ""):
        os.mkfifo(folder / f"pipe{suffix}")
        if problem := refused(run(["info", f"pipe{suffix}"], folder)):
            return f"pipe{suffix}: {problem}"
    long = "n" * 300
    for words in (
        *(["info", long], ["eval", long], ["collect", "PointReach", "--out", long]),
        *(["convert", material.data, f"{long}.npz"], ["report", long]),
        ["train", material.data, "--out", long, *TRAIN],
    ):
        if problem := run(words, folder).problem(1, 2):
            return f"{words[0]} with a long name: {problem}"
    return None


def many(material: Material, folder: Path) -> str | None:
    """9: numbers that nobody could wait for."""
    copy = material.copy(material.run, folder / "run")
    rewrite_policy(lambda _, about: about["settings"].update(hidden=[8] * 20_000))(copy)
    if problem := refused(run(["eval", copy, "--episodes", 1], folder)):
        return f"20,000 layers: {problem}"
    huge = 10**12
    for words in (
        ["collect", "PointReach", "--episodes", huge, "--out", "new"],
        ["collect", "Reacher", "--episodes", huge, "--out", "new"],
        ["eval", material.run, "--episodes", huge],
        ["train", material.data, "--out", "new", *TRAIN, "--final-episodes", huge],
    ):
        if problem := refused(run(words, folder)):
            return f"{words[0]}: {problem}"
    return None


def odd_observations(material: Material, folder: Path) -> str | None:
    """10: whatever a robot may hand to the runtime."""
    import merlin.runtime

    policy = merlin.runtime.load(material.run)
    good = {"observation": np.zeros(2), "desired_goal": np.zeros(2)}
    if not np.isfinite(policy(good)).all():
        return "a good observation gives no action"
    odd = [
        np.zeros((2, 2, 2)),
        None,
        "ab",
        ["1", "2"],
        [np.nan, 0.0],
        np.zeros(3),
        7,
        {},
        [None, 1],
    ]
    odd += [np.array([datetime.date.today()] * 2), np.zeros(2, complex), [[1], [2, 3]]]
    odd += [np.array(["2026-01-01"] * 2, "datetime64[D]"), [b"1", b"2"], np.zeros(2, "m8[s]")]
    cases = [{**good, key: value} for key in good for value in odd]
    for case in (*cases, {}, {"observation": np.zeros(2)}, None, 3, [1, 2]):
        try:
            action = policy(case)
        except MerlinError:
            continue
        except Exception as error:
            return f"{case!r:.80}: {type(error).__name__}: {error}"
        return f"{case!r:.80}: gave {action}"
    return None


def names_in_reports(material: Material, folder: Path) -> str | None:
    """11: names of grids, tasks and methods that are TeX, HTML or paths."""
    evil = "../../x}\\input{/etc/passwd}%$^^5c\n<script>alert(1)</script>"
    copy = material.copy(material.bench, folder / "a" / "b" / "bench")
    rows = [json.loads(line) for line in (copy / "rows.jsonl").open()]
    for row in rows:
        row.pop("sha256")
        row.update(grid=evil, task=evil, variant=evil, algo=evil, command=evil, version=evil)
    (copy / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    before = set(folder.rglob("*"))
    ended = run(["report", copy], folder)
    outside = [path for path in set(folder.rglob("*")) - before if copy not in path.parents]
    if outside:
        return f"wrote {outside[0]}"
    if ended.code == 0:
        tex = (copy / "tables.tex").read_text()
        if "\\input{" in tex or "^^" in tex:
            return "TeX of a name is in tables.tex"
        if "<script>alert" in (copy / "report.html").read_text():
            return "a script of a name is in report.html"
    return ended.problem(0, 2)


def permissions(material: Material, folder: Path) -> str | None:
    """11: folders are as wide as the umask allows, and no wider."""

    def work() -> None:
        os.umask(0o077)
        import merlin.cli

        merlin.cli.main(["collect", "PointReach", "--episodes", "2", "--out", "data"])

    if problem := Running(work, folder).wait().problem(0):
        return problem
    for path in (folder / "data", *(folder / "data").iterdir()):
        if path.stat().st_mode & 0o077:
            return f"{path.name} has mode {path.stat().st_mode & 0o777:o}"
    return None


def output_that_is_closed(material: Material, folder: Path) -> str | None:
    """8: stdout that is closed or full."""

    def to_full() -> None:
        os.dup2(os.open("/dev/full", os.O_WRONLY), 1)
        import merlin.cli

        merlin.cli.main(["tasks"])

    def to_nowhere() -> None:
        sys.stdout = None  # as Python has it when it is closed
        import merlin.cli

        try:
            merlin.cli.main(["tasks"])
        finally:
            sys.stdout = sys.stderr

    ends = [Running(work, folder).wait() for work in (to_full, to_nowhere)]
    return next(filter(None, (end.problem(1) for end in ends)), None)


ATTACKS: dict[str, Attack] = {
    attack.__name__: attack
    for attack in (
        *(link_as_temporary, module_in_working_directory, task_that_names_code, memory_bombs),
        *(silent_damage, diverging, two_at_once, dead_holder, odd_files, many, odd_observations),
        *(names_in_reports, permissions, output_that_is_closed, *STRANGERS),
    )
}
