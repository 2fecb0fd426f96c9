"""Policies as ONNX graphs, for whatever runs those.

The whole policy is in the graph, from raw observation and goal to the action within its bounds.
The horizon is an input with a default: whoever leaves it out gets the policy as it was evaluated.
"""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from merlin import mixture_graph
from merlin.errors import MerlinError
from merlin.eye import Eye
from merlin.files import check_free, write_bytes
from merlin.folders import policy_file
from merlin.graph import Graph, Value, embed, look, network, normalise, require, squash
from merlin.latents import SeeingPolicy
from merlin.runs import load_policy
from merlin.weights import CLIP, Weights, read

OPSET, IR_VERSION = 17, 10
"""Old enough for the runtimes on robots, new enough for all that is used here."""
SAMPLES, AT_ONCE = 1000, 100
FAR = np.arange(SAMPLES) % 2 == 0
"""Every other sample lies beyond what the normaliser lets through."""
TOLERANCE = np.where(FAR, 1e-4, 1e-5)
"""Of an action, or of its bounds where these are wider than one. Where no data has been, networks
are steep, and float32 rounds by more."""
TIE = 1e-3
"""Steps to a goal that are the same: two proposals are as good."""


def export(
    run: str | Path,
    out: str | Path,
    *,
    seed: int | None = None,
    checkpoint: str = "final",
    overwrite: bool = False,
) -> dict[str, Any]:
    """Write one policy of a run as ONNX, once it has been found to act as the JAX policy does."""
    out = Path(out)
    if out.suffix != ".onnx":
        raise MerlinError(f"--out: {out} is not named as ONNX files are; give it the end .onnx.")
    check_free(out, overwrite)
    source = policy_file(Path(run), seed, checkpoint)
    weights = read(source)
    require("onnx"), require("onnxruntime")
    content = build(weights)
    difference = verify(content, weights, load_policy(source))
    write_bytes(out, content)
    return {
        "path": str(out),
        "policy": str(source),
        "task": weights.about.get("task"),
        "algo": weights.about["algo"],
        "horizon": weights.horizon,
        "inputs": {name: list(shape) for name, shape in _inputs(weights).items()},
        "outputs": list(_outputs(weights)),
        "bytes": len(content),
        "samples": SAMPLES,
        "largest_difference": difference,
    }


def build(weights: Weights) -> bytes:
    """The serialised model."""
    onnx = require("onnx")
    graph = Graph()
    inputs, outputs = _inputs(weights), _outputs(weights)
    parts = [_part(graph, name, weights) for name in ("observation", "goal")]
    if weights.simple:
        if weights.horizon is not None:
            graph.constant("horizon", np.array([weights.horizon], np.float32))
            parts.append(embed(graph, "horizon", weights.max_period))
        squash(graph, network(graph, parts, weights.layers).name, weights)
    else:
        mixture_graph.act(graph, parts[0], parts[1], weights)
    float32, uint8 = onnx.TensorProto.FLOAT, onnx.TensorProto.UINT8
    model = onnx.helper.make_model(
        onnx.helper.make_graph(
            graph.nodes,
            "policy",
            [
                onnx.helper.make_tensor_value_info(
                    name, float32 if _eye_for(name, weights) is None else uint8, shape
                )
                for name, shape in inputs.items()
            ],
            [
                onnx.helper.make_tensor_value_info(
                    name, float32, ["batch", len(weights.action_scale)]
                )
                for name in outputs
            ],
            [onnx.numpy_helper.from_array(v, name) for name, v in graph.constants.items()],
        ),
        opset_imports=[onnx.helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="merlin",
    )
    told = {"horizon": weights.horizon, "max_horizon": weights.max_period}
    kept = {k: weights.about.get(k) for k in ("task", "algo", "seed", "step")}
    onnx.helper.set_model_props(model, {k: str(v) for k, v in (kept | told).items()})
    onnx.checker.check_model(model)
    return model.SerializeToString()


def verify(content: bytes, weights: Weights, policy: Any) -> float:
    """The largest difference to the JAX policy over random inputs; refuses what is no rounding."""
    runtime = require("onnxruntime")
    options = runtime.SessionOptions()
    options.log_severity_level = 3  # it would warn that the horizon has a default, as it should
    session = runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(0)
    inputs = {name: _samples(rng, name, weights) for name in ("observation", "goal")}
    unit = np.maximum(weights.action_scale, 1.0)
    largest = np.zeros(SAMPLES)
    act = jax.jit(jax.vmap(lambda *row: policy(*row)))
    for horizon in (None, rng.integers(1, int(weights.max_period) + 1, SAMPLES)):
        if horizon is not None and weights.horizon is None:
            continue
        told = {} if horizon is None else {"horizon": horizon.astype(np.float32)}
        for some in np.split(np.arange(SAMPLES), SAMPLES // AT_ONCE):
            rows = {name: array[some] for name, array in (inputs | told).items()}
            (action,) = session.run(["action"], rows)
            wanted = np.asarray(act(*rows.values()))
            right = wanted[:, None]
            if weights.foresight is not None and horizon is None:
                right = _as_good(policy, rows)
            difference = (np.abs(action[:, None] - right) / unit).max(axis=2).min(axis=1)
            largest[some] = np.maximum(largest[some], difference)
    if not (largest <= TOLERANCE).all():
        raise MerlinError(
            f"the ONNX policy differs from the JAX policy by {largest.max():.1e}, which rounding "
            "does not explain; nothing was written. Please report this."
        )
    return float(largest.max())


def _as_good(policy: Any, rows: dict[str, np.ndarray]) -> np.ndarray:
    """For each row the proposals of which rounding may take any; infinity for the others."""
    states, goals = rows["observation"], rows["goal"]
    if isinstance(policy, SeeingPolicy):
        states = np.asarray(jax.vmap(policy.encoder)(jnp.asarray(states)))
        policy = policy.policy

    def judged(state: jax.Array, goal: jax.Array) -> jax.Array:
        mixture, actions, _ = policy.proposals(state, goal, policy.chances(None))
        costs = jax.vmap(policy.cost, (None, None, None, 0))(state, goal, mixture, actions)
        same = jnp.isclose(costs, jnp.min(costs), rtol=TIE, atol=TIE)
        return jnp.where(same[:, None], actions, jnp.inf)

    return np.asarray(jax.jit(jax.vmap(judged))(states, goals))


def _inputs(weights: Weights) -> dict[str, list[str | int]]:
    inputs: dict[str, list[str | int]] = {
        "observation": ["batch", *_shape("observation", weights)],
        "goal": ["batch", *_shape("goal", weights)],
    }
    return inputs if weights.horizon is None else inputs | {"horizon": ["batch or 1"]}


def _eye_for(name: str, weights: Weights) -> Eye | None:
    """What an input of the graph is seen with, if it is an image."""
    seen = ("observation", "goal") if weights.goal_image else ("observation",)
    return weights.eye if name in seen else None


def _shape(name: str, weights: Weights) -> tuple[int, ...]:
    """Of one row of an input."""
    eye = _eye_for(name, weights)
    return _normaliser(name, weights)[0].shape if eye is None else eye.shape


def _normaliser(name: str, weights: Weights) -> tuple[np.ndarray, np.ndarray]:
    """Mean and scale of an input, or of its features."""
    if name == "observation":
        return weights.observation_mean, weights.observation_scale
    return weights.goal_mean, weights.goal_scale


def _part(graph: Graph, name: str, weights: Weights) -> Value:
    """An input as the policy's network is given it."""
    eye = _eye_for(name, weights)
    if eye is None:
        return normalise(graph, name, name, *_normaliser(name, weights))
    seen = look(graph, name, eye)
    return normalise(graph, name, seen.name, *_normaliser(name, weights)) if eye.layers else seen


def _outputs(weights: Weights) -> list[str]:
    return ["action", "std"] if weights.simple and weights.gaussian else ["action"]


def _samples(rng: np.random.Generator, name: str, weights: Weights) -> np.ndarray:
    """Inputs as they occur, and those that are far outside."""
    eye = _eye_for(name, weights)
    if eye is not None:
        return _images(rng, eye)
    mean, scale = _normaliser(name, weights)
    spread = np.where(FAR, 2 * CLIP, 1.0)[:, None]
    return (mean + spread * rng.standard_normal((SAMPLES, len(mean))) / scale).astype(np.float32)


def _images(rng: np.random.Generator, eye: Eye) -> np.ndarray:
    """Images about the mean one, and noise."""
    shape = (SAMPLES, *eye.shape)
    near = eye.mean.reshape(eye.shape) + rng.standard_normal(shape, np.float32) / eye.scale
    far = FAR[:, None, None, None]
    images = np.where(far, rng.integers(0, 256, shape, np.uint8), np.clip(near, 0, 255))
    return images.astype(np.uint8)
