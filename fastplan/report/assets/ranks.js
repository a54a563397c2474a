// The section about ranks: a chart with a cursor, and what there is to know where it points.
function legend(plan) {
  const parts = shownParts(plan).filter((part) => RATED.includes(part));
  return parts.map((part) => el("li", {}, el("i", { class: part }), PART_NAMES[part]));
}

function spread(ranks) {
  const sorted = [...ranks].sort((a, b) => a - b);
  const [first, last] = [sorted[0], sorted[sorted.length - 1]];
  return last - first === sorted.length - 1 ? `${first}–${last}` : sorted.join(", ");
}

function details(plan, column, action) {
  const rank = column.worst;
  const host = plan.ranks_per_host ? `, host ${Math.floor(rank / plan.ranks_per_host)}` : "";
  const several = column.ranks.length > 1;
  const worst = plan.total ? `the worst is ${rank}` : `the fullest is ${rank}`;
  const title = several ? `Ranks ${spread(column.ranks)}, ${worst}` : `Rank ${rank}${host}`;
  const rows = el("div", { class: "rows" });
  const add = (...cells) => rows.append(...cells.map((cell) => el("span", {}, cell)));
  for (const part of shownParts(plan)) {
    const value = plan.parts[part][rank];
    const name = PART_NAMES[part] + (RATED.includes(part) ? "" : ", not rated");
    add(name, track([value / plan.total[rank], part]), formatMs(value));
  }
  if (plan.total) add(el("b", {}, "Total"), "", el("b", {}, formatMs(plan.total[rank])));
  for (const { name, used, capacity } of plan.lanes) {
    const room = capacity ? capacity[rank] : largest(used);
    const kind = capacity && used[rank] > room ? "over" : "memory";
    const words = formatBytes(used[rank]) + (capacity ? ` of ${formatBytes(room)}` : "");
    add(name, track([room ? used[rank] / room : 0, kind]), words);
  }
  const go = button(several ? "Show these ranks" : "Show its tables", () => action(column));
  return el("div", {}, el("h3", {}, title), rows, go);
}

function pinned(plan) {
  if (!plan.pinning.length) return [];
  const title = plan.balanced ? "What costs most on" : "What pins";
  const rows = el("div", { class: "rows pins" });
  const tables = plan.pinning.map((index) => plan.tables[index]);
  const most = largest(tables.map((table) => table.on_worst));
  for (const table of tables) {
    const mean = plan.balanced ? table.on_worst : Math.min(table.mean, table.on_worst);
    const pieces = [[mean / most, "usual"], [(table.on_worst - mean) / most, "beyond"]];
    const name = el("span", { title: `${fullName(table)}, ${spaced(table.type)}` }, table.name);
    rows.append(name, track(...pieces), el("span", {}, formatMs(table.on_worst)));
  }
  const note = "Coloured: what a table costs there beyond its mean over all ranks.";
  const made = el("div", {}, el("h3", {}, `${title} rank ${plan.worst}`), rows);
  if (!plan.balanced) made.append(el("p", { class: "quiet small" }, note));
  return [made];
}

class RankSection {
  constructor(plan, scale, showTables) {
    Object.assign(this, { plan, scale, showTables, at: 0 });
    this.view = { order: "rank", zoom: null };
    this.host = byId("chart");
    this.below = byId("details");
    byId("legend").replaceChildren(...legend(plan));
    this.below.replaceChildren(el("div"), ...pinned(plan));
    this.listen();
    const all = Array.from({ length: plan.ranks }, (_, rank) => rank);
    this.draw(plan.worst ?? (plan.lanes.length ? fullest(plan.lanes[0], all) : 0));
  }

  draw(rank) {
    const { plan, scale, view, host } = this;
    this.columns = columnsOf(plan, view);
    this.chart = drawn(plan, this.columns, host.clientWidth || 1000, scale, view);
    host.replaceChildren(this.chart.root);
    host.setAttribute("aria-valuemax", this.columns.length - 1);
    byId("zoom-out").hidden = !view.zoom;
    this.point(this.columns.findIndex((column) => column.ranks.includes(rank)));
  }

  redraw() {
    this.draw(this.columns[this.at].worst);
  }

  point(index) {
    this.at = Math.max(0, Math.min(this.columns.length - 1, index));
    const column = this.columns[this.at];
    this.chart.point(this.at);
    const panel = details(this.plan, column, (chosen) => this.open(chosen));
    this.below.firstElementChild.replaceWith(panel);
    const cost = this.plan.total ? `: ${formatMs(this.plan.total[column.worst])}` : "";
    this.host.setAttribute("aria-valuenow", this.at);
    this.host.setAttribute("aria-valuetext", panel.querySelector("h3").textContent + cost);
  }

  open(column) {
    if (column.ranks.length === 1) {
      this.showTables(column.worst);
    } else {
      this.view.zoom = column.ranks;
      this.draw(column.worst);
    }
  }

  close() {
    this.view.zoom = null;
    this.redraw();
    this.host.focus();
  }

  listen() {
    const { host } = this;
    host.onpointermove = host.onpointerdown = (event) => {
      const box = host.getBoundingClientRect();
      const x = ((event.clientX - box.left) / box.width) * this.chart.width;
      if (x >= this.chart.left) this.point(Math.floor((x - this.chart.left) / this.chart.step));
    };
    host.ondblclick = () => this.open(this.columns[this.at]);
    host.onkeydown = (event) => {
      if (this.key(event.key)) event.preventDefault();
    };
    byId("zoom-out").onclick = () => this.close();
    for (const choice of document.querySelectorAll("[name=order]")) {
      choice.checked = choice.value === this.view.order;
      choice.onchange = () => {
        this.view = { order: choice.value, zoom: null };
        this.redraw();
      };
    }
  }

  key(name) {
    const moves = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1 };
    Object.assign(moves, { PageDown: -10, PageUp: 10, Home: -Infinity, End: Infinity });
    if (name in moves) this.point(this.at + moves[name]);
    else if (name === "Enter") this.open(this.columns[this.at]);
    else if (name === "Escape" && this.view.zoom) this.close();
    else return false;
    return true;
  }
}
