"use strict";
// How far plain and converted training are apart: a row for each variable, a column for each step.

const ROWS = 100;   // rows at first; a button shows the rest
const NUMBERS = 12; // steps up to which a cell holds its number
const SHADES = { same: "#f3f4f6", unread: "#ffffff", within: ["#dbeafe", "#bfdbfe", "#93c5fd", "#60a5fa"], beyond: ["#fed7aa", "#fdba74", "#f87171", "#dc2626"] };

let report, orders, shownOf;

function size(value) { return value === "not finite" ? Infinity : value === null ? -1 : value; }

function words(value) {
  if (value === null) return "not read: inside of a loop";
  return value === "not finite" ? value : value === 0 ? "0" : value.toExponential(1);
}

/** A shade for each factor of ten below the tolerance, and above it. */
function shade(value) {
  if (value === null) return SHADES.unread;
  if (value === 0) return SHADES.same;
  const tens = Math.log10(size(value) / report.tolerance);
  if (tens <= 0) return SHADES.within[Math.max(0, 3 + Math.ceil(tens))];
  return SHADES.beyond[Math.min(3, Math.floor(tens))];
}

function largest(cells) { return Math.max(...cells.map(size)); }

function firstBeyond(cells) {
  const at = cells.findIndex((cell) => size(cell) > report.tolerance);
  return at < 0 ? Infinity : at;
}

function wanted(text) {
  const pattern = /^\/(.+)\/$/.exec(text);
  if (!pattern) return (name) => name.includes(text);
  try {
    const found = new RegExp(pattern[1]);
    return (name) => found.test(name);
  } catch (error) {
    return () => false; // an expression that is not finished yet
  }
}

function ordered(grid) {
  const fits = wanted(document.getElementById("filter").value.trim());
  const names = Object.keys(grid.variables).filter(fits);
  return names.sort(orders[document.getElementById("order").value](grid.variables));
}

function cellOf(grid, name, step, value) {
  const cell = make("td", { style: `background: ${shade(value)}`, title: `${name}, step ${step}: ${words(value)}`, onclick: () => {
    for (const other of document.querySelectorAll(".chosen")) other.classList.remove("chosen");
    cell.classList.add("chosen");
    say(grid, name, step, value);
  } }, grid.losses.length <= NUMBERS && value !== null ? words(value) : "");
  cell.addEventListener("pointerenter", () => { if (!document.querySelector(".chosen")) say(grid, name, step, value); });
  return cell;
}

function say(grid, name, step, value) {
  const beyond = size(value) > report.tolerance ? `, more than the tolerance of ${report.tolerance}` : "";
  document.getElementById("cell").textContent = `${name} after step ${step}: ${words(value)}${beyond} (${grid.what})`;
}

function rowOf(grid, name, cells, kind) {
  return make("tr", { class: kind }, make("th", { class: "name", title: name }, name), cells.map((value, at) => cellOf(grid, name, at + 1, value)));
}

function table(grid) {
  const names = ordered(grid), shown = names.slice(0, shownOf.get(grid.what) || ROWS);
  const heads = grid.losses.map((_, at) => make("th", {}, grid.losses.length <= NUMBERS || at % 10 === 0 ? String(at + 1) : ""));
  const more = names.length - shown.length;
  return [
    make("h2", {}, grid.what),
    make("p", { class: "small" }, grid.first === null ? "Nothing passes the tolerance." : `The tolerance is passed first after step ${grid.first}.`,
      ` ${names.length.toLocaleString("en")} of ${Object.keys(grid.variables).length.toLocaleString("en")} variables.`),
    make("div", { class: "grid" }, make("table", {}, make("tr", {}, make("th", { class: "name" }, "step"), heads),
      rowOf(grid, "loss", grid.losses, "losses"), shown.map((name) => rowOf(grid, name, grid.variables[name], "")))),
    more > 0 ? make("button", { onclick: () => { shownOf.set(grid.what, names.length); draw(); } }, `show ${more.toLocaleString("en")} more`) : "",
  ];
}

function draw() {
  document.getElementById("grids").replaceChildren(...report.grids.flatMap((grid) => make("section", {}, table(grid))));
}

function legend() {
  const swatch = (colour, said) => [make("span", { class: "swatch", style: `background: ${colour}` }), said];
  const { within, beyond } = SHADES;
  return [swatch(SHADES.same, "no difference"), within.map((colour, at) => swatch(colour, at === 3 ? "within the tolerance" : "")),
    beyond.map((colour, at) => swatch(colour, at === 3 ? "beyond it, a shade for each factor of ten" : "")),
    ". Differences are relative to the largest element of a variable."];
}

function show(data) {
  report = data;
  shownOf = new Map();
  orders = {
    name: () => (one, other) => (one < other ? -1 : 1),
    largest: (rows) => (one, other) => largest(rows[other]) - largest(rows[one]) || (one < other ? -1 : 1),
    first: (rows) => (one, other) => (firstBeyond(rows[one]) === firstBeyond(rows[other]) ? orders.largest(rows)(one, other)
      : firstBeyond(rows[one]) - firstBeyond(rows[other])),
  };
  const verdict = document.getElementById("verdict");
  verdict.textContent = data.verdict;
  verdict.className = data.ok ? "runs" : "stops";
  document.getElementById("facts").textContent = `${data.batch}, tolerance ${data.tolerance}`;
  document.getElementById("legend").append(...legend().flat(2));
  document.getElementById("filter").addEventListener("input", draw);
  document.getElementById("order").addEventListener("change", draw);
  draw();
  document.getElementById("rest").append(...data.notes.map((note) => make("p", {}, `note: ${note}`)));
}

unpack("data").then((data) => {
  show(data);
  requestAnimationFrame(() => setTimeout(() => { document.body.dataset.painted = String(Math.round(performance.now())); }, 0));
});
