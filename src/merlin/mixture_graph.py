"""Merlin-plus as a part of an ONNX graph: a mixture of Gaussians, and a judge of what it proposes.

The same arithmetic as in `foresight`, on arrays (batch, proposals, ...). A graph draws nothing: its
proposals come from the numbers that a policy without a key takes.
"""

import math
from collections.abc import Sequence

import numpy as np

from merlin.eye import Layer
from merlin.foresight import HASTE, LOG_ODDS, MIN_STD, NARROW, SOON, WALK_WEIGHTS, Foresight
from merlin.graph import Graph, Value, embed, network
from merlin.learners.mixture import chances
from merlin.weights import Weights

JUDGED = 0.0
"""The horizon that stands for none: proposals are judged."""

Mixture = Sequence[str]
"""Weights (batch, proposals, components), means and deviations, with actions behind them."""


def act(graph: Graph, state: Value, goal: Value, weights: Weights) -> None:
    """From standardised rows to the action; the graph's horizon is an input with a default."""
    assert weights.horizon is not None
    judged = weights.foresight is not None
    own = np.array([weights.horizon], np.float32)
    default = np.array([JUDGED], np.float32) if judged else own
    told = graph.constant("horizon", default)
    if judged:
        unasked = graph.add("Equal", told, graph.constant("judged", np.float32(JUDGED)))
        told = graph.add("Where", unasked, graph.constant("own_horizon", own), told)
    told = graph.add("Unsqueeze", told, _axis(graph, 1))
    if judged:  # that of those that hurry beside it, without a Concat, so that one row serves all
        keep, soon = (np.array([row], np.float32) for row in ([1.0, 0.0], [0.0, SOON]))
        told = graph.add("Mul", told, graph.constant("first_horizon", keep))
        told = graph.add("Add", told, graph.constant("soon", soon))
    state, goal = (_expand(graph, value) for value in (state, goal))
    mixture = _mixture(graph, [state, goal, embed(graph, told, weights.max_period)], weights)
    action = _densest(graph, mixture, weights)
    if weights.foresight is not None:
        quick = _slice(graph, action, 1, 2, axis=1)
        action, *mixture = (_slice(graph, part, 0, 1, axis=1) for part in (action, *mixture))
        parts = [action, _hurried(graph, quick, weights), *_drawn(graph, mixture, weights)]
        proposals = graph.add("Concat", *parts, axis=1)
        steps = _steps(graph, state, goal, proposals, weights, weights.foresight)
        likely = _log_density(graph, mixture, proposals, weights)
        action = _best(graph, proposals, steps, likely, unasked, weights.foresight)
    graph.add("Squeeze", action, _axis(graph, 1), output="action")


def _mixture(graph: Graph, parts: list[Value], weights: Weights) -> Mixture:
    """The network's outputs, taken apart; means are actions within their bounds."""
    components, dim = weights.components, len(weights.action_scale)
    size = components * dim
    outputs = network(graph, parts, weights.layers).name
    shape = graph.constant("by_component", np.array([0, 0, components, dim]))
    unit = graph.add("Tanh", graph.add("Reshape", _columns(graph, outputs, 0, size), shape))
    scaled = graph.add("Mul", unit, graph.constant("action_scale", weights.action_scale))
    means = graph.add("Add", scaled, graph.constant("action_centre", weights.action_centre))
    raw = graph.add("Reshape", _columns(graph, outputs, size, 2 * size), shape)
    least = graph.constant("least_std", np.float32(MIN_STD))
    stds = graph.add("Add", graph.add("Softplus", raw), least)
    if components == 1:  # its network gives no weights
        zero = graph.constant("no_weight", np.float32(0.0))
        return graph.add("Mul", _columns(graph, outputs, 0, 1), zero), means, stds
    return _columns(graph, outputs, 2 * size, 2 * size + components), means, stds


def _densest(graph: Graph, mixture: Mixture, weights: Weights) -> str:
    """The mean of the component with the highest weight per volume."""
    _, means, _ = mixture
    best = graph.add("ArgMax", _per_volume(graph, mixture, weights), axis=-1, keepdims=0)
    chosen = graph.add("Unsqueeze", _one_hot(graph, best, weights.components), _axis(graph, -1))
    return graph.add("ReduceSum", graph.add("Mul", chosen, means), _axis(graph, 2), keepdims=0)


def _per_volume(graph: Graph, mixture: Mixture, weights: Weights) -> str:
    """Log weights of the components per volume, up to a constant."""
    logits, _, stds = mixture
    width = graph.add("Log", _widths(graph, stds, weights))
    return graph.add("Sub", logits, graph.add("ReduceSum", width, _axis(graph, -1), keepdims=0))


def _widths(graph: Graph, stds: str, weights: Weights) -> str:
    """Deviations, where none counts as narrower than `NARROW`."""
    narrow = graph.constant("narrow", (NARROW * weights.action_scale).astype(np.float32))
    return graph.add("Max", stds, narrow)


def _log_density(graph: Graph, mixture: Mixture, proposals: str, weights: Weights) -> str:
    """Of a mixture at each proposal, up to a constant: (batch, proposals)."""
    _, means, stds = mixture
    off = graph.add("Sub", graph.add("Unsqueeze", proposals, _axis(graph, 2)), means)
    ratio = graph.add("Div", off, _widths(graph, stds, weights))
    half = graph.add("Mul", graph.add("Mul", ratio, ratio), graph.constant("half", np.float32(0.5)))
    apart = graph.add("ReduceSum", half, _axis(graph, -1), keepdims=0)
    each = graph.add("Sub", _per_volume(graph, mixture, weights), apart)
    return graph.add("ReduceLogSumExp", each, axes=[-1], keepdims=0)


def _hurried(graph: Graph, action: str, weights: Weights) -> str:
    """Several times as far from the middle of the bounds."""
    assert weights.foresight is not None
    centre = graph.constant("action_centre", weights.action_centre)
    off = graph.add("Sub", action, centre)
    haste = graph.constant("haste", HASTE[None, : weights.foresight.candidates, None])
    return _clip(graph, graph.add("Add", graph.add("Mul", off, haste), centre), weights)


def _drawn(graph: Graph, mixture: Mixture, weights: Weights) -> list[str]:
    """Actions from the mixture, if any are to be drawn."""
    foresight, dim = weights.foresight, len(weights.action_scale)
    assert foresight is not None
    luck, noise = (
        np.asarray(part, np.float32)
        for part in chances(None, foresight.candidates, weights.components, dim)
    )
    if not len(luck):
        return []
    _, means, stds = mixture
    heights = _per_volume(graph, mixture, weights)
    lucky = graph.add("Add", heights, graph.constant("luck", luck[None]))
    which = graph.add("ArgMax", lucky, axis=-1, keepdims=0)
    chosen = _one_hot(graph, which, weights.components)
    mean, std = (
        graph.add("MatMul", chosen, graph.add("Squeeze", part, _axis(graph, 1)))
        for part in (means, stds)
    )
    drawn = graph.add("Add", mean, graph.add("Mul", std, graph.constant("noise", noise[None])))
    return [_clip(graph, drawn, weights)]


def _clip(graph: Graph, action: str, weights: Weights) -> str:
    """Into the bounds of actions."""
    low, high = (weights.action_centre + sign * weights.action_scale for sign in (-1, 1))
    least = graph.add("Max", action, graph.constant("action_low", low))
    return graph.add("Min", least, graph.constant("action_high", high))


def _steps(
    graph: Graph, state: Value, goal: Value, action: str, weights: Weights, foresight: Foresight
) -> str:
    """How far from the goal the walks are that begin with each action: (batch, proposals)."""
    free = weights.action_scale > 0
    scale = np.where(free, 1.0 / np.where(free, weights.action_scale, 1.0), 0.0).astype(np.float32)
    centred = graph.add("Sub", action, graph.constant("action_centre", weights.action_centre))
    unit = Value(graph.add("Mul", centred, graph.constant("to_units", scale)), len(scale))
    first = _moved(graph, state, [state, unit], foresight.model, "model_")
    left = _distance(graph, first, goal, foresight)
    if foresight.depth == 1:
        return left
    end = _moved(graph, first, [first, goal], foresight.guide, "guide_")
    counted = (
        graph.add("Mul", steps, graph.constant(f"walk_weight_{place}", weight))
        for place, (steps, weight) in enumerate(
            zip((left, _distance(graph, end, goal, foresight)), WALK_WEIGHTS, strict=True)
        )
    )
    return graph.add("Add", *counted)


def _moved(
    graph: Graph, state: Value, parts: list[Value], layers: tuple[Layer, ...], prefix: str
) -> Value:
    """A state after the change that a network tells."""
    change = network(graph, parts, layers, prefix=prefix)
    return Value(graph.add("Add", state.name, change.name), state.width)


def _distance(graph: Graph, state: Value, goal: Value, foresight: Foresight) -> str:
    scores = network(graph, [state, goal], foresight.distance, prefix="distance_")
    bins = scores.width - 1
    other = _columns(graph, scores.name, bins, bins + 1)
    log_odds = graph.add("Sub", _columns(graph, scores.name, 0, bins), other)
    most = (graph.constant(f"log_odds_{sign:+}", np.float32(sign * LOG_ODDS)) for sign in (-1, 1))
    odds = graph.add("Exp", graph.add("Clip", log_odds, *most))
    visits = graph.add("MatMul", odds, graph.constant("discounts", foresight.discounts))
    rate = np.float32(1.0 / math.log(foresight.discount))
    return graph.add("Mul", graph.add("Log", visits), graph.constant("steps_per_odds", rate))


def _best(
    graph: Graph, proposals: str, steps: str, likely: str, unasked: str, foresight: Foresight
) -> str:
    """The judge's word weighed against how likely each proposal is; the first if none is asked."""
    trust = np.float32(foresight.caution * foresight.square_error)
    prior = graph.add("Mul", likely, graph.constant("trust", trust))
    best = graph.add("ArgMin", graph.add("Sub", steps, prior), axis=1, keepdims=1)
    judged = graph.add("Unsqueeze", unasked, _axis(graph, 1))
    index = graph.add("Where", judged, best, graph.constant("first", np.array(0)))
    return graph.add("MatMul", _one_hot(graph, index, foresight.candidates + 1), proposals)


def _expand(graph: Graph, value: Value) -> Value:
    """Rows as the only proposal of each."""
    return Value(graph.add("Unsqueeze", value.name, _axis(graph, 1)), value.width)


def _columns(graph: Graph, value: str, start: int, stop: int) -> str:
    return _slice(graph, value, start, stop, axis=-1)


def _slice(graph: Graph, value: str, start: int, stop: int, *, axis: int) -> str:
    begin, end = (graph.constant(f"at_{n}", np.array([n])) for n in (start, stop))
    return graph.add("Slice", value, begin, end, _axis(graph, axis))


def _axis(graph: Graph, axis: int) -> str:
    return graph.constant(f"axis_{axis}".replace("-", "last_"), np.array([axis]))


def _one_hot(graph: Graph, indices: str, depth: int) -> str:
    size = graph.constant(f"depth_{depth}", np.array([depth]))
    values = graph.constant("off_and_on", np.array([0.0, 1.0], np.float32))
    return graph.add("OneHot", indices, size, values, axis=-1)
