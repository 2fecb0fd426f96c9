"""Time of one action, FetchPush shapes: merlin.runtime against other ways to call the same policy.

`official` is the call pattern of the paper's release, rebuilt with PyTorch: normalise in NumPy,
make three tensors of one row, one forward pass without gradients, back to NumPy. Each way has one
thread, since with more PyTorch waits for them on a busy machine and is up to a hundred times
slower. All take turns within one run, and of every way the fastest round counts: on a busy machine
slow ways are interrupted more often than quick ones, so a ratio of medians would flatter us. Also
the processor time of `import merlin.runtime`, beside that of NumPy alone. Prints one JSON line.
"""

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import equinox as eqx
import jax
import numpy as np

import merlin.runtime
from merlin.deploy.export import build
from merlin.learners import Merlin
from merlin.training.runs import load_policy, save_policy
from merlin.types import Moments, Spec

try:
    import onnxruntime
    import torch
except ImportError as error:
    raise SystemExit(f"{error}; pip install 'merlin-rl[export,bench]'") from None

OBSERVATION, ACTION, GOAL, HORIZON, MAX_HORIZON = 25, 4, 3, 20, 50
CALLS, ROUNDS = 20, 300

Act = Callable[[dict[str, np.ndarray]], np.ndarray]


def policy_file(folder: Path) -> Path:
    """A policy as training begins, with moments like those of real data."""
    rng = np.random.default_rng(0)

    def moments(size: int) -> Moments:
        mean, std = rng.normal(size=size), rng.uniform(0.01, 1.0, size)
        return Moments(mean.astype(np.float32), std.astype(np.float32))

    learner = Merlin(horizon=HORIZON)
    spec = Spec(
        observation_shape=(OBSERVATION,),
        action_low=np.full(ACTION, -1.0, np.float32),
        action_high=np.full(ACTION, 1.0, np.float32),
        goal_dim=GOAL,
        max_horizon=MAX_HORIZON,
        observation_moments=moments(OBSERVATION),
        goal_moments=moments(GOAL),
    )
    policy = learner.policy(learner.init(jax.random.key(0), spec))
    path = folder / "policy.safetensors"
    save_policy(path, policy, learner, spec, {})
    return path


class Network(torch.nn.Module):
    """The release's policy: embeds the horizon, joins three inputs, splits mean and deviation."""

    def __init__(self, weights: merlin.runtime.Weights):
        super().__init__()
        modules: list[torch.nn.Module] = []
        for layer in weights.layers:
            linear = torch.nn.Linear(*layer.weight.shape)
            linear.weight.data = torch.tensor(layer.weight.T.copy())
            linear.bias.data = torch.tensor(layer.bias)
            modules += [linear, torch.nn.ReLU()]
        self.body = torch.nn.Sequential(*modules[:-1])
        half = weights.constants.horizon_dim // 2
        self.register_buffer("steps", torch.arange(half, dtype=torch.float32) / half)

    def forward(
        self, state: torch.Tensor, goal: torch.Tensor, horizon: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        angles = horizon * torch.exp(-np.log(MAX_HORIZON) * self.steps)
        embedded = torch.cat([torch.cos(angles), torch.sin(angles)], dim=-1)
        mean, std = self.body(torch.cat([state, goal, embedded], dim=-1)).chunk(2, dim=-1)
        return torch.tanh(mean), torch.nn.functional.softplus(std) + 1e-5


def official(weights: merlin.runtime.Weights) -> Act:
    torch.set_num_threads(1)
    network = Network(weights).eval()

    def normalised(x: np.ndarray, mean: np.ndarray, scale: np.ndarray) -> np.ndarray:
        return np.clip((x - mean) * scale, -5.0, 5.0)

    def act(observation: dict[str, np.ndarray]) -> np.ndarray:
        state = normalised(
            observation["observation"], weights.observation.mean, weights.observation.scale
        )
        goal = normalised(observation["desired_goal"], weights.goal.mean, weights.goal.scale)
        with torch.no_grad():
            tensors = (
                torch.tensor(state, dtype=torch.float32).unsqueeze(0),
                torch.tensor(goal, dtype=torch.float32).unsqueeze(0),
                torch.tensor([[HORIZON]], dtype=torch.float32),
            )
            mean, _ = network(*tensors)
        return mean.cpu().numpy().squeeze(0)

    return act


def onnx(weights: merlin.runtime.Weights) -> Act:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(build(weights), options)

    def act(observation: dict[str, np.ndarray]) -> np.ndarray:
        state, goal = observation["observation"], observation["desired_goal"]
        rows = {
            "observation": state.astype(np.float32)[None],
            "goal": goal.astype(np.float32)[None],
        }
        return session.run(["action"], rows)[0][0]

    return act


def jitted(path: Path) -> Act:
    call = eqx.filter_jit(load_policy(path).__call__)

    def act(observation: dict[str, np.ndarray]) -> np.ndarray:
        state, goal = observation["observation"], observation["desired_goal"]
        return np.asarray(call(state.astype(np.float32), goal.astype(np.float32)))

    return act


def import_seconds(module: str, rounds: int = 10) -> float:
    """Processor time of importing it in a process of its own, the least of some rounds."""
    program = f"import time; begin = time.process_time(); import {module}\n"
    program += "print(time.process_time() - begin)"
    command = [sys.executable, "-c", program]
    return min(float(subprocess.check_output(command)) for _ in range(rounds))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = policy_file(Path(folder))
        weights = merlin.runtime.read(path)
        ways: dict[str, Act] = {
            "runtime": merlin.runtime.load(path),
            "official": official(weights),
            "onnx": onnx(weights),
            "jax": jitted(path),
        }
    rng = np.random.default_rng(1)
    seen = [  # as Gymnasium-Robotics gives it: in double precision
        {"observation": rng.normal(size=OBSERVATION), "desired_goal": rng.normal(size=GOAL)}
        for _ in range(CALLS)
    ]
    for way in ways.values():
        for observation in seen:
            np.testing.assert_allclose(way(observation), ways["runtime"](observation), atol=1e-5)
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, way in ways.items():
            begin = time.perf_counter()
            for observation in seen:
                way(observation)
            times[name].append((time.perf_counter() - begin) / CALLS * 1e6)
    least = {name: min(values) for name, values in times.items()}
    print(
        json.dumps(
            {
                "benchmark": "one action, FetchPush shapes, batch 1",
                "microseconds": {name: round(value, 1) for name, value in least.items()},
                "median_microseconds": {
                    name: round(statistics.median(values), 1) for name, values in times.items()
                },
                "runtime_faster_than_official": round(least["official"] / least["runtime"], 2),
                "import_seconds": {
                    module: round(import_seconds(module), 3)
                    for module in ("merlin.runtime", "numpy")
                },
            }
        )
    )


if __name__ == "__main__":
    main()
