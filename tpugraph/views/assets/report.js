"use strict";
// The report: verdict and what must change, then what each TPU would make of the graph.

const MEMORY = { arguments: "#60a5fa", temporaries: "#f472b6", outputs: "#34d399", code: "#a78bfa" };
const LINES = ["#2563eb", "#db2777", "#059669", "#7c3aed", "#d97706", "#0891b2", "#dc2626", "#4b5563"];

function number(value, digits = 3) { return Number(value.toPrecision(digits)).toLocaleString("en", { maximumSignificantDigits: digits }); }

function seconds(value) {
  if (value >= 1) return `${number(value)} s`;
  return value >= 1e-3 ? `${number(value * 1e3)} ms` : `${number(value * 1e6)} \u00b5s`;
}

function fill(id, ...parts) { document.getElementById(id).append(...parts.flat()); }

function table(heads, rows) {
  return make("table", {}, make("tr", {}, heads.map((head) => make("th", {}, head))),
    rows.map((row) => make("tr", {}, row.map((cell) => make("td", {}, cell)))));
}

/** What is in the way, by cause; each sentence and each replacement once, with the nodes it is about. */
function findings(title, found) {
  if (!found.length) return [];
  const causes = grouped(found, (f) => f.cause);
  return [make("h2", {}, title), ...[...causes].flatMap(([cause, alike]) => [
    make("h3", {}, `${cause} (${alike.length})`),
    table(["what", "instead", "nodes"], [...grouped(alike, (f) => `${f.fault}\n${f.fix}`).values()].map((same) =>
      [make("span", { class: "bad" }, same[0].fault), make("span", { class: "fix" }, same[0].fix || ""), nodesOf(same)])),
  ])];
}

function grouped(items, key) {
  const found = new Map();
  for (const item of items) found.set(key(item), [...(found.get(key(item)) || []), item]);
  return found;
}

function nodesOf(found) {
  const names = found.map((f) => f.node).filter(Boolean);
  return names.slice(0, 5).join(", ") + (names.length > 5 ? ` and ${names.length - 5} more` : "");
}

function targets(all) {
  const heads = ["TPU", "compiles", "memory of a core", "a step takes at least", "bound by", "examples a second at most",
    "infeed", "all-reduce", "largest batch of a core"];
  return [make("h2", {}, "Which TPU"), table(heads, all.map((t) => t.error ? [t.topology, refused(t), "", "", "", "", "", "", ""] : [
    `${t.topology} (${t.cores} cores)`, `yes, in ${seconds(t.compiled.seconds)}`,
    `${bytesText(t.compiled.peak)} of ${bytesText(t.compiled.hbm)} (${number((100 * t.compiled.peak) / t.compiled.hbm, 2)} %)`,
    seconds(t.compiled.step_seconds), t.compiled.bound_by,
    t.examples_per_second ? number(t.examples_per_second) : "", bytesText(t.compiled.infeed_bytes), bytesText(t.compiled.all_reduce_bytes),
    t.largest_batch === null ? "not searched" : `${t.largest_batch.toLocaleString("en")} rows`])),
  make("p", { class: "small" }, "The time is what the peaks of the chip allow, by the compiler's count of operations and bytes: a real step takes longer. " +
    "Infeed and all-reduce are of each core and step." +
    (all.some((t) => !t.error && t.largest_batch === null) ? " With --largest_batch the command searches the largest batch that fits." : ""))];
}

function refused(target) {
  return [make("span", { class: "bad" }, `no: ${target.error}`), target.fix ? make("div", { class: "fix" }, target.fix) : ""];
}

/** What each way to lay the step on a mesh costs a core, a column for each. */
function ways(target) {
  const sum = (sizes) => Object.values(sizes).reduce((total, size) => total + size, 0);
  const rows = {
    "memory of a core": ({ cost }) => `${bytesText(cost.peak)} (arguments ${bytesText(cost.memory.arguments)}, temporaries ${bytesText(cost.memory.temporaries)})`,
    "a step takes at least": ({ cost }) => seconds(cost.step_seconds),
    "collectives": ({ cost }) => [bytesText(sum(cost.collectives)), make("div", { class: "small" }, Object.entries(cost.collectives).map(([kind, size]) => `${kind} ${bytesText(size)}`).join(", "))],
    "flags": (way) => make("code", {}, way.flags),
  };
  return [make("h2", {}, `Ways that fit a core of ${target.topology}`), table(["", ...target.ways.map((way) => way.what)],
    Object.entries(rows).map(([name, of]) => [name, ...target.ways.map(of)]))];
}

function bar(parts, whole) {
  return make("div", { class: "bar" }, parts.map(([size, colour, title]) =>
    make("span", { style: `width: ${Math.min(100, (100 * size) / whole)}%; background: ${colour}`, title: `${title}: ${bytesText(size)}` })));
}

/** Memory of a core against what there is, and the largest tensors, one TPU after the other. */
function memory(all) {
  const legend = Object.entries(MEMORY).flatMap(([kind, colour]) => [make("span", { class: "swatch", style: `background: ${colour}` }), kind]);
  const said = [make("h2", {}, "Memory of a core"), make("p", { class: "small" }, ...legend)];
  for (const t of all) {
    const parts = Object.entries(MEMORY).map(([kind, colour]) => [kind === "outputs" ? t.memory.outputs - t.memory.aliased : t.memory[kind], colour, kind]);
    said.push(make("div", { class: "row" }, make("strong", {}, t.topology), bar(parts, Math.max(t.hbm, t.peak)), `${bytesText(t.peak)} of ${bytesText(t.hbm)}`));
    const largest = Math.max(...t.tensors.map((tensor) => tensor.bytes));
    for (const tensor of t.tensors) said.push(tensorRow(tensor, largest));
    if (t.most_live) said.push(make("div", { class: "small" }, `Live at once, in HBM and on the chip: at most ${bytesText(t.most_live)}, by the compiler's count.`));
  }
  return said;
}

function tensorRow(tensor, largest) {
  const padding = tensor.bytes - tensor.elements;
  return make("div", { class: "row tensor" }, make("span", {}, tensor.node || "of the compiler", make("div", { class: "small" }, tensor.shape)),
    bar([[tensor.elements, "#60a5fa", "elements"], [padding, "#fca5a5", "padding"]], largest),
    `${bytesText(tensor.bytes)}${padding > 0 ? `, ${number((100 * padding) / tensor.bytes, 2)} % padding` : ""}${tensor.on_chip ? ", on chip" : ""}`);
}

function roofline(all) {
  const dots = all.map((t) => t.flops / t.bytes_accessed);
  const corners = all.map((t) => t.peak_flops / t.bandwidth);
  const low = Math.min(...dots, ...corners) / 10, high = Math.max(...dots, ...corners) * 10;
  const roof = (t, x) => Math.min(t.peak_flops, x * t.bandwidth) / 1e12;
  const lines = all.map((t, at) => ({ label: t.topology, showLine: true, pointRadius: 0, borderColor: LINES[at % LINES.length],
    backgroundColor: LINES[at % LINES.length], data: [low, t.peak_flops / t.bandwidth, high].map((x) => ({ x, y: roof(t, x) })) }));
  const points = all.map((t, at) => ({ label: `this step on ${t.topology}`, pointRadius: 7, backgroundColor: LINES[at % LINES.length],
    borderColor: "#fff", data: [{ x: dots[at], y: roof(t, dots[at]) }] }));
  const ticks = { callback: (value) => (Number.isInteger(Math.log10(value)) ? number(value, 1) : null) };
  document.getElementById("roofline").hidden = false;
  return new Chart("chart", { type: "scatter", data: { datasets: [...points, ...lines] },
    options: { animation: false, maintainAspectRatio: false,
      plugins: { legend: { position: "right", labels: { filter: (item) => !item.text.startsWith("this step") } } },
      scales: { x: { type: "logarithmic", ticks, title: { display: true, text: "operations for each byte that is read or written" } },
        y: { type: "logarithmic", ticks, suggestedMax: (2 * Math.max(...all.map((t) => t.peak_flops))) / 1e12, title: { display: true, text: "teraflops at most" } } } } });
}

const MOST_SHOWN = 20;

/** The largest values, and how many others there are; the JSON beside the page has all of them. */
function collectives(all) {
  const size = (some) => bytesText(some.reduce((total, c) => total + (c.bytes || 0), 0));
  const rest = all.slice(MOST_SHOWN);
  return [make("p", { class: "small" }, `${all.length.toLocaleString("en")} value${all.length === 1 ? "" : "s"}, ${size(all)} of a core.`),
    table(["value", "bytes of a core", "why"], all.slice(0, MOST_SHOWN).map((c) => [c.tensor, bytesText(c.bytes), c.how])),
    rest.length ? make("p", { class: "small" }, `... and ${rest.length.toLocaleString("en")} more with ${size(rest)} together.`) : ""];
}

function show(data) {
  const verdict = document.getElementById("verdict");
  verdict.textContent = data.verdict;
  verdict.className = data.runs ? "runs" : "stops";
  fill("findings", findings("What is in the way", data.findings.filter((f) => f.stops)),
    findings("What does not stop it, but needs care", data.findings.filter((f) => !f.stops)));
  const compiled = data.targets.filter((target) => target.compiled).map((target) => target.compiled);
  if (data.targets.length) fill("targets", targets(data.targets));
  fill("ways", data.targets.filter((target) => target.ways.length).flatMap(ways));
  if (compiled.length) fill("memory", memory(compiled));
  const measured = compiled.filter((t) => t.flops > 0 && t.bytes_accessed > 0);
  if (measured.length) window.chart = roofline(measured);
  if (data.collectives.length) {
    fill("collectives", make("h2", {}, "What the cores combine in each step"), collectives(data.collectives));
  }
  if (data.facts.length) fill("facts", make("h2", {}, "The conversion"), make("pre", {}, data.facts.join("\n")));
}

unpack("data").then((data) => {
  show(data);
  requestAnimationFrame(() => setTimeout(() => { document.body.dataset.painted = String(Math.round(performance.now())); }, 0));
});
