/* The page: what its controls do, its keys, its clock. */

const STEPS_PER_SECOND = 6;
const NUDGE = 0.25;
const $ = (id) => document.getElementById(id);

const data = JSON.parse($("data").textContent);
const policies = data.policies.map((p) => (p.arena ? makePolicy(p) : p));
const calm = matchMedia("(prefers-reduced-motion: reduce)");
const live = makeLive($("canvas"), () => refresh());
const replay = makeReplay($("views"), () => refresh());

let current = 0;
let scene = null;
let playing = false;
let clock = null; // when the last step was taken
let waiting = false;

function select(index) {
  current = clamp(index, 0, policies.length - 1);
  const policy = policies[current];
  scene = policy.arena ? live : replay;
  for (const element of document.querySelectorAll("[data-for]")) {
    element.hidden = element.dataset.for !== scene.kind;
  }
  $("task").textContent = policy.task;
  $("about").textContent = policy.arena ? aboutLive(policy) : aboutRecorded(policy);
  scene.usePolicy(policy);
  $("policies").querySelectorAll("input")[current].checked = true;
  if (policy.arena) describeHorizon(policy);
  else listEpisodes();
  $("spread").disabled = !policy.gaussian;
  refresh();
}

const aboutLive = ({ gaussian }) =>
  "Place the goal and watch where the trained policy goes. Arrows show its " +
  (gaussian ? "mean action at each position, and the spots around their tips one standard deviation." : "action at each position.");

const aboutRecorded = ({ recorded }) =>
  `Recorded evaluation episodes of the trained policy, ${recorded.summary}.`;

function describeHorizon(policy) {
  const told = policy.horizon !== null;
  $("horizon").disabled = !told;
  $("horizon").max = policy.maxPeriod;
  $("horizon-hint").textContent = told
    ? `Number of steps in which the policy should reach the goal. It was evaluated with ${policy.horizon}.`
    : "This policy was trained without a horizon.";
}

function listPolicies() {
  policies.forEach((policy, index) => {
    const label = document.createElement("label");
    const input = Object.assign(document.createElement("input"), { type: "radio", name: "policy" });
    const words = document.createElement("span");
    const detail = document.createElement("small");
    detail.textContent = `${policy.algo} on ${policy.task}, seed ${policy.seed}`;
    words.append(policy.name, detail);
    label.className = "choice";
    label.append(input, words);
    input.addEventListener("change", () => select(index));
    $("policies").append(label);
  });
}

function listEpisodes() {
  const list = document.createElement("div");
  list.className = "episodes";
  for (let e = 0; e < replay.episodes(); e++) {
    const button = document.createElement("button");
    const success = replay.succeeded(e);
    button.type = "button";
    button.className = success ? "episode success" : "episode";
    button.textContent = e + 1;
    button.setAttribute("aria-label", `Episode ${e + 1}, ${success ? "success" : "failure"}`);
    button.addEventListener("click", () => replay.setEpisode(e));
    list.append(button);
  }
  $("episodes").replaceChildren($("episodes").querySelector("legend"), list);
}

/** Draw at the next frame, however often it was asked for until then. */
function refresh() {
  if (waiting || scene === null) return;
  waiting = true;
  requestAnimationFrame((now) => {
    waiting = false;
    if (playing) tick(now);
    scene.draw();
    describe();
    if (playing && (scene.going() || gliding(now))) refresh();
  });
}

const gliding = (now) => clock !== null && now - clock < 1000 / STEPS_PER_SECOND;

function tick(now) {
  clock ??= now - 1000 / STEPS_PER_SECOND;
  if (!gliding(now) && scene.going()) {
    scene.step();
    clock = now;
  }
  scene.glide(calm.matches ? 1 : ((now - clock) / 1000) * STEPS_PER_SECOND);
}

function describe() {
  const { text, kind } = scene.status();
  if ($("status").textContent !== text) $("status").textContent = text;
  $("status").className = `status ${kind}`;
  $("play").textContent = !scene.going() ? "Again" : playing ? "Pause" : "Play";
  if (scene === live) describeLive();
  else describeReplay();
}

function describeLive() {
  const told = live.horizon();
  $("horizon").value = told ?? 1;
  $("horizon-value").textContent = told === null ? "none" : told;
  const { toScreen } = live.scale();
  const words = (p) => p.map((x) => x.toFixed(1)).join(", ");
  for (const name of ["goal", "agent"]) {
    const handle = $(`${name}-handle`);
    const [x, y] = toScreen(live.world[name]);
    Object.assign(handle.style, { left: `${x}px`, top: `${y}px` });
    handle.setAttribute("aria-label", `The ${name} at ${words(live.world[name])}; arrow keys move it`);
  }
}

function describeReplay() {
  $("time").max = replay.length();
  $("time").value = replay.time();
  $("time-value").textContent = `${replay.time()} of ${replay.length()}`;
  $("episodes").querySelectorAll("button").forEach((button, e) => {
    button.setAttribute("aria-pressed", e === replay.episode());
  });
}

function setPlaying(on) {
  playing = on;
  clock = null;
  if (on && !scene.going()) scene.reset();
  if (!on) scene.glide(1);
  refresh();
}

const toggle = () => setPlaying(!(playing && scene.going()));

function stepOnce() {
  setPlaying(false);
  if (scene.kind === "live" || scene.going()) scene.step();
  scene.glide(1);
}

const place = (name, point) => (name === "goal" ? live.setGoal(point) : live.setAgent(point));
const mode = () => document.querySelector("input[name=mode]:checked").value;
const other = (name) => (name === "goal" ? "agent" : "goal");

/** Dragging: what lies under the pointer, or what the mode says; Shift means the other one. */
function listenToPointer(canvas) {
  let held = null;
  const at = (event) => {
    const { left, top } = canvas.getBoundingClientRect();
    return live.scale().toWorld([event.clientX - left, event.clientY - top]);
  };
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    const point = at(event);
    const onAgent = distance(point, live.world.agent) <= 0.6;
    held = onAgent ? "agent" : event.shiftKey ? other(mode()) : mode();
    canvas.setPointerCapture(event.pointerId);
    if (!onAgent) place(held, point);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (held) place(held, at(event));
  });
  for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, () => (held = null));
}

const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const element = event.target;
  const handle = element.classList.contains("handle") ? element.id.replace("-handle", "") : null;
  const busy = !handle && element.matches("input, select, summary");
  const arrow = ARROWS[event.key];
  if (arrow && !busy) nudge(handle ?? mode(), arrow, event.shiftKey);
  else if (event.key === " " && (handle || !element.matches("input, button, summary"))) toggle();
  else if (event.key.toLowerCase() === "n") stepOnce();
  else if (event.key.toLowerCase() === "r") scene.reset();
  else if (event.key.toLowerCase() === "s" && scene === live) live.shuffle();
  else if (/^[1-9]$/.test(event.key) && event.key <= policies.length) select(event.key - 1);
  else return;
  event.preventDefault();
}

function nudge(name, [dx, dy], far) {
  if (scene === replay) return replay.setTime(replay.time() + dx);
  const [x, y] = live.world[name];
  const by = far ? 4 * NUDGE : NUDGE;
  place(name, [x + by * dx, y + by * dy]);
}

$("play").addEventListener("click", toggle);
$("step").addEventListener("click", stepOnce);
$("reset").addEventListener("click", () => scene.reset());
$("shuffle").addEventListener("click", () => live.shuffle());
$("horizon").addEventListener("input", (event) => live.setHorizon(Number(event.target.value)));
$("time").addEventListener("input", (event) => replay.setTime(Number(event.target.value)));
for (const name of ["arrows", "spread"]) {
  $(name).addEventListener("change", (event) => {
    live.options[name] = event.target.checked;
    refresh();
  });
}
listenToPointer($("canvas"));
document.addEventListener("keydown", onKey);
new ResizeObserver(() => refresh()).observe(document.body);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => refresh());

listPolicies();
select(0);
if (!calm.matches) setPlaying(true);

/* For tests, and for the curious. */
window.merlin = {
  policies, live, replay, select,
  act: (...arguments_) => live.act(...arguments_),
  move: (position, action) => live.move(position, action),
  setGoal: (point) => live.setGoal(point),
  setAgent: (point) => live.setAgent(point),
  setHorizon: (steps) => live.setHorizon(steps),
  step: stepOnce,
  reset: () => scene.reset(),
  play: () => setPlaying(true),
  pause: () => setPlaying(false),
  state: () => ({ policy: current, playing, ...structuredClone(live.world), horizon: live.horizon() }),
};
