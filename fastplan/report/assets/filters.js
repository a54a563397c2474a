// Filters by name and size, and lists as CSV files.
const UNITS = { b: 1, kib: 2 ** 10, mib: 2 ** 20, gib: 2 ** 30, tib: 2 ** 40, kb: 1e3, mb: 1e6,
  gb: 1e9, tb: 1e12 };
const SIZE = /^(\d+(?:\.\d+)?|\.\d+)\s*([kmgt]?i?b)?$/i;

function report(input, problem) {
  if (problem) input.setAttribute("aria-invalid", "true");
  else input.removeAttribute("aria-invalid");
  input.title = problem;
}

// Whether a name matches the regular expression in a field. A text that is no expression is taken
// literally: people type the beginning of one.
function nameFilter(input) {
  const wanted = input.value.trim();
  report(input, "");
  if (!wanted) return () => true;
  try {
    const pattern = new RegExp(wanted, "i");
    return (name) => pattern.test(name);
  } catch {
    report(input, "This is not a regular expression: names that contain the text are shown.");
    return (name) => name.toLowerCase().includes(wanted.toLowerCase());
  }
}

function parseSize(text) {
  const found = SIZE.exec(text.trim());
  return found ? Number(found[1]) * UNITS[(found[2] || "b").toLowerCase()] : null;
}

// Whether a size is in the range in a field, such as `>1GiB`, `<20MiB` or `1GiB-4GiB`.
function sizeFilter(input) {
  const wanted = input.value.trim();
  report(input, "");
  if (!wanted) return () => true;
  const sign = /^[<>]=?/.exec(wanted)?.[0] || "";
  const ends = wanted.slice(sign.length).split(/\s*[-–]\s*/).map(parseSize);
  if (ends.includes(null) || ends.length > (sign ? 1 : 2)) {
    report(input, "Write a size as >1GiB, <20MiB or 1GiB-4GiB: all sizes are shown.");
    return () => true;
  }
  const [first, last] = ends;
  if (sign === "<") return (size) => size !== null && size < first;
  if (sign === "<=") return (size) => size !== null && size <= first;
  if (sign === ">") return (size) => size !== null && size > first;
  return (size) => size !== null && size >= first && size <= (last ?? Infinity);
}

const sizeField = (label, action) => {
  const field = el("input", { type: "search", class: "size", placeholder: "Size, as >1GiB",
    "aria-label": label });
  field.addEventListener("input", action);
  return field;
};

const csvValue = (value) => {
  const text = value === null || value === undefined ? "" : String(value);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
};
const csvText = (titles, rows) =>
  [titles, ...rows].map((row) => `${row.map(csvValue).join(",")}\n`).join("");

// A button that saves a list as it is shown: filtered and in its order.
const csvButton = (file, label, titles, rows) => {
  const made = button("CSV", () => {
    const blob = new Blob([csvText(titles, rows())], { type: "text/csv" });
    const link = el("a", { href: URL.createObjectURL(blob), download: file });
    link.click();
    URL.revokeObjectURL(link.href);
  });
  made.setAttribute("aria-label", label);
  made.className = "csv";
  return made;
};
