// Why a table has its option, and what if it had another one: loads of the changed plan, computed
// from the plan's own estimates, shard by shard in the order of the plan, as the core adds them.
const TIER_NAMES = ["HBM", "DDR", "SSD"];
const MARK_WORDS = {
  planned: "in the plan",
  better: "better",
  tie: "tie",
  slower: "slower",
  "does not fit": "does not fit",
  "not allowed": "not allowed",
};
const MOST_INPUTS = 16;
const MOST_LOADS = 16;
const MOST_LINES = 24;

// The changed plan: by table an option and the ranks of its shards. It starts as the plan.
class WhatIf {
  constructor(plan) {
    Object.assign(this, { plan, known: plan.what_if, changes: new Map() });
    this.before = this.loads();
  }

  state(row) {
    const option = this.known.tables[row].options[0];
    return this.changes.get(row) || { option: 0, ranks: option.ranks };
  }

  set(row, option, ranks) {
    const planned = this.known.tables[row].options[0].ranks;
    const same = option === 0 && (ranks === null || ranks.every((rank, i) => rank === planned[i]));
    if (same) this.changes.delete(row);
    else this.changes.set(row, { option, ranks });
  }

  loads() {
    const { plan, known } = this;
    const cost = known.rest ? [...known.rest.cost] : new Array(plan.ranks).fill(0);
    const used = known.capacity.map((_, tier) =>
      known.rest ? [...known.rest.used[tier]] : new Array(plan.ranks).fill(0));
    for (const row of known.order) {
      const { option, ranks } = this.state(row);
      let shard = 0;
      for (const [count, ms, ...bytes] of known.tables[row].options[option].runs) {
        for (let i = 0; i < count; i += 1, shard += 1) {
          const rank = ranks === null ? shard : ranks[shard];
          cost[rank] += ms;
          bytes.forEach((size, tier) => { used[tier][rank] += size; });
        }
      }
    }
    return { cost, used, rating: largest(cost) };
  }

  // Ranks that lack memory: rank, tier and bytes, the worst first.
  lacks({ used }) {
    const found = [];
    used.forEach((own, tier) => own.forEach((size, rank) => {
      const bytes = size - this.known.capacity[tier][rank];
      if (bytes > 0 && size > 0) found.push({ rank, tier, bytes });
    }));
    return found.sort((a, b) => b.bytes - a.bytes);
  }

  // What TorchRec would refuse, as a sentence.
  complaint(row) {
    const { option, ranks } = this.state(row);
    const own = this.known.tables[row].options[option];
    if (ranks === null) return "";
    const hosts = new Set(ranks.map((rank) => Math.floor(rank / this.known.group)));
    if (own.one_host && hosts.size > 1) return "Its shards must be on ranks of one host.";
    const distinct = new Set(ranks).size === ranks.length;
    if (own.type === "column_wise" && own.kernel === "key_value" && !distinct) {
      return "Two of its shards can't share a rank.";
    }
    return "";
  }
}

const plainName = (name) =>
  JSON.stringify(name).replace(/[\p{C}\p{Zl}\p{Zp}]/gu, (found) =>
    [...found].map((c) => c.codePointAt(0)).map((code) => (code > 0xffff
      ? `\\u${(0xd800 + ((code - 0x10000) >> 10)).toString(16)}` +
        `\\u${(0xdc00 + ((code - 0x10000) & 0x3ff)).toString(16)}`
      : `\\u${code.toString(16).padStart(4, "0")}`)).join(""));

// The changed tables as constraints of TorchRec or a spec, and as pins.
function exported(what, format) {
  const constraints = [];
  const pins = [];
  for (const row of what.known.order.filter((own) => what.changes.has(own))) {
    const { option, ranks } = what.state(row);
    const { key, options } = what.known.tables[row];
    const name = plainName(key);
    constraints.push([name, options[option].type, options[option].kernel]);
    if (ranks) pins.push([name, ranks.join(", ")]);
  }
  if (format === "json") {
    const lines = (rows, line) => rows.map((own) => `    ${line(own)}`).join(",\n");
    const rules = lines(constraints, ([name, type, kernel]) =>
      `${name}: {"sharding_types": ["${type}"], "compute_kernels": ["${kernel}"]}`);
    const placed = lines(pins, ([name, ranks]) => `${name}: [${ranks}]`);
    return `{\n  "constraints": {\n${rules}\n  },\n  "pins": {\n${placed}\n  }\n}\n`;
  }
  const rules = constraints.map(([name, type, kernel]) =>
    `  ${name}:\n    sharding_types: [${type}]\n    compute_kernels: [${kernel}]\n`);
  const placed = pins.map(([name, ranks]) => `  ${name}: [${ranks}]\n`);
  return "# constraints: fields of a spec's tables, and of TorchRec's ParameterConstraints.\n" +
    "# pins: ranks by table, for Objectives(pins=...) or `fastplan plan --optimize --pin`.\n" +
    `constraints:\n${rules.join("")}${placed.length ? `pins:\n${placed.join("")}` : "pins: {}\n"}`;
}

// The panel about a table.
class WhatIfPanel {
  constructor(plan) {
    Object.assign(this, { plan, row: null });
    this.what = plan.what_if ? new WhatIf(plan) : null;
    this.host = byId("why");
    this.host.hidden = true;
    byId("why-note").textContent = plan.what_if ? plan.what_if.note : "";
    byId("why-note").hidden = !plan.what_if || !plan.what_if.note;
    byId("why-close").onclick = () => this.close();
    for (const choice of document.querySelectorAll("[name=export]")) {
      choice.onchange = () => this.export();
    }
    byId("export-copy").onclick = () => this.copy();
    byId("export-save").onclick = () => this.save();
    byId("why-reset").onclick = () => {
      this.what.changes.clear();
      this.show(this.row);
    };
  }

  has(row) {
    return this.what !== null && row in this.what.known.tables;
  }

  open(row) {
    this.opener = document.activeElement;
    this.show(row);
    this.host.hidden = false;
    this.update();
    this.host.scrollIntoView({ block: "start" });
    byId("why-title").focus({ preventScroll: true });
  }

  close() {
    this.host.hidden = true;
    if (this.opener?.isConnected) this.opener.focus();
  }

  show(row) {
    this.row = row;
    const table = this.plan.tables[row];
    const own = this.what.known.tables[row];
    byId("why-title").textContent = fullName(table);
    const planned = own.options[0];
    byId("why-facts").textContent =
      `${spaced(planned.type)} ${spaced(planned.kernel)} on ${table.ranks}. Limits ${own.limits}.`;
    byId("why-options").replaceChildren(this.options(own));
    byId("why-forbidden").textContent = own.forbidden.length
      ? `Not allowed, but other tables may have it: ${own.forbidden.join(", ")}.` : "";
    this.inputs();
    this.update();
  }

  options(own) {
    const head = ["Option", this.what.known.measure === "step" ? "Step" : "Rating", "Change",
      "HBM each", "For it to win"].map((title, at) =>
      el("th", { scope: "col", class: ["", "num", "num", "num less", ""][at] }, title));
    const rows = own.options.map((option, number) => this.option(own, option, number));
    return el("table", { class: "options" }, el("thead", {}, el("tr", {}, ...head)),
      el("tbody", {}, ...rows));
  }

  option(own, option, number) {
    const choice = el("input", { type: "radio", name: "option", value: number });
    choice.checked = this.what.state(this.row).option === number;
    choice.disabled = option.ranks !== null && option.ranks.length === 0;
    choice.onchange = () => {
      this.what.set(this.row, number, option.ranks);
      this.inputs();
      this.update();
    };
    const words = `${spaced(option.type)} ${spaced(option.kernel)}`;
    const name = el("label", {}, choice, el("span", {}, words));
    const known = option.value !== null;
    const change = known ? relative(own.options[0].value, option.value) : 0;
    let text = option.status === "planned" ? "" : MARK_WORDS[option.status];
    if (option.status === "slower" || option.status === "better") {
      text = change >= 9 ? `× ${formatCount(Math.round(change + 1))}` : signed(change);
    }
    const tone = { better: "good", "does not fit": "bad" }[option.status];
    const hbm = largest(option.runs.map((run) => run[2]));
    return el("tr", { class: option.status === "planned" ? "planned" : null },
      el("td", {}, name),
      el("td", { class: "num" }, known ? formatMs(option.value) : "–"),
      el("td", { class: "num" }, el("span", { class: tone }, text)),
      el("td", { class: "num less" }, formatBytes(hbm)),
      el("td", { class: "reason" }, ...option.why.map((line) => el("p", {}, line))));
  }

  // Where the shards go: a number for each rank, or for each host.
  inputs() {
    const { what, row } = this;
    const { option, ranks } = what.state(row);
    const own = what.known.tables[row].options[option];
    const host = byId("why-places");
    if (ranks === null) {
      host.replaceChildren(el("p", { class: "quiet small" }, "Every rank has a shard of it."));
      return;
    }
    const group = own.place === "host" ? what.known.group : 1;
    const blocks = ranks.length / group;
    const most = Math.floor(this.plan.ranks / group) - 1;
    const shown = Array.from({ length: Math.min(blocks, MOST_INPUTS) }, (_, block) => {
      const value = Math.floor(ranks[block * group] / group);
      const input = el("input", { type: "number", min: 0, max: most, value });
      input.oninput = () => {
        const place = Number(input.value);
        const bad = input.value === "" || !Number.isInteger(place) || place < 0 || place > most;
        input.setAttribute("aria-invalid", bad);
        if (bad) return;
        const moved = [...what.state(row).ranks];
        for (let i = 0; i < group; i += 1) moved[block * group + i] = place * group + i;
        what.set(row, option, moved);
        this.update();
      };
      const title = blocks > 1 ? `Shard ${block}, ${own.place}` : `On ${own.place}`;
      return el("label", {}, title, input);
    });
    const more = blocks > MOST_INPUTS
      ? [el("p", { class: "quiet small" }, `and ${blocks - MOST_INPUTS} more shards`)] : [];
    host.replaceChildren(...shown, ...more);
  }

  update() {
    const { what } = this;
    const after = what.loads();
    const lacks = what.lacks(after);
    const rank = after.cost.indexOf(after.rating);
    const change = relative(what.before.rating, after.rating);
    const tone = change < -1e-9 ? "good" : change > 1e-9 ? "bad" : "";
    byId("why-rating").replaceChildren(
      el("span", {}, "Rating "),
      el("data", { value: what.before.rating }, formatMs(what.before.rating)), " → ",
      el("data", { value: after.rating, id: "rating-after" }, formatMs(after.rating)),
      el("span", { class: tone }, ` ${Math.abs(change) <= 1e-9 ? "no change" : signed(change)}`),
      el("span", { class: "quiet" }, `, rank ${rank} is the slowest`));
    this.verdict(after, lacks);
    this.loads(after, lacks);
    byId("why-changes").replaceChildren(...this.changes());
    byId("why-export").hidden = what.changes.size === 0;
    byId("why-reset").hidden = what.changes.size === 0;
    this.export();
  }

  verdict(after, lacks) {
    const words = [];
    const complaint = this.what.complaint(this.row);
    if (complaint) words.push(el("p", { class: "bad" }, complaint));
    for (const { rank, tier, bytes } of lacks.slice(0, 3)) {
      words.push(el("p", { class: "bad" },
        `Rank ${rank} lacks ${formatBytes(bytes)} of ${TIER_NAMES[tier]}.`));
    }
    if (lacks.length > 3) words.push(el("p", { class: "bad" }, `and ${lacks.length - 3} more`));
    if (!words.length) words.push(el("p", {}, el("span", { class: "good" }, "It fits.")));
    if (this.what.known.measure === "step") {
      words.push(el("p", { class: "quiet small" }, "The step is not computed here, the rating is."));
    }
    byId("why-verdict").replaceChildren(...words);
  }

  // Loads by rank, those that change most first; of all ranks if they are few.
  loads(after, lacks) {
    const { what } = this;
    const over = new Set(lacks.map(({ rank }) => rank));
    const moved = (rank) => Math.abs(after.cost[rank] - what.before.cost[rank]);
    const ranks = after.cost.map((_, rank) => rank);
    const weight = (rank) => (over.has(rank) ? Infinity : moved(rank) + 1e-6 * after.cost[rank]);
    const shown = ranks.length <= MOST_LOADS ? ranks
      : ranks.sort((a, b) => weight(b) - weight(a)).slice(0, MOST_LOADS).sort((a, b) => a - b);
    const most = Math.max(after.rating, what.before.rating) || 1;
    const tiers = [0, 1, 2].filter((tier) => largest(after.used[tier]) > 0);
    const rows = shown.map((rank) => this.load(rank, after, most, tiers));
    const titles = ["Rank", "Load", "Before", "After", ...tiers.map((tier) => TIER_NAMES[tier])];
    const kinds = ["", "wide", "num minor", "num", ...tiers.map(() => "num")];
    const head = titles.map((title, at) => el("th", { scope: "col", class: kinds[at] }, title));
    byId("why-loads").replaceChildren(el("table", { class: "loads" },
      el("thead", {}, el("tr", {}, ...head)), el("tbody", {}, ...rows)));
    byId("why-more").textContent = shown.length < after.cost.length
      ? `The ${shown.length} of ${formatCount(after.cost.length)} ranks that change most.` : "";
  }

  load(rank, after, most, tiers) {
    const { known, before } = this.what;
    const [old, now] = [before.cost[rank], after.cost[rank]];
    const bar = track([Math.min(old, now) / most, "fwd_compute"],
      [Math.abs(now - old) / most, now > old ? "beyond" : "usual"]);
    const memory = tiers.map((tier) => {
      const [used, room] = [after.used[tier][rank], known.capacity[tier][rank]];
      const words = `${formatBytes(used)} of ${formatBytes(Math.max(0, room))}`;
      return el("td", { class: used > room && used > 0 ? "num memory-cell bad" : "num memory-cell" },
        el("data", { value: used }, used > room && used > 0 ? `Over: ${words}` : words));
    });
    return el("tr", { "data-rank": rank }, el("th", { scope: "row" }, String(rank)),
      el("td", { class: "wide" }, bar),
      el("td", { class: "num minor" }, formatMs(old)),
      el("td", { class: "num" }, el("data", { class: "after", value: now }, formatMs(now))),
      ...memory);
  }

  changes() {
    return [...this.what.changes.keys()].map((row) => {
      const { option, ranks } = this.what.state(row);
      const own = this.what.known.tables[row].options[option];
      const distinct = [...new Set(ranks)].sort((a, b) => a - b);
      const several = distinct.length === 1 ? "rank" : "ranks";
      const where = ranks === null ? "all ranks" : `${several} ${distinct.join(", ")}`;
      const words = `${spaced(own.type)} ${spaced(own.kernel)}, ${where}`;
      const undo = button("Undo", () => {
        this.what.changes.delete(row);
        this.show(this.row);
        byId("why-title").focus({ preventScroll: true });
      });
      undo.setAttribute("aria-label", `Undo ${fullName(this.plan.tables[row])}`);
      const show = button(fullName(this.plan.tables[row]), () => this.show(row));
      show.className = "plain";
      return el("li", {}, el("span", {}, show, ` ${words}`), undo);
    });
  }

  format() {
    return document.querySelector("[name=export]:checked").value;
  }

  export() {
    const text = byId("export-text");
    text.value = this.what?.changes.size ? exported(this.what, this.format()) : "";
    text.rows = Math.min(MOST_LINES, text.value.split("\n").length);
    byId("export-done").textContent = "";
  }

  copy() {
    const text = byId("export-text");
    text.select();
    const done = (copied) => {
      byId("export-done").textContent = copied ? "Copied." : "Selected: copy it with the keyboard.";
    };
    if (navigator.clipboard) {
      navigator.clipboard.writeText(text.value).then(() => done(true), () => done(false));
    } else done(false);
  }

  save() {
    const url = URL.createObjectURL(new Blob([byId("export-text").value], { type: "text/plain" }));
    const link = el("a", { href: url, download: `constraints.${this.format()}` });
    link.click();
    URL.revokeObjectURL(url);
  }
}

// From nothing to something is no change by a share.
const relative = (before, after) => (before > 0 ? after / before - 1 : Number(after > 0));
const signed = (change) =>
  `${change < 0 ? "−" : "+"}${Math.abs(change) < 0.0005 ? "<0.1" : (100 * Math.abs(change)).toFixed(1)} %`;
