// Charts of a sweep: cells as points, lines through the sizes of one cluster.
const HEIGHT = 270;
const EDGE = { left: 70, right: 16, top: 14, bottom: 34 };
const SHAPES = ["circle", "square", "triangle", "diamond"];
const DASHES = [null, "6 4", "2 3", "9 3 2 3"];
const COLOURS = 8;

const smallest = (values) => values.reduce((a, b) => Math.min(a, b), Infinity);

// A logarithmic axis with a margin, or one with the same place for all if there is one value.
function axisOf(values, begin, end, margin) {
  const [low, high] = [Math.log(smallest(values)), Math.log(largest(values))];
  const room = Math.max(margin * (high - low), 0.08);
  const at = (value) =>
    begin + ((end - begin) * (Math.log(value) - low + room)) / (high - low + 2 * room);
  return { at, low: Math.exp(low - room), high: Math.exp(high + room) };
}

// Round values between two limits, at most so many.
function roundTicks({ low: first, high: last }, most) {
  for (const steps of [[1, 2, 5], [1, 3], [1]]) {
    const ticks = [];
    for (let power = Math.floor(Math.log10(first)); power <= Math.log10(last); power += 1) {
      ticks.push(...steps.map((step) => step * 10 ** power));
    }
    const inside = ticks.filter((tick) => tick >= first && tick <= last);
    if (inside.length >= 3 && inside.length <= most) return inside;
  }
  const power = 10 ** Math.floor(Math.log10(last - first));
  const step = [0.1, 0.2, 0.5, 1, 2, 5, 10].map((s) => s * power)
    .find((s) => (last - first) / s <= most);
  const ticks = [];
  for (let i = Math.max(1, Math.ceil(first / step)); i * step <= last; i += 1) {
    ticks.push(Number((i * step).toPrecision(6)));
  }
  return ticks;
}

// Round sizes between two limits with their texts: powers of two, or steps in one unit.
function byteTicks({ low, high }, most) {
  const ticks = [];
  const step = Math.ceil(Math.log2(high / low) / most);
  if (high / low >= 8) {
    for (let power = Math.ceil(Math.log2(low)); 2 ** power <= high; power += step) ticks.push(2 ** power);
    return ticks.map((tick) => [tick, formatBytes(tick).replace(".0 ", " ")]);
  }
  const unit = 1024 ** Math.floor(Math.log2(low) / 10);
  const name = formatBytes(unit).split(" ")[1];
  return roundTicks({ low: low / unit, high: high / unit }, most)
    .map((tick) => [tick * unit, `${formatCount(tick)} ${name}`]);
}

// The values whose labels have room beside each other.
function spacedTicks(labels, at, room) {
  let last = -Infinity;
  return labels.filter(([value]) => {
    if (at(value) - last < room) return false;
    last = at(value);
    return true;
  });
}

function mark(shape, x, y, size, attributes) {
  if (shape === "circle") return svg("circle", { cx: x, cy: y, r: size, ...attributes });
  const ends = {
    square: [[-1, -1], [1, -1], [1, 1], [-1, 1]],
    triangle: [[0, -1.2], [1.2, 1], [-1.2, 1]],
    diamond: [[0, -1.4], [1.4, 0], [0, 1.4], [-1.4, 0]],
  }[shape];
  const points = ends.map(([a, b]) => `${x + 0.95 * a * size},${y + 0.95 * b * size}`).join(" ");
  return svg("polygon", { points, ...attributes });
}

const pathOf = (points) =>
  points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");

// Cells that no other one beats in both: from left to right, each is faster than all before it.
function frontier(cells, across) {
  let best = Infinity;
  return [...cells]
    .sort((a, b) => across(a) - across(b) || a.time - b.time)
    .filter((cell) => cell.time < best && ((best = cell.time), true));
}

// A chart of the time by another figure. One Tab stop; the arrow keys go through its cells.
class CellChart {
  constructor(host, { across, label, format, bytes, ticks, lines }) {
    Object.assign(this, { host, across, label, format, bytes, ticks, lines });
    this.cells = [];
    host.className = "chart";
    host.addEventListener("keydown", (event) => this.key(event));
  }

  key(event) {
    const step = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 }[event.key];
    const ends = { Home: 0, End: this.cells.length - 1 };
    if ((step === undefined && !(event.key in ends)) || !this.cells.length) return;
    event.preventDefault();
    const at = this.cells.indexOf(this.chosen);
    const next = step === undefined ? ends[event.key] : at < 0 ? 0 : at + step;
    this.choose(this.cells[Math.max(0, Math.min(this.cells.length - 1, next))]);
  }

  // Draws the cells. `style` has colour and shape of a cell, `choose` is called with one.
  draw(series, { style, choose, chosen, words }) {
    Object.assign(this, { choose, chosen });
    const { across } = this;
    const drawn = (cell) => cell.time > 0 && across(cell) > 0;
    const cells = series.flat().filter(drawn);
    this.cells = [...cells].sort((a, b) => across(a) - across(b) || a.time - b.time);
    if (!cells.length) {
      for (const name of ["tabindex", "role", "aria-label"]) this.host.removeAttribute(name);
      this.host.replaceChildren(el("p", { class: "quiet" }, this.missing || "None fits."));
      return;
    }
    const width = Math.max(280, this.host.clientWidth);
    const root = svg("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, "aria-hidden": "true" });
    const bottom = HEIGHT - EDGE.bottom;
    // Cells that don't fit have a place by ranks, too.
    const misfits = this.ticks ? series.flat().filter((cell) => cell.fits === false) : [];
    const wide = [...cells, ...misfits].map(across);
    const x = axisOf(wide, EDGE.left, width - EDGE.right, 0.04);
    const y = axisOf(cells.map((cell) => cell.time), bottom - (misfits.length ? 16 : 0), EDGE.top, 0.06);
    this.grid(root, x, y, width, bottom, wide);
    for (const own of this.lines ? series : []) {
      const points = own.filter(drawn).map((cell) => [x.at(across(cell)), y.at(cell.time)]);
      const { colour, dash } = style(own[0]);
      root.append(svg("path", { class: `line s${colour}`, d: pathOf(points), "stroke-dasharray": dash }));
    }
    if (this.best) {
      const points = frontier(cells, across).map((cell) => [x.at(across(cell)), y.at(cell.time)]);
      root.append(svg("path", { class: "frontier", d: pathOf(points) }));
    }
    for (const cell of misfits) {
      const [at, low] = [x.at(across(cell)), bottom - 8];
      const d = `M${at - 4} ${low - 4}l8 8m0 -8l-8 8`;
      root.append(this.point(svg("path", { class: "misfit", d }), cell, words));
    }
    for (const cell of cells) {
      const { colour, shape } = style(cell);
      const made = mark(shape, x.at(across(cell)), y.at(cell.time), cell === chosen ? 6 : 4.5, {
        class: `point s${colour}${cell === chosen ? " chosen" : ""}`,
      });
      root.append(this.point(made, cell, words));
    }
    this.describe(words);
    this.host.replaceChildren(root);
  }

  point(made, cell, words) {
    made.append(svg("title", {}, words(cell)));
    made.addEventListener("click", () => this.choose(cell));
    return made;
  }

  describe(words) {
    const at = this.cells.indexOf(this.chosen);
    const facts = { tabindex: 0, role: "slider", "aria-label": this.label, "aria-valuemin": 1,
      "aria-valuemax": this.cells.length, "aria-valuenow": Math.max(0, at) + 1,
      "aria-valuetext": at < 0 ? "no cell" : words(this.chosen) };
    for (const [name, value] of Object.entries(facts)) this.host.setAttribute(name, value);
  }

  grid(root, x, y, width, bottom, wide) {
    for (const tick of roundTicks(y, 7)) {
      const at = y.at(tick);
      root.append(svg("line", { class: "grid", x1: EDGE.left, x2: width - EDGE.right, y1: at, y2: at }));
      root.append(svg("text", { x: EDGE.left - 8, y: at + 4, "text-anchor": "end" }, shortMs(tick)));
    }
    for (const [tick, words] of spacedTicks(this.labels(x, width, wide), x.at, this.ticks ? 34 : 60)) {
      const at = x.at(tick);
      root.append(svg("line", { class: "grid", x1: at, x2: at, y1: EDGE.top, y2: bottom }));
      const fits = at + 3.6 * words.length < width;  // half of its letters
      const [anchor, to] = fits ? ["middle", at] : ["end", width];
      const place = { x: to, y: bottom + 20, "text-anchor": anchor };
      root.append(svg("text", place, words));
    }
  }

  labels(x, width, wide) {
    const most = Math.floor((width - EDGE.left) / 70);
    if (this.bytes) return byteTicks(x, most);
    const values = this.ticks ? [...new Set(wide)].sort((a, b) => a - b) : roundTicks(x, most);
    return values.map((value) => [value, this.format(value)]);
  }
}

// Milliseconds of a tick, without digits that say nothing.
const shortMs = (value) => {
  if (value >= 10000) return `${formatCount(Number((value / 1000).toPrecision(3)))} s`;
  return value < 0.01 ? `${Number((1000 * value).toPrecision(3))} µs` : `${Number(value.toPrecision(3))} ms`;
};
