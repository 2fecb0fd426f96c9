/* Drawing on a canvas in the page's own colours. */

const colours = () => {
  const style = getComputedStyle(document.documentElement);
  return (name) => style.getPropertyValue(`--${name}`).trim();
};

/** A canvas as sharp as the screen, and the size of a CSS pixel in it. */
function prepare(canvas) {
  const ratio = window.devicePixelRatio || 1;
  const { clientWidth: width, clientHeight: height } = canvas;
  const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== w || canvas.height !== h) Object.assign(canvas, { width: w, height: h });
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  context.lineCap = context.lineJoin = "round";
  return { context, width, height };
}

function disc(context, [x, y], radius, { fill, stroke, width = 1.5, alpha = 1 }) {
  context.beginPath();
  context.arc(x, y, Math.max(radius, 0), 0, 2 * Math.PI);
  paint(context, { fill, stroke, width, alpha });
}

function ellipse(context, [x, y], [rx, ry], style) {
  context.beginPath();
  context.ellipse(x, y, rx, ry, 0, 0, 2 * Math.PI);
  paint(context, style);
}

function line(context, points, style) {
  context.beginPath();
  points.forEach(([x, y], i) => (i ? context.lineTo(x, y) : context.moveTo(x, y)));
  paint(context, style);
}

function paint(context, { fill, stroke, width = 1.5, alpha = 1, dash = [] }) {
  context.globalAlpha = alpha;
  if (fill) {
    context.fillStyle = fill;
    context.fill();
  }
  if (stroke) {
    context.strokeStyle = stroke;
    context.lineWidth = width;
    context.setLineDash(dash);
    context.stroke();
    context.setLineDash([]);
  }
  context.globalAlpha = 1;
}

function arrow(context, from, to, style) {
  const length = distance(from, to);
  if (length < 1) return disc(context, from, style.width, { fill: style.stroke });
  const [ux, uy] = [(to[0] - from[0]) / length, (to[1] - from[1]) / length];
  const head = Math.min(0.45 * length, 2 + 2.4 * style.width);
  const back = (side) => [
    to[0] - head * (ux - 0.6 * side * uy),
    to[1] - head * (uy + 0.6 * side * ux),
  ];
  line(context, [from, to], style);
  line(context, [back(1), to, back(-1)], style);
}

function cross(context, [x, y], size, style) {
  line(context, [[x - size, y], [x + size, y]], style);
  line(context, [[x, y - size], [x, y + size]], style);
}
