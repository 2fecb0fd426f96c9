/* Recorded episodes of any task: what was to be reached and what was, in one or two views. */

const MARGIN = { left: 46, right: 12, top: 12, bottom: 34 };

function makeReplay(holder, onChange) {
  let recorded = null;
  let episode = 0;
  let time = 0;
  let figures = [];

  function usePolicy(policy) {
    recorded = policy.recorded;
    episode = Math.min(episode, recorded.success.length - 1);
    time = 0;
    holder.replaceChildren(...recorded.views.map(makeFigure));
    figures = [...holder.querySelectorAll("canvas")];
    onChange();
  }

  function makeFigure(view) {
    const figure = document.createElement("figure");
    const canvas = document.createElement("canvas");
    const caption = document.createElement("figcaption");
    canvas.classList.toggle("wide", !view.plane);
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", `${view.title}: the way of the recorded episode and its goal`);
    caption.textContent = view.title;
    figure.append(canvas, caption);
    return figure;
  }

  const length = () => recorded.success[episode].length;
  const succeeded = (e) => recorded.success[e].at(-1);

  function step() {
    setTime(time + 1);
  }

  function setTime(next) {
    time = clamp(next, 0, length());
    onChange();
  }

  function setEpisode(next) {
    episode = clamp(next, 0, recorded.success.length - 1);
    setTime(0);
  }

  function draw() {
    figures.forEach((canvas, i) => drawView(canvas, recorded.views[i]));
  }

  function drawView(canvas, view) {
    const { context, width, height } = prepare(canvas);
    const colour = colours();
    const place = axes(context, colour, width, height, view);
    const goals = view.goals[episode];
    const paths = view.paths[episode];
    context.save();
    context.beginPath();
    context.rect(MARGIN.left, MARGIN.top, width - MARGIN.left - MARGIN.right, height - MARGIN.top - MARGIN.bottom);
    context.clip();
    view.walls.forEach((wall) => drawWall(context, colour, place, wall));
    if (recorded.map) drawMap(context, colour, place, view);
    goals.forEach((goal) => drawGoal(context, colour, place, goal, view));
    paths.forEach((path) => drawPath(context, colour, place, path));
    context.restore();
  }

  function drawWall(context, colour, place, [left, bottom, right, top]) {
    const [x, y] = place([left, top]);
    const [end, floor] = place([right, bottom]);
    context.fillStyle = colour("wall");
    context.fillRect(x, y, end - x, floor - y);
  }

  /** A frame with the ranges of both axes; planes are drawn to scale. */
  function axes(context, colour, width, height, view) {
    const room = [width - MARGIN.left - MARGIN.right, height - MARGIN.top - MARGIN.bottom];
    const { low, high } = view;
    const spans = [0, 1].map((i) => high[i] - low[i]);
    let units = spans.map((span, i) => room[i] / span);
    if (view.plane) units = units.map(() => Math.min(...units));
    const pads = spans.map((span, i) => (room[i] - span * units[i]) / 2);
    const place = ([x, y]) => [
      MARGIN.left + pads[0] + (x - low[0]) * units[0],
      MARGIN.top + room[1] - pads[1] - (y - low[1]) * units[1],
    ];
    context.fillStyle = colour("floor");
    context.fillRect(MARGIN.left, MARGIN.top, ...room);
    context.strokeStyle = colour("rule");
    context.lineWidth = 1;
    context.strokeRect(MARGIN.left, MARGIN.top, ...room);
    context.fillStyle = colour("soft");
    context.font = "12px system-ui, sans-serif";
    const label = (value, i, align) => {
      const [x, y] = place(i === 0 ? [value, low[1]] : [low[0], value]);
      context.textAlign = i === 0 ? align : "right";
      context.textBaseline = "middle";
      context.fillText(value.toFixed(view.digits[i]), i === 0 ? x : MARGIN.left - 6, i === 0 ? height - 22 : y);
    };
    [0, 1].forEach((i) => {
      label(low[i], i, "left");
      label(high[i], i, "right");
    });
    context.textAlign = "center";
    context.fillText(view.labels[0], MARGIN.left + room[0] / 2, height - 10);
    context.save();
    context.translate(12, MARGIN.top + room[1] / 2);
    context.rotate(-Math.PI / 2);
    context.fillText(view.labels[1], 0, 0);
    context.restore();
    return Object.assign(place, { unit: units[1] });
  }

  function drawGoal(context, colour, place, goal, view) {
    const style = { stroke: colour("goal-ink"), width: 2 };
    if (!view.plane) {
      const band = view.tolerance ?? 0;
      const corner = place([view.low[0], goal[1] + band]);
      context.globalAlpha = 0.25;
      context.fillStyle = colour("goal");
      context.fillRect(...corner, place([view.high[0], 0])[0] - corner[0], 2 * band * place.unit);
      context.globalAlpha = 1;
      line(context, [place([view.low[0], goal[1]]), place([view.high[0], goal[1]])], style);
      return;
    }
    if (view.tolerance) {
      disc(context, place(goal), view.tolerance * place.unit, { fill: colour("goal"), alpha: 0.25 });
      disc(context, place(goal), view.tolerance * place.unit, style);
    }
    cross(context, place(goal), 6, { ...style, width: 2.5 });
  }

  /** Places and passages; and from where the agent is, the waypoints to the goal. */
  function drawMap(context, colour, place, view) {
    const points = view.places.map(place);
    recorded.map.edges.forEach(([i, j]) =>
      line(context, [points[i], points[j]], { stroke: colour("wall"), width: 0.75, alpha: 0.45 }));
    points.forEach((point) => disc(context, point, 1.5, { fill: colour("wall") }));
    const way = waypoints();
    const route = [place(view.paths[episode][0][time]), ...way.map((i) => points[i]), place(view.goals[episode][0])];
    line(context, route, { stroke: colour("spread"), width: 2.5, dash: [6, 5] });
    way.forEach((i) => disc(context, points[i], 4, { fill: colour("spread"), stroke: colour("paper"), width: 1.5 }));
  }

  /** The places that the policy would head for one after the other; none if the goal is near. */
  function waypoints() {
    const next = recorded.map.next[episode];
    const found = [];
    let here = next[recorded.map.at[episode][time]];
    while (here >= 0 && !found.includes(here)) {
      found.push(here);
      here = next[here];
    }
    return found;
  }

  function drawPath(context, colour, place, path) {
    const points = path.map(place);
    line(context, points, { stroke: colour("agent"), width: 1.5, alpha: 0.25 });
    line(context, points.slice(0, time + 1), { stroke: colour("agent"), width: 2.5 });
    disc(context, points[0], 3.5, { stroke: colour("agent"), fill: colour("paper"), width: 2 });
    disc(context, points[time], 6.5, { fill: colour("agent"), stroke: colour("paper"), width: 2 });
  }

  function status() {
    const step = `Step ${time} of ${length()}`;
    if (time > 0 && recorded.success[episode][time - 1]) return { text: `${step}, at the goal`, kind: "good" };
    if (time === length()) return { text: `${step}, not at the goal`, kind: "bad" };
    return { text: step, kind: "" };
  }

  return {
    kind: "replay", usePolicy, step, draw, status, setTime, setEpisode, succeeded,
    reset: () => setTime(0),
    glide: () => {},
    waypoints: () => (recorded.map ? waypoints() : []),
    going: () => time < length(),
    episodes: () => recorded.success.length,
    episode: () => episode,
    time: () => time,
    length,
  };
}
