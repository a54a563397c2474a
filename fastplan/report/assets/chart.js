// The ranks as lanes over one axis: cost, balance, parts, memory.
const heat = (share) =>
  share < 0.5
    ? `color-mix(in oklab, var(--heat-mid) ${200 * share}%, var(--heat-low))`
    : `color-mix(in oklab, var(--heat-high) ${200 * share - 100}%, var(--heat-mid))`;

function niceTicks(most) {
  if (!(most > 0)) return [];
  const power = 10 ** Math.floor(Math.log10(most));
  const step = [0.2, 0.5, 1, 2].map((f) => f * power).find((size) => most / size <= 4) || power;
  const ticks = [];
  for (let tick = step; tick < most; tick += step) ticks.push(tick);
  return ticks;
}

const fullest = (tier, ranks) =>
  best(ranks, (rank) => tier.used[rank] - (tier.capacity ? tier.capacity[rank] : 0));

class Chart {
  constructor(plan, columns, width, scale) {
    Object.assign(this, { plan, columns, width, scale, left: 126, y: 0 });
    this.step = (width - this.left - 2) / columns.length;
    this.gap = this.step > 5 ? 1 : this.step > 3 ? 0.5 : 0;
    this.root = svg("svg", { "aria-hidden": "true" });
  }

  x(index) {
    return this.left + index * this.step;
  }

  bar(index, y, height, kind) {
    const made = svg("rect", {
      x: this.x(index).toFixed(2),
      y: y.toFixed(2),
      width: Math.max(0.5, this.step - this.gap).toFixed(2),
      height: Math.max(0, height).toFixed(2),
      class: kind,
    });
    this.root.append(made);
    return made;
  }

  text(x, y, words, attributes) {
    const made = svg("text", { x, y, ...attributes }, words);
    this.root.append(made);
    return made;
  }

  line(y, kind) {
    const ends = { x1: this.left, x2: this.width - 2 - this.gap, y1: y, y2: y };
    this.root.append(svg("line", { ...ends, class: kind }));
  }

  heading(title, note) {
    const made = this.text(0, this.y + 14, "");
    made.append(svg("tspan", { class: "strong" }, title), svg("tspan", { dx: 10 }, note));
    this.y += 24;
  }

  tick(y, words) {
    this.text(this.left - 8, y + 4, words, { "text-anchor": "end" });
  }

  costs(height) {
    const { plan, columns } = this;
    this.heading("Cost per step", `dashed: the mean, ${formatMs(plan.mean)}`);
    const base = this.y + height;
    const long = (value) => (value / this.scale.total) * height;
    for (const tick of niceTicks(this.scale.total)) {
      this.line(base - long(tick), "grid");
      this.tick(base - long(tick), formatMs(tick));
    }
    this.line(base, "grid");
    columns.forEach((column, i) => {
      let top = base;
      for (const part of RATED) {
        const size = long(plan.parts[part][column.worst]);
        top -= size;
        if (size > 0) this.bar(i, top, size, part);
      }
    });
    this.line(base - long(plan.mean), "mean");
    this.y = base + 10;
  }

  balance(height) {
    const { plan, columns, scale } = this;
    const above = (rank) => plan.total[rank] / plan.mean - 1;
    const top = plan.total[plan.worst];
    this.heading("Against the mean", `${worstRanks(plan)}, ${formatMs(top)}`);
    const half = height / 2;
    const middle = this.y + half;
    columns.forEach((column, i) => {
      const size = (above(column.worst) / scale.above) * half;
      if (size >= 0) this.bar(i, middle - size, size, "above");
      else this.bar(i, middle, -size, "below");
    });
    this.line(middle, "zero");
    this.tick(this.y + 4, `+${formatShare(scale.above)}`);
    this.tick(middle + half - 4, `−${formatShare(scale.above)}`);
    this.y = middle + half + 10;
  }

  heatmap(row) {
    this.heading("By part", "on one scale");
    this.ramp();
    for (const part of shownParts(this.plan)) {
      const values = this.plan.parts[part];
      this.tick(this.y + row / 2 - 0.5, PART_NAMES[part]);
      this.columns.forEach((column, i) => {
        const value = largest(column.ranks.map((rank) => values[rank]));
        const cell = this.bar(i, this.y, row - 1, "cell");
        cell.style.fill = heat(this.scale.part > 0 ? Math.min(1, value / this.scale.part) : 0);
      });
      this.y += row;
    }
    this.y += 10;
  }

  ramp() {
    const [steps, size] = [8, 10];
    const end = this.width - 84;
    this.text(end - steps * size - 8, this.y - 10, "0", { "text-anchor": "end" });
    this.text(end + 6, this.y - 10, formatMs(this.scale.part));
    for (let i = 0; i < steps; i += 1) {
      const box = { x: end - (steps - i) * size, y: this.y - 19, width: size, height: 10 };
      const cell = svg("rect", { ...box, class: "cell" });
      cell.style.fill = heat(i / (steps - 1));
      this.root.append(cell);
    }
  }

  bytes(tier, height) {
    const { used, capacity } = tier;
    this.heading(tier.name, tier.note);
    const base = this.y + height;
    const most = largest([...used, ...(capacity || [])]) || 1;
    const long = (value) => (value / most) * (height - 2);
    let outline = "";
    this.columns.forEach((column, i) => {
      const rank = fullest(tier, column.ranks);
      const over = capacity && used[rank] > capacity[rank];
      this.bar(i, base - long(used[rank]), long(used[rank]), over ? "over" : "memory");
      if (!capacity) return;
      const y = (base - long(capacity[rank])).toFixed(2);
      const end = (this.x(i + 1) - this.gap).toFixed(2);
      outline += `${outline ? "L" : "M"}${this.x(i).toFixed(2)} ${y}L${end} ${y}`;
    });
    this.line(base, "grid");
    if (outline) this.root.append(svg("path", { d: outline, class: "capacity" }));
    this.y = base + 10;
  }

  axis(view) {
    const { columns, step } = this;
    const many = columns.length > 32;
    let pace = Math.max(1, Math.ceil(44 / step));
    if (pace > 1) pace = Math.ceil(pace / 4) * 4;
    const byRank = view.order === "rank";
    this.y += 6;
    this.tick(this.y, byRank ? "Rank" : "Place by load");
    for (let i = 0; i < columns.length; i += pace) {
      const words = byRank ? columns[i].ranks[0] : i * columns[0].ranks.length + 1;
      const x = many ? this.x(i) : this.x(i) + (step - this.gap) / 2;
      this.text(x, this.y + 4, formatCount(words), { "text-anchor": many ? "start" : "middle" });
    }
    this.y += 14;
  }

  finish() {
    this.cursor = svg("rect", { y: 20, rx: 2, class: "cursor", height: this.y - 42 });
    this.root.append(this.cursor);
    this.root.setAttribute("viewBox", `0 0 ${this.width} ${this.y}`);
    return this;
  }

  point(index) {
    this.cursor.setAttribute("x", this.x(index) - 1);
    this.cursor.setAttribute("width", this.step - this.gap + 2);
  }
}

function drawn(plan, columns, width, scale, view) {
  const chart = new Chart(plan, columns, width, scale);
  if (plan.parts) {
    chart.costs(140);
    if (!plan.balanced) chart.balance(52);
    chart.heatmap(19);
  }
  for (const tier of plan.lanes) chart.bytes(tier, 64);
  chart.axis(view);
  return chart.finish();
}

function worstRanks(plan) {
  if (plan.tied < 2) return `rank ${plan.worst} is the worst`;
  const others = plan.tied === 2 ? "another rank" : `${formatCount(plan.tied - 1)} others`;
  return `rank ${plan.worst} and ${others} tie for the worst`;
}
