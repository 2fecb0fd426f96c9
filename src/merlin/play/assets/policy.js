/* The trained policy: normalise, embed the horizon, one ReLU network, a squashed mean, a deviation. */

const CLIP = 5;
const HORIZON_DIM = 32;
const MIN_STD = 1e-5;

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
  const observation = { mean: take(states), scale: take(states) };
  const goal = { mean: take(goals), scale: take(goals) };
  const centre = take(actions);
  const reach = take(actions);
  const layers = carried.sizes.slice(1).map((width, i) => ({
    weight: take(carried.sizes[i] * width),
    bias: take(width),
  }));
  const gaussian = carried.sizes.at(-1) === 2 * actions;

  function distribution(seen, wanted, horizon = carried.horizon) {
    let x = Float32Array.from([
      ...normalise(seen, observation),
      ...normalise(wanted, goal),
      ...(carried.horizon === null ? [] : embed(horizon, carried.maxPeriod)),
    ]);
    layers.forEach((layer, i) => {
      x = affine(layer, x);
      if (i < layers.length - 1) rectify(x);
    });
    const mean = Array.from(reach, (r, i) => Math.fround(centre[i] + r * Math.tanh(x[i])));
    const std = gaussian ? Array.from(reach, (_, i) => softplus(x[actions + i]) + MIN_STD) : null;
    return { mean, std };
  }

  return { ...carried, gaussian, distribution };
}

function normalise(x, { mean, scale }) {
  return Array.from(mean, (m, i) => {
    const z = Math.fround(Math.fround(x[i]) - m) * scale[i];
    return Math.min(CLIP, Math.max(-CLIP, z));
  });
}

function embed(horizon, maxPeriod) {
  const half = HORIZON_DIM / 2;
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

function softplus(x) {
  return Math.max(x, 0) + Math.log1p(Math.exp(-Math.abs(x)));
}
