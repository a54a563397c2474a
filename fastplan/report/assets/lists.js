// Lists: sorted and filtered over all rows, of which the first are shown.
const FIRST_ROWS = 200;
const compareNames = new Intl.Collator("en", { numeric: true }).compare;

const column = (title, kind, value, cell) => ({ title, kind, value, cell: cell || value });
const isNumber = ({ kind }) => kind.split(" ").includes("num");

class List {
  constructor(host, columns, rows, sort, limit) {
    Object.assign(this, { columns, rows, sort, limit, keep: () => true });
    this.body = el("tbody");
    this.more = el("p", { class: "more" });
    this.heads = columns.map((own, index) => {
      const title = button(own.title, () => this.sortBy(index));
      return el("th", { scope: "col", class: own.kind }, title);
    });
    const head = el("thead", {}, el("tr", {}, ...this.heads));
    host.replaceChildren(el("div", { class: "list" }, el("table", {}, head, this.body)), this.more);
    this.show();
  }

  sortBy(index) {
    const [by, down] = this.sort;
    this.sort = [index, by === index ? !down : isNumber(this.columns[index])];
    this.show();
  }

  ordered() {
    const [by, down] = this.sort;
    const { value } = this.columns[by];
    return this.rows.filter(this.keep).sort((a, b) => {
      const [x, y] = [value(a), value(b)];
      if (x === null || y === null) return (x === null) - (y === null);
      const order = typeof x === "string" ? compareNames(x, y) : x - y;
      return down ? -order : order;
    });
  }

  show() {
    const [by, down] = this.sort;
    this.heads.forEach((head, index) => {
      if (index === by) head.setAttribute("aria-sort", down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    this.shown = this.ordered();
    const first = this.shown.slice(0, this.limit);
    this.body.replaceChildren(...first.map((row) => this.row(row)));
    this.end(this.shown.length);
  }

  end(count) {
    this.more.hidden = count > 0 && count <= this.limit;
    if (count === 0) this.more.replaceChildren("None matches.");
    if (count <= this.limit) return;
    const all = button(`Show all ${formatCount(count)}`, () => {
      this.limit = Infinity;
      this.show();
    });
    const some = `The first ${formatCount(this.limit)} of ${formatCount(count)} `;
    this.more.replaceChildren(some, all);
  }

  row(row) {
    return el("tr", {}, ...this.columns.map(({ kind, cell }) => {
      const made = el("td", { class: kind }, cell(row));
      if (!kind.includes("num")) made.title = made.textContent;
      return made;
    }));
  }
}

function tableColumns(plan, panel) {
  const most = largest(plan.tables.map((table) => table.share || 0)) || 1;
  const onePath = new Set(plan.tables.map((table) => table.path)).size === 1;
  const path = (table) => (onePath || !table.path ? "" : `${table.path}.`);
  const name = (table) => {
    const parts = [el("span", { class: "path" }, path(table)), table.name];
    const row = plan.tables.indexOf(table);
    if (!panel.has(row)) return el("span", {}, ...parts);
    const opener = button("", () => panel.open(row));
    opener.className = "plain";
    opener.append(...parts);
    return opener;
  };
  const elements = ({ shape }) => shape && shape[0] * shape[1];
  const shape = (table) => orDash(table.shape, ([rows, dim]) => `${formatRows(rows)} × ${dim}`);
  const element = (table) => orDash(table.element, (size) => `${size} B`);
  const share = (table) =>
    el("span", {}, track([table.share / most, "fwd_compute"]), formatShare(table.share));
  const there = (table) => (table.on_worst ? formatMs(table.on_worst) : "–");
  const all = [
    column("Table", "name", fullName, name),
    column("Rows × dim", "num", elements, shape),
    column("Size", "num", (table) => table.bytes, (table) => orDash(table.bytes, formatBytes)),
    column("Sharding", "word", (table) => spaced(table.type)),
    column("Kernel", "word less", (table) => spaced(table.kernel)),
    column("Shards", "num minor", (table) => table.shards, (table) => formatCount(table.shards)),
    column("Ranks", "ranks", (table) => table.ranks),
  ];
  if (new Set(plan.tables.map((table) => table.element)).size > 1) {
    all.push(column("Element", "num minor", (table) => table.element, element));
  }
  if (plan.parts) {
    all.push(column("Cost share", "num", (table) => table.share, share));
    all.push(column(`On rank ${plan.worst}`, "num", (table) => table.on_worst, there));
  }
  return all;
}

// Whether ranks such as `r0-7,12` have one among them.
const includesRank = (ranks, rank, plan) =>
  ranks === "all ranks"
    ? rank < plan.ranks
    : ranks.slice(1).split(",").some((range) => {
        const [first, last] = range.split("-").map(Number);
        return rank >= first && rank <= (last ?? first);
      });

// A field for sizes, and a button that saves the list. They replace those of another plan.
function tableTools(list, plan, update) {
  const bar = byId("filter-text").closest(".bar");
  const before = bar.querySelector(".size")?.value || "";
  for (const old of bar.querySelectorAll(".size, .csv")) old.remove();
  const size = sizeField("Filter by size", update);
  size.id = "filter-size";
  size.value = before;
  byId("filter-text").after(size);
  bar.append(csvButton("tables.csv", "Save the tables shown as CSV", TABLE_TITLES, () =>
    list.shown.map((table) => tableValues(table))));
  return size;
}

const TABLE_TITLES = ["table", "rows", "dim", "bytes", "sharding_type", "kernel", "shards", "ranks",
  "cost_share", "worst_rank_ms"];
const tableValues = (table) => [fullName(table), ...(table.shape || [null, null]), table.bytes,
  table.type, table.kernel, table.shards, table.ranks, table.share, table.on_worst];

// Returns how to show the tables of one rank.
function tableSection(plan) {
  const columns = tableColumns(plan, new WhatIfPanel(plan));
  const first = plan.parts ? "Cost share" : "Size";
  const sort = [columns.findIndex(({ title }) => title === first), true];
  const list = new List(byId("table-list"), columns, plan.tables, sort, FIRST_ROWS);
  const [text, type, rank] = ["filter-text", "filter-type", "filter-rank"].map(byId);
  const types = [...new Set(plan.tables.map((table) => table.type))].sort();
  const options = types.map((name) => el("option", { value: name }, spaced(name)));
  type.replaceChildren(el("option", { value: "" }, "All sharding types"), ...options);
  rank.max = plan.ranks - 1;
  let size;
  const update = () => {
    const [named, sized] = [nameFilter(text), sizeFilter(size)];
    list.keep = (table) =>
      (!type.value || table.type === type.value) && sized(table.bytes) &&
      (named(table.name) || named(fullName(table))) &&
      (rank.value === "" || includesRank(table.ranks, Number(rank.value), plan));
    list.show();
    const bytes = list.shown.reduce((sum, table) => sum + (table.bytes || 0), 0);
    const count = `${formatCount(list.shown.length)} of ${formatCount(plan.tables.length)}`;
    byId("table-count").textContent = `${count}, ${formatBytes(bytes)}`;
  };
  size = tableTools(list, plan, update);
  text.oninput = type.onchange = rank.oninput = update;
  update();
  return (wanted) => {
    rank.value = wanted;
    update();
    byId("tables").scrollIntoView();
    rank.focus({ preventScroll: true });
  };
}
