"use strict";
// The panel beside the graph: the whole, a stage, a scope, or all that is known of one node.

const MOST_LISTED = 100;

function heading(text) { return make("h3", {}, text); }

function link(view, number, text) {
  return make("a", { href: "#", onclick: (event) => { event.preventDefault(); view.reveal(number); } }, text || view.stages.nodes[number].name);
}

function linkNamed(view, name) {
  const number = view.numberOf(name);
  return number === undefined ? document.createTextNode(name) : link(view, number, name);
}

function listed(items, most = MOST_LISTED) {
  if (!items.length) return [];
  const more = items.length > most ? [make("li", {}, `... and ${(items.length - most).toLocaleString("en")} more`)] : [];
  return make("ul", {}, items.slice(0, most).map((item) => make("li", {}, item)), more);
}

function rows(pairs) {
  return make("table", {}, pairs.map(([key, ...values]) => make("tr", {}, [key, ...values].map((v) => make("td", {}, v)))));
}

/** Of nothing in particular: the stage, what is said of the whole, and what stops it. */
function stagePanel(view) {
  const stage = view.data.stages[view.stage];
  const said = [make("h2", {}, stage.name), make("p", {}, stage.summary), counts(stage)];
  for (const stops of [true, false]) {
    const found = view.data.findings.filter((f) => f.stops === stops);
    if (found.length) said.push(heading(stops ? "in the way" : "needs care"), listed(found.map((f) => finding(view, f))));
  }
  const notes = stage.notes.map(([node, text]) => [linkNamed(view, node), ` ${text}`]);
  if (notes.length) said.push(heading(`notes (${notes.length})`), listed(notes));
  for (const kind of view.stage ? ["added", "removed", "changed"] : []) {
    const numbers = view.numbers.filter((n) => view.stages.change(view.stages.nodes[n], view.stage) === kind);
    if (numbers.length) said.push(heading(`${kind} (${numbers.length.toLocaleString("en")})`), listed(numbers.map((n) => link(view, n)), 30));
  }
  said.push(heading("stages"), stageTable(view));
  if (view.data.facts.length) said.push(heading("the conversion"), make("pre", {}, view.data.facts.join("\n")));
  return said;
}

function counts(stage) {
  return make("p", {}, `${stage.nodes.toLocaleString("en")} nodes: `, make("span", { class: "plus" }, `+${stage.added} `),
    make("span", { class: "minus" }, `\u2212${stage.removed} `), make("span", { class: "tilde" }, `~${stage.changed} `),
    stage.seconds ? ` in ${(stage.seconds * 1000).toFixed(1)} ms` : "");
}

function stageTable(view) {
  return make("table", {}, view.data.stages.map((stage, at) =>
    make("tr", at === view.stage ? { class: "now" } : {},
      make("td", {}, make("a", { href: "#", onclick: (event) => { event.preventDefault(); view.goTo(at); } }, stage.name)),
      [stage.nodes, `+${stage.added}`, `\u2212${stage.removed}`, `~${stage.changed}`].map((text) => make("td", { class: "number" }, text.toLocaleString("en"))))));
}

function finding(view, found) {
  return [make("span", { class: "bad" }, `${found.cause}: ${found.fault} `), found.node ? linkNamed(view, found.node) : "",
    found.fix ? make("div", { class: "fix" }, `fix: ${found.fix}`) : null];
}

function scopePanel(view, scope) {
  const open = view.open.has(scope.id);
  const ops = new Map();
  for (const n of scope.numbers) {
    const op = view.stages.at(view.stages.nodes[n], view.stage).op;
    ops.set(op, (ops.get(op) || 0) + 1);
  }
  const kinds = [...stripes(view.stages, scope.numbers, view.stage, view.way).counts];
  const outer = scope.parent && scope.parent.id ? [make("button", { onclick: () => view.toggle(scope.parent.id) }, "close the scope around it")] : [];
  return [make("h2", {}, scope.label), make("p", {}, `${scope.numbers.length.toLocaleString("en")} nodes`),
    make("button", { onclick: () => view.toggle(scope.id) }, open ? "close" : "open"), ...outer,
    heading(view.way === "side" ? "side" : view.way), rows(kinds.map(([kind, count]) => [WORDS[kind] || kind, String(count)])),
    heading("ops"), rows([...ops].sort((a, b) => b[1] - a[1]).slice(0, 30).map(([op, count]) => [op, String(count)]))];
}

/** What goes along an edge: each value with its readers on the other side. */
function edgePanel(view, edge) {
  const name = (id) => view.items.get(id).label, nodes = view.stages.nodes;
  const whose = edge.kind === "data" ? "per step and core" : "in a step, for all cores";
  const total = edge.cut ? [make("p", {}, `${bytesText(edge.bytes)} between host and device ${whose}`)] : [];
  const values = edge.values.map(({ source, port, target, size }) =>
    [link(view, source, nodes[source].name + (port ? `:${port}` : "")), " \u2192 ", link(view, target), size ? `, ${bytesText(size)}` : ""]);
  const count = `${values.length.toLocaleString("en")} ${edge.kind} edge${values.length === 1 ? "" : "s"}`;
  return [make("h2", {}, `${name(edge.from)} \u2192 ${name(edge.to)}`), make("p", {}, count), ...total, listed(values)].flat();
}

function nodePanel(view, number) {
  const node = view.stages.nodes[number], now = view.stages.at(node, view.stage);
  const facts = [["op", now.op], ["runs on", node.side || "neither: it is left out"], ["device", now.device], ["made by", node.made_by],
    ["made for", node.origin ? linkNamed(view, node.origin) : ""], ["combines", node.collective === null ? "" : `${bytesText(node.collective)} of each core per step`]];
  const said = [make("h2", {}, node.name), rows(facts.filter(([, value]) => value))];
  for (const n of node.findings) said.push(heading("finding"), make("p", {}, finding(view, view.data.findings[n])));
  if (node.outputs.length) said.push(heading("outputs"), listed(node.outputs.map((text, port) => `${text}${node.bytes[port] ? `, ${bytesText(node.bytes[port])}` : ""}`), 20));
  for (const lives of node.lives) said.push(...whyPart(view, number, lives));
  said.push(...notesPart(view, node));
  if (now.inputs.length) said.push(heading("reads"), listed(now.inputs.map(([n, port]) => link(view, n, view.stages.nodes[n].name + (port ? `:${port}` : "")))));
  if (now.controls.length) said.push(heading("waits for"), listed(now.controls.map((n) => link(view, n)), 20));
  const readers = view.numbers.filter((n) => view.stages.at(view.stages.nodes[n], view.stage).inputs.some(([from]) => from === number));
  if (readers.length) said.push(heading("read by"), listed(readers.map((n) => link(view, n)), 30));
  if (Object.keys(now.attrs).length) said.push(heading("attributes"), rows(Object.entries(now.attrs).map(([key, value]) => [key, shortened(value)])));
  return [...said, ...pastPart(view, node)];
}

function shortened(text) { return text.length > 400 ? `${text.slice(0, 400)} ... (${text.length.toLocaleString("en")} characters)` : text; }

/** Where a value lives, and the chain of reasons for it, from rule to rule back to the input. */
function whyPart(view, number, lives) {
  const chain = view.stages.chain(number, lives.port).map(({ number: n, port, lives: l }) =>
    [link(view, n, view.stages.nodes[n].name + (port ? `:${port}` : "")), l ? `: ${[l.text, l.because, ...l.collectives].join("; ")}` : ""]);
  const where = lives.port ? `output ${lives.port} lives` : "lives";
  return [heading(where), make("p", {}, lives.text),
    heading("because"), make("ol", { class: "because" }, chain.map((item) => make("li", {}, item)))];
}

function notesPart(view, node) {
  const notes = view.data.stages.flatMap((stage) => stage.notes.filter(([name, text]) => name === node.name || text.includes(`'${node.name}'`))
    .map(([name, text]) => `${stage.name}: ${name === node.name ? "" : `'${name}' `}${text}`));
  return notes.length ? [heading("notes"), listed(notes, 20)] : [];
}

/** What each stage did to a node. */
function pastPart(view, node) {
  const names = view.data.stages.map((stage) => stage.name);
  const past = node.versions.filter((version) => version.stage > node.born).map((version) => {
    const attrs = Object.entries(version.attrs).map(([key, value]) => value === null ? `${key} removed` : `${key}: ${shortened(value)}`);
    const words = [version.op === null ? [] : `op ${version.op}`, version.inputs === null ? [] : "inputs",
      version.controls === null ? [] : "control inputs", version.device === null ? [] : `device ${version.device || "none"}`, attrs].flat();
    return [names[version.stage], words.join("; ")];
  });
  if (node.born) past.unshift([names[node.born], "added"]);
  if (node.died !== null) past.push([names[node.died], "removed"]);
  return past.length ? [heading("changed by"), rows(past)] : [];
}
