/* A 2-D task, live: an agent, a goal, and where the policy would go from everywhere. */

const VIEW = 5.55;
const PATIENCE = 50;

function makeLive(canvas, onChange) {
  const world = { agent: [-3, -3], start: [-3, -3], goal: [3.5, -2.5], trail: [], steps: 0 };
  const options = { arrows: true, spread: true };
  let policy = null;
  let arena = null;
  let chosen = null; // horizon, once somebody has moved the slider
  let field = null;
  let shownAgent = null;

  function usePolicy(next) {
    policy = next;
    arena = makeArena(next.arena);
    world.goal = arena.nearestFree(world.goal);
    setAgent(world.start);
  }

  const reached = () => distance(world.agent, world.goal) <= arena.tolerance;
  const patient = () => world.steps < (policy.episodeSteps ?? PATIENCE);
  const horizon = () =>
    policy === null || policy.horizon === null ? null : Math.min(chosen ?? policy.horizon, policy.maxPeriod);
  const act = (seen, wanted, h = horizon()) => policy.distribution(seen, wanted, h);

  function step() {
    const { mean } = act(world.agent, world.goal);
    world.trail.push(world.agent);
    world.agent = arena.move(world.agent, mean);
    world.steps += 1;
    onChange();
  }

  function setGoal(point) {
    world.goal = arena.nearestFree(point);
    world.steps = 0;
    forget();
  }

  function setAgent(point) {
    world.start = arena.nearestFree(point);
    reset();
  }

  function setHorizon(steps) {
    chosen = clamp(Math.round(steps), 1, policy.maxPeriod);
    world.steps = 0;
    forget();
  }

  function reset() {
    world.agent = shownAgent = world.start;
    world.trail = [];
    world.steps = 0;
    forget();
  }

  function shuffle() {
    const place = () => [0, 1].map(() => (2 * Math.random() - 1) * arena.bound);
    world.goal = arena.nearestFree(place());
    setAgent(place());
  }

  /** What is drawn of the policy depends on goal and horizon; it is computed when it is drawn. */
  function forget() {
    field = null;
    onChange();
  }

  function computeField(count) {
    const ticks = Array.from({ length: count }, (_, i) => arena.bound * ((2 * i + 1) / count - 1));
    const places = ticks.flatMap((y) => ticks.map((x) => [x, y])).filter(arena.isFree);
    const found = places.map((place) => ({ place, ...act(place, world.goal) }));
    // Timid policies are drawn larger: the longest arrow, or the widest spot, fills its cell.
    const largest = Math.max(...found.flatMap(({ mean, std }) => [Math.hypot(...mean) / Math.SQRT2, ...(std ?? [])]));
    return Object.assign(found, { count, zoom: 1 / Math.max(largest, 0.25) });
  }

  function scale() {
    const size = canvas.clientWidth;
    const unit = size / (2 * VIEW);
    return {
      unit,
      toScreen: ([x, y]) => [(x + VIEW) * unit, (VIEW - y) * unit],
      toWorld: ([x, y]) => [x / unit - VIEW, VIEW - y / unit],
    };
  }

  /** Where the agent is seen: on its way between two steps while it walks. */
  function glide(share) {
    const from = world.trail.at(-1);
    shownAgent = !from || share >= 1 ? world.agent : from.map((x, i) => x + share * (world.agent[i] - x));
  }

  function draw() {
    const { context, width } = prepare(canvas);
    const colour = colours();
    const { unit, toScreen } = scale();
    const count = width < 420 ? 13 : 17;
    if ((options.arrows || options.spread) && field?.count !== count) {
      field = computeField(count);
    }
    drawFloor(context, colour, unit, toScreen);
    disc(context, toScreen(world.goal), arena.tolerance * unit, {
      fill: colour("goal"), stroke: colour("goal-ink"), alpha: 0.28,
    });
    if (field) drawField(context, colour, unit, toScreen, count);
    drawWalls(context, colour, unit, toScreen);
    drawTrail(context, colour, toScreen);
    disc(context, toScreen(world.goal), arena.tolerance * unit, { stroke: colour("goal-ink"), width: 2 });
    cross(context, toScreen(world.goal), 7, { stroke: colour("goal-ink"), width: 2.5 });
    const at = toScreen(shownAgent);
    disc(context, at, arena.radius * unit, { fill: colour("agent"), stroke: colour("paper"), width: 2 });
    if (reached()) tick(context, at, arena.radius * unit, colour("on-agent"));
  }

  function drawFloor(context, colour, unit, toScreen) {
    const [left, top] = toScreen([-arena.bound, arena.bound]);
    context.fillStyle = colour("floor");
    context.fillRect(left, top, 2 * arena.bound * unit, 2 * arena.bound * unit);
    arena.obstacles.forEach((wall) => box(context, wall, colour("shade"), unit, toScreen));
    context.strokeStyle = colour("rule");
    context.lineWidth = 1;
    context.strokeRect(left, top, 2 * arena.bound * unit, 2 * arena.bound * unit);
  }

  const drawWalls = (context, colour, unit, toScreen) =>
    arena.walls.forEach((wall) => box(context, wall, colour("wall"), unit, toScreen));

  function box(context, [left, bottom, right, top], fill, unit, toScreen) {
    const edge = VIEW;
    const [l, b, r, t] = [left, bottom, right, top].map((x) => clamp(x, -edge, edge));
    const [x, y] = toScreen([l, t]);
    context.fillStyle = fill;
    context.fillRect(x, y, (r - l) * unit, (t - b) * unit);
  }

  function drawField(context, colour, unit, toScreen, count) {
    const cell = (2 * arena.bound * unit) / count;
    const length = 0.46 * cell * field.zoom;
    const line = Math.max(1.1, cell / 24);
    for (const { place, mean, std } of field) {
      const from = toScreen(place);
      const base = [from[0] - 0.5 * mean[0] * length, from[1] + 0.5 * mean[1] * length];
      const tip = [from[0] + 0.5 * mean[0] * length, from[1] - 0.5 * mean[1] * length];
      if (options.spread && std) {
        ellipse(context, tip, std.map((s) => s * length), { fill: colour("spread"), alpha: 0.3 });
      }
      if (options.arrows) arrow(context, base, tip, { stroke: colour("arrow"), width: line });
    }
  }

  function drawTrail(context, colour, toScreen) {
    const points = [...world.trail, shownAgent].map(toScreen);
    line(context, points, { stroke: colour("paper"), width: 5, alpha: 0.8 });
    line(context, points, { stroke: colour("agent"), width: 2.5 });
    points.slice(0, -1).forEach((p) => disc(context, p, 3, { fill: colour("agent") }));
  }

  function tick(context, [x, y], radius, stroke) {
    const r = 0.5 * radius;
    line(context, [[x - r, y], [x - 0.25 * r, y + 0.75 * r], [x + r, y - 0.7 * r]], { stroke, width: 3 });
  }

  function status() {
    const left = distance(world.agent, world.goal);
    const steps = `${world.steps} step${world.steps === 1 ? "" : "s"}`;
    if (reached()) return { text: `Reached after ${steps}`, kind: "good" };
    if (!patient()) return { text: `Not reached within ${steps}`, kind: "bad" };
    return { text: `${steps}, ${left.toFixed(1)} from the goal`, kind: "" };
  }

  return {
    kind: "live", world, options, usePolicy, act, step, setGoal, setAgent, setHorizon, reset, shuffle,
    draw, glide, scale, status, reached,
    going: () => !reached() && patient(),
    move: (position, action) => arena.move(position, action),
    nearestFree: (point) => arena.nearestFree(point),
    horizon,
  };
}
