// Elements, figures and words that the other parts share.
const RATED = ["fwd_compute", "bwd_compute", "fwd_comms", "bwd_comms", "prefetch"];
const PART_NAMES = {
  fwd_compute: "Forward compute",
  bwd_compute: "Backward compute",
  fwd_comms: "Forward comms",
  bwd_comms: "Backward comms",
  prefetch: "Prefetch",
  input_dist: "Input dist",
};

const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);

// Elements are built from text, never from markup: names are other people's.
const maker = (create) => (tag, attributes, ...children) => {
  const made = create(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value !== null && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
};
const el = maker((tag) => document.createElement(tag));
const svg = maker((tag) => document.createElementNS("http://www.w3.org/2000/svg", tag));

const button = (words, action) => {
  const made = el("button", { type: "button" }, words);
  made.addEventListener("click", action);
  return made;
};

const track = (...pieces) => {
  const made = el("span", { class: "track", "aria-hidden": "true" });
  for (const [share, kind] of pieces) {
    const piece = el("i", { class: kind });
    piece.style.width = `${Math.max(0, Math.min(100, 100 * share))}%`;
    made.append(piece);
  }
  return made;
};

const digits = (value) => {
  const size = Math.abs(value);
  if (size < 9.9995) return value.toFixed(3);
  if (size < 99.995) return value.toFixed(2);
  return size < 999.95 ? value.toFixed(1) : formatCount(Math.round(value));
};
const formatCount = (value) => value.toLocaleString("en-US");
const formatMs = (value) => {
  if (value >= 10000) return `${digits(value / 1000)} s`;
  return value > 0 && value < 0.01 ? `${digits(value * 1000)} µs` : `${digits(value)} ms`;
};
const formatShare = (value) =>
  value > 0 && value < 0.0005 ? "<0.1 %" : `${(100 * value).toFixed(1)} %`;
const formatBytes = (value) => {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0;
  for (; value >= 1024 && unit < units.length - 1; unit += 1) value /= 1024;
  return unit === 0 ? `${value} B` : `${value.toFixed(value < 1000 ? 1 : 0)} ${units[unit]}`;
};
const formatRows = (rows) => (rows < 1e6 ? formatCount(rows) : `${(rows / 1e6).toFixed(1)}M`);
const orDash = (value, words) => (value === null ? "–" : words(value));
const spaced = (name) => name.replaceAll("_", " ");
const largest = (values) => values.reduce((a, b) => Math.max(a, b), 0);
const best = (items, score) => items.reduce((a, b) => (score(b) > score(a) ? b : a));

const fullName = (table) => (table.path ? `${table.path}.${table.name}` : table.name);

// Parts that cost anything in this plan.
const shownParts = (plan) =>
  plan.parts ? Object.keys(PART_NAMES).filter((part) => largest(plan.parts[part]) > 0) : [];

// Ranks as columns. Many ranks share a column, which shows the worst of them.
const MOST_COLUMNS = 128;

function columnsOf(plan, view) {
  const load = plan.total || plan.lanes[0]?.used || [];
  let ranks = Array.from({ length: plan.ranks }, (_, rank) => rank);
  if (view.order === "load") ranks.sort((a, b) => load[b] - load[a] || a - b);
  if (view.zoom) ranks = view.zoom;
  let size = Math.ceil(ranks.length / MOST_COLUMNS);
  const host = plan.ranks_per_host;
  if (size > 1 && host && view.order === "rank") size = alignedTo(host, size);
  const columns = [];
  for (let i = 0; i < ranks.length; i += size) {
    const own = ranks.slice(i, i + size);
    columns.push({ ranks: own, worst: best(own, (rank) => load[rank]) });
  }
  return columns;
}

// A column is a whole part of a host, or whole hosts.
function alignedTo(host, size) {
  if (size > host) return Math.ceil(size / host) * host;
  while (host % size) size += 1;
  return size;
}
