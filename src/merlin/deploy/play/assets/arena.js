/* The floor of the Point tasks: how a disc moves among walls. The rule of merlin.envs.point. */

const clamp = (x, low, high) => Math.min(high, Math.max(low, x));
const distance = (a, b) => Math.hypot(a[0] - b[0], a[1] - b[1]);

/** An obstacle is a wall as the centre of the disc meets it: [left, bottom, right, top]. */
function makeArena({ bound, gap, tolerance, radius, walls, obstacles }) {
  const inside = (p) => p.map((x) => clamp(x, -bound, bound));
  const within = (p, [left, bottom, right, top]) =>
    left < p[0] && p[0] < right && bottom < p[1] && p[1] < top;
  const isFree = (p) => !obstacles.some((wall) => within(p, wall));

  function move(position, action) {
    const proposal = position.map((x, i) => x + clamp(action[i], -1, 1));
    const touched = obstacles.some((wall) => overlaps(position, proposal, wall));
    return inside(touched ? slideAlongAll(position, proposal) : proposal);
  }

  function slideAlongAll(start, proposal) {
    const end = obstacles.reduce((e, wall) => slideAlong(start, e, wall), proposal);
    // A move stopped in both directions may owe that to the order: the opposite one counts.
    const stuck = end.every((x, i) => x !== proposal[i]);
    return stuck ? obstacles.reduceRight((e, wall) => slideAlong(start, e, wall), proposal) : end;
  }

  function slideAlong(start, end, wall) {
    const near = wall.slice(0, 2);
    const far = wall.slice(2);
    return end.map((x, axis) => {
      const across = 1 - axis;
      const low = Math.min(start[across], end[across]);
      const high = Math.max(start[across], end[across]);
      if (low > far[across] || high < near[across]) return x;
      if (start[axis] <= near[axis] && near[axis] <= x) return near[axis] - gap;
      if (start[axis] >= far[axis] && far[axis] >= x) return far[axis] + gap;
      return x;
    });
  }

  /** The free place nearest to a point: itself, or one just outside the walls that hold it. */
  function nearestFree(point) {
    const p = inside(point);
    if (isFree(p)) return p;
    const xs = [p[0], ...obstacles.flatMap(([left, , right]) => [left - gap, right + gap])];
    const ys = [p[1], ...obstacles.flatMap(([, bottom, , top]) => [bottom - gap, top + gap])];
    const places = xs.flatMap((x) => ys.map((y) => inside([x, y]))).filter(isFree);
    return places.reduce((a, b) => (distance(b, p) < distance(a, p) ? b : a));
  }

  return { bound, tolerance, radius, walls, obstacles, move, isFree, nearestFree };
}

function overlaps(start, end, [left, bottom, right, top]) {
  return !(
    Math.max(start[0], end[0]) < left ||
    Math.min(start[0], end[0]) > right ||
    Math.max(start[1], end[1]) < bottom ||
    Math.min(start[1], end[1]) > top
  );
}
