// What the ids of tables look like: a list of tables, and the curves of one of them.
const WIDTH = 320;
const HEIGHT = 170;
const LEFT = 40;
const RIGHT = 24;
const BOTTOM = 22;

const formatLarge = (value) => {
  for (const [size, unit] of [[1e9, "B"], [1e6, "M"], [1e3, "k"]]) {
    if (value >= size) return `${Number((value / size).toPrecision(3))}${unit}`;
  }
  return String(Number(value.toPrecision(3)));
};

// Powers of ten between two numbers, few of them.
function logTicks(low, high) {
  const first = Math.ceil(Math.log10(low) - 1e-9);
  const last = Math.floor(Math.log10(high) + 1e-9);
  const step = Math.max(1, Math.ceil((last - first + 1) / 5));
  const ticks = [];
  for (let power = first; power <= last; power += step) ticks.push(10 ** power);
  return ticks;
}

// A chart of points [x, y], with x on a logarithmic scale unless it is linear.
function chart(points, { most, format, linear, label }) {
  const root = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label });
  const [low, high] = [points[0][0], points.at(-1)[0]];
  const scale = linear ? (x) => x : Math.log;
  const span = scale(high) - scale(low) || 1;
  const across = (x) => LEFT + ((WIDTH - LEFT - RIGHT) * (scale(x) - scale(low))) / span;
  const up = (y) => 12 + (HEIGHT - 12 - BOTTOM) * (1 - y / (most || 1));
  for (const part of [0, 0.25, 0.5, 0.75, 1]) {
    const y = up(part * most);
    root.append(svg("line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: y, y2: y }));
    root.append(svg("text", { x: LEFT - 6, y: y + 4, "text-anchor": "end" }, format(part * most)));
  }
  for (const tick of linear ? [0.25, 0.5, 0.75, 1] : logTicks(low, high)) {
    const words = linear ? `${100 * tick} %` : formatLarge(tick);
    root.append(svg("text", { x: across(tick), y: HEIGHT - 6, "text-anchor": "middle" }, words));
  }
  root.append(svg("path", { class: "curve", d: line(points, across, up) }));
  for (const [x, y] of points) {
    const words = `${linear ? `${100 * x} %` : formatLarge(x)}: ${format(y)}`;
    const point = svg("circle", { class: "point", cx: across(x), cy: up(y), r: 2.5 });
    point.append(svg("title", {}, words));
    root.append(point);
  }
  return root;
}

const line = (points, across, up) =>
  points.map(([x, y], i) => `${i ? "L" : "M"}${across(x).toFixed(1)} ${up(y).toFixed(1)}`).join("");

const percent = (value) => `${Number((100 * value).toPrecision(3))} %`;

function show(table) {
  byId("chosen").textContent = table.name;
  byId("table").value = String(data.tables.indexOf(table));
  const share = { most: 1, format: percent };
  const draw = (id, points, settings) =>
    byId(id).replaceChildren(points.length ? chart(points, settings) : "not known");
  draw("unique", table.by_ranks, { ...share, label: "Share of distinct ids by ranks" });
  draw("misses", table.misses, { ...share, label: "Share of misses by rows of the cache" });
  draw("hottest", table.hottest, { ...share, label: "Share of ids by rows" });
  const most = largest(table.pooling_quantiles.map(([, ids]) => ids)) || 1;
  const pooling = { most, format: formatLarge, linear: true, label: "Ids per sample by quantile" };
  draw("pooling", table.pooling_quantiles, pooling);
}

function spark(points) {
  const root = svg("svg", { class: "spark", viewBox: "0 0 72 18", "aria-hidden": "true" });
  const last = Math.log(points.at(-1)[0]) || 1;
  const across = (x) => 1 + (70 * Math.log(x)) / last;
  root.append(svg("path", { d: line(points, across, (y) => 17 - 16 * y) }));
  return root;
}

const fields = [
  column("Table", "name", (table) => table.name, (table) =>
    button(table.name, () => {
      show(table);
      byId("curves-title").scrollIntoView();
    })),
  column("Ids", "num", (table) => table.ids, (table) => formatLarge(table.ids)),
  column("Distinct", "num", (table) => table.distinct, (table) => formatLarge(table.distinct)),
  column("Pooling", "num", (table) => table.pooling, (table) => formatLarge(table.pooling)),
  column("In a batch", "num", (table) => table.unique, (table) => percent(table.unique)),
  column("Misses, 1 %", "num", (table) => table.miss1, (table) => percent(table.miss1)),
  column("Misses, 10 %", "num", (table) => table.miss10, (table) => percent(table.miss10)),
  column("Zipf", "num", (table) => table.zipf, (table) =>
    orDash(table.zipf, (zipf) => `${zipf.toFixed(2)} ± ${table.zipf_error.toFixed(2)}`)),
  column("Followed", "num", (table) => table.followed, (table) =>
    orDash(table.followed, percent)),
  column("Misses by rows", "num", (table) => table.miss10, (table) => spark(table.misses)),
];
const list = new List(byId("table-list"), fields, data.tables, [1, true], FIRST_ROWS);
const update = () => {
  const wanted = byId("filter-text").value.trim().toLowerCase();
  list.keep = (table) => table.name.toLowerCase().includes(wanted);
  list.show();
  byId("table-count").textContent =
    `${formatCount(list.shown.length)} of ${formatCount(data.tables.length)}`;
};
byId("filter-text").oninput = update;
byId("table").replaceChildren(
  ...data.tables.map((table, i) => el("option", { value: i }, table.name)));
byId("table").onchange = (event) => show(data.tables[Number(event.target.value)]);
update();
show(list.shown[0]);
