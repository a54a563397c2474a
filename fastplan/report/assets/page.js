// The page: headline figures, the comparison, and one plan at a time, all on the same scale.
function tile(entry) {
  const made = el("div", { class: "tile" });
  const note = el("p", { class: "note" });
  if (entry.verdict) note.append(el("span", { class: entry.tone }, entry.verdict), " ");
  note.append(entry.note);
  made.append(el("h3", {}, entry.title), el("p", { class: "value" }, entry.value), note);
  if (entry.split.length) {
    const bar = track(...entry.split.map(([part, share]) => [share, part]));
    bar.className = "split";
    made.append(bar);
  }
  return made;
}

function strip(host, plan, most) {
  if (!plan.total) return;
  const columns = columnsOf(plan, { order: "rank", zoom: null });
  host.setAttribute("viewBox", `0 0 ${columns.length} 40`);
  host.setAttribute("preserveAspectRatio", "none");
  columns.forEach(({ ranks, worst }, x) => {
    const height = (40 * plan.total[worst]) / most;
    const kind = ranks.includes(plan.worst) && !plan.balanced ? "above" : "fwd_compute";
    host.append(svg("rect", { x, width: 0.88, y: 40 - height, height, class: kind }));
  });
}

const FIRST_CHANGES = 12;

function changeList() {
  const columns = [
    column("", "mark", (change) => change.mark),
    column("Table", "word", (change) => change.table),
    column("Before", "word", (change) => change.before),
    column("After", "word", (change) => change.after),
    column("To move", "num", ({ bytes }) => bytes, ({ bytes }) => orDash(bytes, formatBytes)),
  ];
  const plan = column("In", "word plan", (change) => change.plan);
  if (data.plans.length > 2) columns.splice(1, 0, plan);
  const sort = [columns.length - 1, true];
  const list = new List(byId("change-list"), columns, data.changes, sort, FIRST_CHANGES);
  const text = byId("filter-change");
  const size = sizeField("Filter by bytes to move", () => update());
  const update = () => {
    const [named, sized] = [nameFilter(text), sizeFilter(size)];
    list.keep = (change) => named(change.table) && sized(change.bytes);
    list.show();
  };
  text.oninput = update;
  const names = ["plan", "table", "before", "after", "bytes"];
  text.after(size, csvButton("changes.csv", "Save the changes shown as CSV", names, () =>
    list.shown.map((change) => names.map((name) => change[name]))));
}

const most = largest(data.plans.flatMap((plan) => plan.total || [])) || 1;
const parts = data.plans.flatMap((plan) =>
  shownParts(plan).filter((part) => RATED.includes(part)).flatMap((part) => plan.parts[part]));
const above = data.plans.flatMap((plan) =>
  (plan.total || []).map((total) => Math.abs(total / plan.mean - 1)));
const scale = { total: most, part: largest(parts), above: largest(above) || 1 };

let ranks;
function choose(index) {
  const plan = data.plans[index];
  byId("sentence").textContent = plan.sentence;
  byId("tiles").replaceChildren(...plan.tiles.map(tile));
  const showTables = tableSection(plan);
  byId("ranks").hidden = plan.ranks === 0;
  ranks = plan.ranks ? new RankSection(plan, scale, showTables) : null;
}

for (const choice of document.querySelectorAll("[name=plan]")) {
  choice.addEventListener("change", () => choose(Number(choice.value)));
}
for (const host of document.querySelectorAll(".strip")) {
  strip(host, data.plans[Number(host.dataset.plan)], most);
}
if (byId("change-list")) changeList();
choose(Number(document.querySelector("[name=plan]:checked")?.value ?? 0));

let width = byId("chart").clientWidth;
new ResizeObserver(() => {
  if (byId("chart").clientWidth === width) return;
  width = byId("chart").clientWidth;
  ranks?.redraw();
}).observe(byId("chart"));
