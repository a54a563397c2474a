// A fleet: filters by label and date, and figures of the jobs that they leave.
const DAY = 86400;
const HEIGHT = 170;
const LEFT = 44;
const RIGHT = 14;
const BOTTOM = 22;
const BINS = 24;

const jobs = data.jobs.begin.map((begin, i) => ({
  begin,
  job: data.jobs.job[i],
  seconds: data.jobs.seconds[i],
  train: data.jobs.train[i],
  start: data.jobs.start[i],
  recover: data.jobs.recover[i],
  failures: data.jobs.failures[i],
  phases: data.jobs.phases[i],
  labels: data.jobs.labels[i],
  link: data.jobs.link[i],
}));

const formatSeconds = (value) => {
  if (value >= 7200) return `${(value / 3600).toFixed(1)} h`;
  if (value >= 120) return `${(value / 60).toFixed(1)} min`;
  return value < 1 ? `${(1000 * value).toFixed(0)} ms` : `${value.toFixed(1)} s`;
};
const sum = (values) => values.reduce((a, b) => a + b, 0);
const countOf = (count, what) => `${formatCount(count)} ${what}${count === 1 ? "" : "s"}`;
const isoDay = (seconds) => new Date(1000 * seconds).toISOString().slice(0, 10);
const quantile = (ordered, part) => {
  const at = part * (ordered.length - 1);
  const low = Math.floor(at);
  const high = Math.min(low + 1, ordered.length - 1);
  return ordered[low] + (at - low) * (ordered[high] - ordered[low]);
};
const medianOf = (values) =>
  values.length ? quantile([...values].sort((a, b) => a - b), 0.5) : null;
const ettOf = (some) => {
  const whole = sum(some.map((job) => job.seconds));
  return whole > 0 ? sum(some.map((job) => job.train)) / whole : 0;
};

function selected() {
  const chosen = [...document.querySelectorAll("#filters select")]
    .filter((box) => box.value !== "")
    .map((box) => [Number(box.dataset.label), Number(box.value)]);
  const since = Date.parse(byId("since").value) / 1000;
  const until = Date.parse(byId("until").value) / 1000 + DAY;
  return jobs.filter(
    (job) =>
      chosen.every(([label, value]) => job.labels[label] === value) &&
      (Number.isNaN(since) || (job.begin !== null && job.begin >= since)) &&
      (Number.isNaN(until) || (job.begin !== null && job.begin < until))
  );
}

function tile(title, value, note) {
  return el(
    "div",
    { class: "tile" },
    el("h3", {}, title),
    el("p", { class: "value" }, value),
    el("p", { class: "note" }, note)
  );
}

const medianNote = (values, what) =>
  values.length ? `median of ${countOf(values.length, what)}` : `no ${what}`;

function showTiles(some) {
  const starts = some.map((job) => job.start).filter((value) => value !== null);
  const recoveries = some.flatMap((job) => job.recover);
  const failing = some.filter((job) => job.failures > 0).length;
  const lost = sum(some.map((job) => job.seconds - job.train));
  byId("tiles").replaceChildren(
    tile("ETT", formatShare(ettOf(some)), `of ${formatSeconds(sum(some.map((j) => j.seconds)))}`),
    tile("Time lost", formatSeconds(lost), countOf(some.length, "job")),
    tile("Time to Start", orDash(medianOf(starts), formatSeconds), medianNote(starts, "job")),
    tile(
      "Time to Recover",
      orDash(medianOf(recoveries), formatSeconds),
      medianNote(recoveries, "failure")
    ),
    tile(
      "Failures",
      formatCount(sum(some.map((j) => j.failures))),
      failing ? `in ${countOf(failing, "job")}` : "in no job"
    )
  );
}

function axes(root, width, height, most, format) {
  const up = (y) => 12 + (height - 12 - BOTTOM) * (1 - y / (most || 1));
  for (const part of [0, 0.5, 1]) {
    const y = up(part * most);
    root.append(svg("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y, y2: y }));
    root.append(svg("text", { x: LEFT - 6, y: y + 4, "text-anchor": "end" }, format(part * most)));
  }
  return up;
}

// By day, or by as many days that there are at most a hundred points.
function showOverTime(some) {
  const dated = some.filter((job) => job.begin !== null);
  const place = byId("over-time");
  if (!dated.length) {
    place.replaceChildren(el("p", { class: "quiet" }, "No job has a date."));
    return;
  }
  const width = Math.max(300, Math.min(1100, place.clientWidth - 32));
  const height = 200;
  const first = Math.floor(dated.reduce((a, job) => Math.min(a, job.begin), Infinity) / DAY);
  const last = Math.floor(dated.reduce((a, job) => Math.max(a, job.begin), 0) / DAY);
  const pace = Math.max(1, Math.ceil((last - first + 1) / 100));
  const groups = new Map();
  for (const job of dated) {
    const key = Math.floor((Math.floor(job.begin / DAY) - first) / pace);
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(job);
  }
  const label = `ETT from ${isoDay(first * DAY)} to ${isoDay(last * DAY)}`;
  const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  const up = axes(root, width, height, 1, (value) => `${100 * value} %`);
  const most = Math.max(1, (last - first) / pace);
  const across = (key) => LEFT + ((width - LEFT - RIGHT) * key) / most;
  let path = "";
  for (const key of [...groups.keys()].sort((a, b) => a - b)) {
    const own = groups.get(key);
    const [x, y] = [across(key).toFixed(1), up(ettOf(own)).toFixed(1)];
    path += `${path ? "L" : "M"}${x} ${y}`;
    const point = svg("circle", { class: "point", cx: x, cy: y, r: 3 });
    const day = isoDay((first + key * pace) * DAY);
    point.append(svg("title", {}, `${day}: ${formatShare(ettOf(own))}, ${countOf(own.length, "job")}`));
    root.append(point);
  }
  root.prepend(svg("path", { class: "curve", d: path }));
  const ends = [[LEFT, "start", first], [width - RIGHT, "end", last]];
  for (const [x, anchor, day] of last > first ? ends : ends.slice(0, 1)) {
    root.append(svg("text", { x, y: height - 5, "text-anchor": anchor }, isoDay(day * DAY)));
  }
  place.replaceChildren(root);
}

// The bins of a histogram. A few values far above all others share the last one: [from, to, count].
function binsOf(values, whole) {
  const ordered = [...values].sort((a, b) => a - b);
  const [low, high] = [ordered[0], ordered[ordered.length - 1]];
  const usual = quantile(ordered, 0.98);
  const far = high - low > 2 * (usual - low) && usual > low;
  const top = far ? usual : high;
  const count = whole ? Math.min(BINS, Math.ceil(top) - low + 1) : BINS;
  const step = whole ? Math.ceil((Math.ceil(top) - low + 1) / count) : (top - low) / count;
  const bins = Array.from({ length: count }, (_, i) => [low + i * step, low + (i + 1) * step, 0]);
  if (far) bins.push([bins[count - 1][1], high, 0]);
  for (const value of values) {
    bins[Math.min(bins.length - 1, Math.floor((value - low) / step))][2] += 1;
  }
  return { bins, far };
}

function histogram(place, values, what, format, whole) {
  if (!values.length) return el("p", { class: "quiet" }, "None.");
  if (values.every((value) => value === values[0])) {
    const all = `${format(values[0])} for ${values.length === 1 ? "the only" : "all"}`;
    return el("p", { class: "quiet" }, `${all} ${countOf(values.length, what)}.`);
  }
  const width = Math.max(260, Math.min(620, place.clientWidth));
  const { bins, far } = binsOf(values, whole);
  const middle = `median ${format(medianOf(values))}`;
  const root = svg("svg", {
    viewBox: `0 0 ${width} ${HEIGHT}`,
    role: "img",
    "aria-label": `${countOf(values.length, what)}, ${middle}`,
  });
  const most = largest(bins.map((bin) => bin[2]));
  const up = axes(root, width, HEIGHT, most, (value) => formatCount(Math.round(value)));
  const wide = (width - LEFT - RIGHT) / bins.length;
  bins.forEach(([from, to, count], i) => {
    const box = { x: LEFT + i * wide, y: up(count), width: Math.max(1, wide - 1) };
    const made = svg("rect", { ...box, class: "bar-of", height: up(0) - up(count) });
    const range = whole && to - from === 1 ? format(from) : `${format(from)} to ${format(to)}`;
    made.append(svg("title", {}, `${range}: ${countOf(count, what)}`));
    root.append(made);
  });
  const last = bins[bins.length - 1];
  const end = far ? `${format(last[0])} to ${format(last[1])}` : format(largest(values));
  const texts = [
    [LEFT, "start", format(bins[0][0])],
    [(LEFT + width) / 2, "middle", middle],
    [width - RIGHT, "end", end],
  ];
  for (const [x, anchor, text] of texts) {
    root.append(svg("text", { x, y: HEIGHT - 5, "text-anchor": anchor }, text));
  }
  return root;
}

function showDistributions(some) {
  const starts = some.map((job) => job.start).filter((value) => value !== null);
  const etts = some.map((job) => (job.seconds > 0 ? job.train / job.seconds : 0));
  const shown = [
    ["starts", starts, "job", formatSeconds],
    ["recoveries", some.flatMap((job) => job.recover), "failure", formatSeconds],
    ["failures", some.map((job) => job.failures), "job", String, true],
    ["etts", etts, "job", formatShare],
  ];
  for (const [id, values, ...rest] of shown) {
    byId(id).replaceChildren(histogram(byId(id), values, ...rest));
  }
}

function showPhases(some) {
  const times = new Array(data.phases.length).fill(0);
  const counts = new Array(data.phases.length).fill(0);
  for (const job of some) {
    for (let i = 0; i < job.phases.length; i += 2) {
      times[job.phases[i]] += job.phases[i + 1];
      counts[job.phases[i]] += 1;
    }
  }
  const lost = data.phases
    .map((phase, i) => ({ ...phase, time: times[i], jobs: counts[i] }))
    .filter((phase) => phase.time > 0 && !phase.trained)
    .sort((a, b) => b.time - a.time);
  const whole = sum(some.map((job) => job.seconds)) || 1;
  byId("phases").replaceChildren(
    ...lost.map((phase) =>
      el(
        "div",
        { class: "phase", title: countOf(phase.jobs, "job") },
        el("span", {}, phase.title),
        track([phase.time / lost[0].time, ""]),
        el("span", { class: "amount" }, formatSeconds(phase.time)),
        el("span", { class: "amount" }, formatShare(phase.time / whole))
      )
    )
  );
}

function showWorst(some) {
  const titles = ["Job", "Lost", "ETT", "Time to Start", "Failures"];
  const head = el("tr", {}, ...titles.map((t, i) => el("th", { class: i ? "num" : null }, t)));
  const worst = [...some].sort((a, b) => b.seconds - b.train - (a.seconds - a.train)).slice(0, 20);
  const rows = worst.map((job) => {
    const figures = [
      formatSeconds(job.seconds - job.train),
      formatShare(job.seconds > 0 ? job.train / job.seconds : 0),
      orDash(job.start, formatSeconds),
      formatCount(job.failures),
    ];
    const name = job.link ? el("a", { href: job.link }, job.job) : job.job;
    return el("tr", {}, el("td", {}, name), ...figures.map((f) => el("td", { class: "num" }, f)));
  });
  byId("worst").replaceChildren(el("thead", {}, head), el("tbody", {}, ...rows));
}

function show() {
  const some = selected();
  byId("job-count").textContent = `${formatCount(some.length)} of ${formatCount(jobs.length)}`;
  for (const part of [showTiles, showOverTime, showDistributions, showPhases, showWorst]) part(some);
}

data.labels.forEach((label, i) => {
  const box = el("select", { "data-label": i, "aria-label": label.name });
  box.append(el("option", { value: "" }, "all"));
  label.values.forEach((value, k) => box.append(el("option", { value: k }, value || "(none)")));
  box.addEventListener("change", show);
  byId("filters").append(el("label", {}, `${label.name} `, box));
});
for (const id of ["since", "until"]) byId(id).addEventListener("change", show);
window.addEventListener("resize", () => {
  const some = selected();
  showOverTime(some);
  showDistributions(some);
});
show();
