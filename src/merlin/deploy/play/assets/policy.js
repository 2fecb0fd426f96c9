/* The trained policy: normalise, embed the horizon, one network or two, a mean, a deviation. */

/** Base64 of little-endian float32, as all browsers' machines are. */
function decode(text) {
  return new Float32Array(Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer);
}

/** From what the page carries to something that acts. */
function makePolicy(carried) {
  const numbers = decode(carried.weights);
  let at = 0;
  const take = (count) => numbers.subarray(at, (at += count));
  const [states, goals, actions] = carried.dimensions;
  const observation = { mean: take(states), scale: take(states), limit: take(states) };
  const goal = { mean: take(goals), scale: take(goals), limit: take(goals) };
  const centre = take(actions);
  const reach = take(actions);
  const network = (sizes) => sizes.slice(1).map((width, i) => ({
    weight: take(sizes[i] * width),
    bias: take(width),
  }));
  const layers = network(carried.sizes);
  const low = network(carried.lowSizes);
  const gaussian = !low.length && carried.sizes.at(-1) === 2 * actions;
  const activate = carried.activation === "gelu" ? gelu : rectify;
  const squash = carried.squash === "clip" ? (v) => Math.min(1, Math.max(-1, v)) : Math.tanh;

  function run(layers, inputs) {
    let x = Float32Array.from(inputs);
    layers.forEach((layer, i) => {
      x = affine(layer, x);
      if (i < layers.length - 1) activate(x);
    });
    return x;
  }

  function distribution(seen, wanted, horizon = carried.horizon) {
    const state = normalise(seen, observation);
    let x = run(layers, [
      ...state,
      ...normalise(wanted, goal),
      ...(carried.horizon === null ? [] : embed(horizon, carried)),
    ]);
    if (low.length) x = run(low, [...state, ...direction(x)]);
    const mean = Array.from(reach, (r, i) => Math.fround(centre[i] + r * squash(x[i])));
    const std = gaussian ? Array.from(reach, (_, i) => softplus(x[actions + i]) + carried.minStd) : null;
    return { mean, std };
  }

  return { ...carried, gaussian, distribution };
}

function normalise(x, { mean, scale, limit }) {
  return Array.from(mean, (m, i) => {
    const z = Math.fround(Math.fround(x[i]) - m) * scale[i];
    return Math.min(limit[i], Math.max(-limit[i], z));
  });
}

function embed(horizon, { maxPeriod, horizonDim }) {
  const half = horizonDim / 2;
  const angles = Array.from({ length: half }, (_, k) =>
    Math.fround(horizon * Math.fround(maxPeriod ** (-k / half))),
  );
  return [...angles.map(Math.cos), ...angles.map(Math.sin)];
}

/** x @ weight + bias, row by row: half of the inputs are zeros behind a ReLU, and cost nothing. */
function affine({ weight, bias }, x) {
  const out = Float32Array.from(bias);
  const width = out.length;
  for (let i = 0; i < x.length; i++) {
    const value = x[i];
    if (value === 0) continue;
    for (let j = 0, w = i * width; j < width; j++, w++) out[j] += value * weight[w];
  }
  return out;
}

function rectify(x) {
  for (let i = 0; i < x.length; i++) if (x[i] < 0) x[i] = 0;
}

function gelu(x) {
  for (let i = 0; i < x.length; i++) {
    const inner = Math.sqrt(2 / Math.PI) * (x[i] + 0.044715 * x[i] ** 3);
    x[i] *= 0.5 * (1 + Math.tanh(inner));
  }
}

/** What the upper of two levels says, as the lower one is told it. */
function direction(x) {
  const length = Math.max(Math.hypot(...x), 1e-12);
  return Array.from(x, (v) => (v / length) * Math.sqrt(x.length));
}

function softplus(x) {
  return Math.max(x, 0) + Math.log1p(Math.exp(-Math.abs(x)));
}
