// A sweep: filters, the grid of cells that fit, charts, the list, and the plan of one cell.
const AXES = [["model", "Model"], ["sku", "SKU"], ["precision", "Precision"], ["batch", "Batch"]];
const PLURALS = { model: "models", sku: "SKUs", precision: "precisions", batch: "batches" };
const cells = data.cells;
const valuesOf = (some, name) => [...new Set(some.map((cell) => cell[name]))];
const varying = AXES.filter(([name]) => valuesOf(cells, name).length > 1);
const isStep = data.measure === "step";
const measureName = isStep ? "Step" : "Rating";
const valueText = (name, value) => (name === "batch" ? `batch ${formatCount(value)}` : value);
const price = (value) => {
  const digits = value < 1000 ? 2 : 0;
  const both = { minimumFractionDigits: digits, maximumFractionDigits: digits };
  return value.toLocaleString("en-US", both);
};
const clusterOf = (cell) => `${formatCount(cell.world_size)} x ${cell.sku}`;
const fitText = (cell) =>
  cell.fits === null ? "failed" : cell.fits ? formatMs(cell.time) : shortageText(cell);
const shortageText = (cell) =>
  cell.headroom_bytes === null ? "does not fit" : `lacks ${formatBytes(-cell.headroom_bytes)}`;

function nameOf(cell) {
  const others = varying.map(([name]) => name).filter((name) => name !== "sku");
  return [clusterOf(cell), ...others.map((name) => valueText(name, cell[name]))].join(", ");
}
const words = (cell) => `${nameOf(cell)}: ${fitText(cell)}`;

// Cells of one model, SKU, precision and batch, by ranks.
function seriesOf(some) {
  const found = new Map();
  for (const cell of some) {
    const key = AXES.map(([name]) => cell[name]).join("\n");
    if (!found.has(key)) found.set(key, []);
    found.get(key).push(cell);
  }
  return [...found.values()].map((own) => own.sort((a, b) => a.world_size - b.world_size));
}

let chosen = null;
let shown = cells;
const filters = { selects: [] };

function buildFilters() {
  const add = (...parts) => byId("filters").append(...parts);
  filters.text = el("input", { type: "search", id: "filter-text", placeholder: "Name or expression",
    "aria-label": "Filter by a regular expression for model, SKU and precision" });
  filters.text.oninput = update;
  add(filters.text);
  for (const [name, title] of varying) {
    const values = valuesOf(cells, name);
    const box = el("select", { "data-name": name, "aria-label": title });
    box.append(el("option", { value: "" }, `All ${PLURALS[name]}`));
    values.forEach((value, i) => box.append(el("option", { value: i }, valueText(name, value))));
    // Times of different models or batches don't compare.
    if (name === "model" || name === "batch") box.value = "0";
    box.onchange = update;
    filters.selects.push([name, values, box]);
    add(box);
  }
  for (const [id, title] of [["least", "Ranks from"], ["most", "Ranks to"]]) {
    filters[id] = el("input", { type: "number", min: 1, id: `ranks-${id}`, placeholder: title,
      "aria-label": title });
    filters[id].oninput = update;
    add(filters[id]);
  }
  filters.size = sizeField("Filter by memory on all ranks", update);
  filters.size.placeholder = "Memory, as <1TiB";
  filters.size.id = "filter-size";
  const only = el("input", { type: "checkbox", id: "only-fit" });
  only.onchange = update;
  filters.only = only;
  add(filters.size, el("label", {}, only, " only cells that fit"));
}

function filtered() {
  const [name, size] = [nameFilter(filters.text), sizeFilter(filters.size)];
  const least = filters.least.value === "" ? 0 : Number(filters.least.value);
  const most = filters.most.value === "" ? Infinity : Number(filters.most.value);
  return cells.filter((cell) =>
    filters.selects.every(([field, values, box]) =>
      box.value === "" || cell[field] === values[Number(box.value)]) &&
    name(`${cell.model} ${cell.sku} ${cell.precision}`) && size(cell.memory) &&
    cell.world_size >= least && cell.world_size <= most && (!filters.only.checked || cell.fits));
}

// The grid: a row for each series, a column for each number of ranks.
const MOST_SERIES = 60;

function gridButton(cell, tint) {
  const made = button("", () => choose(cell, true));
  made.className = cell.fits ? "fits" : cell.fits === null ? "failed" : "misfit";
  made.append(cell.fits ? formatMs(cell.time) : cell.fits === null ? "failed"
    : cell.headroom_bytes === null ? "no" : `−${formatBytes(-cell.headroom_bytes)}`);
  made.setAttribute("aria-label", words(cell));
  made.title = words(cell);
  made.tabIndex = -1;
  if (cell.fits) made.style.setProperty("--tint", `${Math.round(tint(cell.time))}%`);
  if (cell === chosen) made.setAttribute("aria-current", "true");
  return made;
}

function showGrid() {
  const series = seriesOf(shown);
  const sizes = valuesOf(shown, "world_size").sort((a, b) => a - b);
  const parts = AXES.map(([name]) => name)
    .filter((name) => name === "sku" || valuesOf(shown, name).length > 1);
  const times = shown.filter((cell) => cell.fits && cell.time > 0).map((cell) => Math.log(cell.time));
  const [low, high] = [smallest(times), -smallest(times.map((time) => -time))];
  const tint = (time) =>
    time > 0 && high > low ? 42 - (34 * (Math.log(time) - low)) / (high - low) : 20;
  const heads = sizes.map((size) => el("th", { scope: "col", class: "num" }, formatCount(size)));
  const corner = el("th", { scope: "col" }, "Ranks");
  const rows = series.slice(0, MOST_SERIES).map((own) => {
    const name = parts.map((part) => valueText(part, own[0][part])).join(", ");
    const bySize = new Map(own.map((cell) => [cell.world_size, cell]));
    return el("tr", {}, el("th", { scope: "row" }, name), ...sizes.map((size) =>
      el("td", {}, ...(bySize.has(size) ? [gridButton(bySize.get(size), tint)] : []))));
  });
  const table = el("table", { role: "grid", "aria-labelledby": "cells-title" },
    el("thead", {}, el("tr", {}, corner, ...heads)), el("tbody", {}, ...rows));
  byId("fit").replaceChildren(shown.length ? el("div", { class: "list" }, table)
    : el("p", { class: "more" }, "None matches."));
  const buttons = [...byId("fit").querySelectorAll("button")];
  const first = buttons.find((made) => made.hasAttribute("aria-current")) || buttons[0];
  if (first) first.tabIndex = 0;
  const less = series.length - MOST_SERIES;
  const unit = isStep ? "predicted step" : "rating";
  byId("fit-note").textContent =
    `A cell shows its ${unit}: the stronger its colour, the faster. Red: does not fit, with the memory that each rank lacks.` +
    (less > 0 ? ` ${formatCount(less)} more rows: filter, or see the list below.` : "");
}

byId("fit").addEventListener("keydown", (event) => {
  const [dx, dy] = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1],
    ArrowUp: [0, -1] }[event.key] || [0, 0];
  const from = event.target.closest("td");
  if (!from || (!dx && !dy)) return;
  event.preventDefault();
  const rows = [...byId("fit").querySelectorAll("tbody tr")];
  let [row, column] = [rows.indexOf(from.parentNode) + dy, from.cellIndex + dx];
  let next;
  for (; rows[row]?.cells[column] && !next; row += dy, column += dx) {
    next = rows[row].cells[column].querySelector("button");
  }
  if (!next) return;
  byId("fit").querySelector("button[tabindex='0']").tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
});

// Colour shows the first axis that varies, shape and dash the second one.
function styles() {
  const axes = AXES.map(([name]) => name).filter((name) => valuesOf(shown, name).length > 1);
  const [one, two] = axes.includes("sku") ? ["sku", ...axes.filter((name) => name !== "sku")] : axes;
  const first = one ? valuesOf(cells, one) : [];
  const second = two ? valuesOf(cells, two) : [];
  const style = (cell) => {
    const index = two ? second.indexOf(cell[two]) : 0;
    return {
      colour: one ? first.indexOf(cell[one]) % COLOURS : 0,
      shape: SHAPES[index % SHAPES.length],
      dash: DASHES[index % DASHES.length],
    };
  };
  return { style, axes: [one, two].filter(Boolean) };
}

function showLegend({ style, axes }) {
  const swatch = (cell, neutral) => {
    const { colour, shape, dash } = style(cell);
    const kind = neutral ? "neutral" : `s${colour}`;
    const root = svg("svg", { viewBox: "0 0 30 12", class: "swatch", "aria-hidden": "true" });
    const line = { class: `line ${kind}`, d: "M1 6H29", "stroke-dasharray": neutral ? dash : null };
    root.append(svg("path", line), mark(neutral ? shape : "circle", 15, 6, 4, { class: `point ${kind}` }));
    return root;
  };
  const items = axes.flatMap((name, i) => valuesOf(shown, name).map((value) => {
    const cell = shown.find((each) => each[name] === value);
    return el("li", {}, swatch(cell, i > 0), valueText(name, value));
  }));
  byId("legend").replaceChildren(...items);
}

const charts = [
  new CellChart(byId("by-ranks"), { across: (cell) => cell.world_size, ticks: true, lines: true,
    label: `${measureName} by ranks`, format: formatCount }),
  new CellChart(byId("by-price"), { across: (cell) => cell.per_hour, lines: true, best: true,
    label: `${measureName} by price per hour`, format: (value) => String(Number(value.toPrecision(6))) }),
  new CellChart(byId("by-memory"), { across: (cell) => cell.memory, bytes: true,
    label: `${measureName} by memory` }),
];
charts[1].missing = "No price is known: pass --price SKU=2.5, or write `price` into a SKU file.";

function showCharts() {
  const look = styles();
  const series = seriesOf(shown);
  charts[1].best = valuesOf(shown, "model").length === 1 && valuesOf(shown, "batch").length === 1;
  byId("best-note").hidden = !charts[1].best || shown.every((cell) => !cell.per_hour);
  for (const chart of charts) {
    chart.draw(series, { style: look.style, choose: (cell) => choose(cell), chosen, words });
  }
  showLegend(look);
}

// The plan of a cell.
const fact = (title, value, note) =>
  el("div", { class: "tile" }, el("h3", {}, title), el("p", { class: "value" }, value),
    el("p", { class: "note" }, note || ""));

function facts(cell) {
  const made = [];
  if (cell.step !== null) made.push(fact("Predicted step", formatMs(cell.step), "with hardware costs"));
  if (cell.rating !== null) {
    const bound = cell.lower_bound === null ? "" : `; no plan is below ${formatMs(cell.lower_bound)}`;
    made.push(fact("Rating", formatMs(cell.rating), `estimate of the worst rank${bound}`));
  }
  if (cell.headroom !== null && cell.fits) {
    made.push(fact(`${(cell.tier || "").toUpperCase()} headroom`, formatShare(cell.headroom),
      `${formatBytes(cell.headroom_bytes)} free on the fullest rank`));
  }
  if (cell.memory !== null) {
    made.push(fact("Memory", formatBytes(cell.memory), cell.note || "in device memory of all ranks"));
  }
  if (cell.per_hour !== null) {
    made.push(fact("Price", price(cell.per_hour), "per hour, all ranks"));
  }
  return el("div", { class: "tiles" }, ...made);
}

function loadStrip(loads) {
  const most = largest(loads) || 1;
  const root = svg("svg", { class: "strip", viewBox: `0 0 ${loads.length} 40`,
    preserveAspectRatio: "none", role: "img", "aria-label": "Load by rank" });
  loads.forEach((load, x) => {
    const height = (40 * load) / most;
    root.append(svg("rect", { x, width: 0.88, y: 40 - height, height, class: "fwd_compute" }));
  });
  return root;
}

function planTables(plan) {
  const titles = ["Table", "Size", "Placement", "Ranks", "Cost share"];
  const kinds = ["name", "num", "word", "ranks", "num"];
  const rows = plan.tables.map((table) => {
    const values = [fullName(table), orDash(table.bytes, formatBytes),
      `${spaced(table.type)} ${spaced(table.kernel)}`, table.ranks, orDash(table.share, formatShare)];
    return el("tr", {}, ...values.map((value, i) => el("td", { class: kinds[i], title: value }, value)));
  });
  const head = el("tr", {}, ...titles.map((title, i) => el("th", { scope: "col", class: kinds[i] }, title)));
  const made = [el("div", { class: "list" },
    el("table", {}, el("thead", {}, head), el("tbody", {}, ...rows)))];
  if (plan.more_tables) {
    const count = `${formatCount(plan.more_tables)} more table${plan.more_tables > 1 ? "s" : ""}`;
    made.push(el("p", { class: "more" }, `The tables that cost most; ${count} in the plan's page.`));
  }
  return made;
}

function planParts(cell) {
  const { plan } = cell;
  if (!plan) {
    if (cell.page) return [el("p", { class: "more" }, "The plan's page and file have its tables.")];
    const why = data.files ? "The plan's file could not be written or read."
      : "The page was written without the files of plans.";
    return [el("p", { class: "more" }, why)];
  }
  const kinds = plan.kinds.map(([kind, count, bytes]) =>
    el("li", {}, el("b", {}, formatCount(count)), ` ${spaced(kind)}, ${formatBytes(bytes)}`));
  const parts = [el("p", { class: "words" }, plan.sentence), el("ul", { class: "counts" }, ...kinds)];
  if (plan.loads.length) {
    parts.push(el("div", { class: "loads" }, el("h3", {}, "Load by rank"), loadStrip(plan.loads)));
  }
  return [...parts, ...planTables(plan)];
}

function showChosen() {
  if (!chosen) {
    byId("chosen-title").textContent = "Plan of a cell";
    byId("chosen-links").replaceChildren();
    byId("chosen-plan").replaceChildren(el("p", { class: "more" }, "Choose a cell above."));
    return;
  }
  byId("chosen-title").textContent = nameOf(chosen);
  const links = [["page", "Page of this plan"], ["file", "Plan file"]]
    .filter(([name]) => chosen[name])
    .map(([name, title]) => el("a", { href: chosen[name] }, title));
  byId("chosen-links").replaceChildren(...links);
  if (chosen.fits) byId("chosen-plan").replaceChildren(facts(chosen), ...planParts(chosen));
  else {
    const verdict = el("span", { class: "bad" }, chosen.fits === null ? "Failed:" : "Does not fit:");
    const why = chosen.error || chosen.shortage || "nothing is known";
    byId("chosen-plan").replaceChildren(el("p", { class: "words" }, verdict, ` ${why}.`));
  }
}

// Chooses a cell. Where the focus was in the grid, it stays.
function choose(cell, inGrid) {
  chosen = cell;
  showChosen();
  showGrid();
  showCharts();
  if (inGrid) byId("fit").querySelector("[aria-current]")?.focus({ preventScroll: true });
}

// The list of all cells.
const listColumns = [
  column("Cell", "name", clusterOf, (cell) => button(clusterOf(cell), () => {
    choose(cell);
    byId("chosen").scrollIntoView();
    byId("chosen").focus({ preventScroll: true });
  })),
  column("Model", "word", (cell) => cell.model),
  column("SKU", "word less", (cell) => cell.sku),
  column("Precision", "word", (cell) => cell.precision),
  column("Batch", "num", (cell) => cell.batch, (cell) => formatCount(cell.batch)),
  column("Ranks", "num less", (cell) => cell.world_size, (cell) => formatCount(cell.world_size)),
  column("Fits", "word", (cell) => (cell.fits ? "yes" : cell.fits === null ? "failed" : "no")),
  column("Rating", "num", (cell) => cell.rating, (cell) => orDash(cell.rating, formatMs)),
  column("Step", "num", (cell) => cell.step, (cell) => orDash(cell.step, formatMs)),
  column("Headroom", "num less", (cell) => cell.headroom, (cell) => orDash(cell.headroom, formatShare)),
  column("Memory", "num less", (cell) => cell.memory, (cell) => orDash(cell.memory, formatBytes)),
  column("Per hour", "num", (cell) => cell.per_hour, (cell) => orDash(cell.per_hour, price)),
  column("Note", "word minor", (cell) => cell.note),
].filter(({ title }) =>
  (title !== "Step" || isStep) && (title !== "Per hour" || cells.some((c) => c.per_hour !== null)) &&
  !["Model", "Batch"].some((one) => title === one && !varying.some(([, other]) => other === one)));
const fastest = listColumns.findIndex(({ title }) => title === measureName);
const list = new List(byId("cell-list"), listColumns, cells, [fastest, false], FIRST_ROWS);
byId("list-actions").append(csvButton("sweep.csv", "Save the cells shown as CSV",
  [...data.columns, "per_hour"],
  () => list.shown.map((cell) => [...data.columns, "per_hour"].map((name) => cell[name]))));

function update() {
  shown = filtered();
  const kept = new Set(shown);
  list.keep = (cell) => kept.has(cell);
  list.show();
  const fit = shown.filter((cell) => cell.fits).length;
  byId("cell-count").textContent =
    `${formatCount(shown.length)} of ${formatCount(cells.length)}, ${formatCount(fit)} fit`;
  if (!kept.has(chosen)) chosen = list.shown.find((cell) => cell.fits) || list.shown[0] || null;
  showChosen();
  showGrid();
  showCharts();
}

buildFilters();
update();
let width = byId("by-ranks").clientWidth;
new ResizeObserver(() => {
  if (byId("by-ranks").clientWidth === width) return;
  width = byId("by-ranks").clientWidth;
  showCharts();
}).observe(byId("by-ranks"));
