"use strict";
// The graph on the page: only what is seen is laid out, edges between the same two things are one.

const MOST_SEEN = 1200;
const LONGEST_LABEL = 34; // characters
const STYLE = [
  { selector: "node", style: { shape: "round-rectangle", label: "data(label)", "font-size": 13, "text-valign": "center",
    "text-wrap": "wrap", width: "data(width)", height: 34, "border-width": 1, "border-color": "#6b7280" } },
  { selector: "node[colour]", style: { "background-color": "data(colour)" } },
  { selector: "node[colours]", style: { "border-width": 2, height: 40, "background-fill": "linear-gradient",
    "background-gradient-stop-colors": "data(colours)", "background-gradient-stop-positions": "data(places)",
    "background-gradient-direction": "to-right" } },
  { selector: "node.open", style: { "text-valign": "top", "background-fill": "solid", "background-color": "#f9fafb",
    "background-opacity": 0.6, padding: 12, "border-color": "#9ca3af",
    "font-weight": "bold", "font-size": 20 } },
  { selector: "node.removed", style: { "border-style": "dashed", "border-color": "#b91c1c" } },
  { selector: "node.stops", style: { "border-width": 3, "border-color": "#dc2626" } },
  { selector: "edge", style: { width: "data(width)", "line-color": "#9ca3af", "curve-style": "bezier", "arrow-scale": 0.7,
    "target-arrow-shape": "triangle", "target-arrow-color": "#9ca3af", "font-size": 15, label: "data(label)",
    "text-background-color": "#fff", "text-background-opacity": 0.85, "text-rotation": "autorotate" } },
  { selector: "edge.control", style: { "line-style": "dotted" } },
  { selector: "edge.cut", style: { "line-color": "#ea580c", "target-arrow-color": "#ea580c", color: "#9a3412" } },
  { selector: "edge.transfer", style: { "line-style": "dashed", width: 2.5 } },
  { selector: "edge:selected", style: { "line-color": "#1d4ed8", "target-arrow-color": "#1d4ed8" } },
  { selector: ".dim", style: { opacity: 0.18 } },
  { selector: ".hit", style: { "border-width": 4, "border-color": "#7c3aed" } },
  { selector: "node:selected", style: { "border-width": 4, "border-color": "#1d4ed8" } },
];

function newGraph(container) {
  return cytoscape({ container, style: STYLE, autoungrabify: true, boxSelectionEnabled: false, minZoom: 0.03, maxZoom: 3 });
}

const GAP = 150; // between host and device, where the bytes on the edges are told

/** Places what is seen: each side by itself, then the sides beside or below each other, whichever shows them larger. */
function layOut(cy) {
  const sides = cy.nodes().orphans();
  const dagre = { name: "dagre", fit: false, nodeSep: 14, rankSep: 30, edgeSep: 6, animate: false };
  if (sides.length > 3) { cy.layout(dagre).run(); return; }
  for (const side of sides) {
    const inside = side.union(side.descendants());
    inside.union(inside.edgesWith(inside)).layout(dagre).run();
  }
  const boxes = sides.map((side) => side.boundingBox());
  const across = zoomOf(cy, sum(boxes.map((box) => box.w + GAP)) - GAP, Math.max(...boxes.map((box) => box.h)));
  const down = zoomOf(cy, Math.max(...boxes.map((box) => box.w)), sum(boxes.map((box) => box.h + GAP)) - GAP);
  let at = 0;
  sides.forEach((side, number) => {
    const box = boxes[number];
    side.shift(across >= down ? { x: at - box.x1, y: -box.y1 } : { x: -box.x1, y: at - box.y1 });
    at += GAP + (across >= down ? box.w : box.h);
  });
}

function sum(numbers) { return numbers.reduce((total, one) => total + one, 0); }

/** The zoom at which something of a size fills the window. */
function zoomOf(cy, width, height) { return Math.min(cy.width() / width, cy.height() / height); }

/** A long name with its middle left out. */
function shortLabel(text) {
  if (text.length <= LONGEST_LABEL) return text;
  return `${text.slice(0, LONGEST_LABEL / 2 - 1)}\u2026${text.slice(1 - LONGEST_LABEL / 2)}`;
}

/** The elements of what is seen. */
function elementsOf(view, items, home) {
  const found = [];
  for (const item of items) {
    const parent = item.parent && item.parent.id ? item.parent.id : undefined;
    if (item.scopes === undefined) found.push(leafElement(view, item, parent));
    else found.push(scopeElement(view, item, parent));
  }
  return [...found, ...edgesOf(view, home)];
}

function leafElement(view, leaf, parent) {
  const node = view.stages.nodes[leaf.number];
  const kind = kindOf(view.stages, node, view.stage, view.way);
  const classes = [view.stages.change(node, view.stage) === "removed" ? "removed" : "", view.stages.stops(node) ? "stops" : ""];
  const label = shortLabel(leaf.label), op = shortLabel(leaf.op);
  const width = 18 + 7.6 * Math.max(label.length, op.length);
  return { group: "nodes", classes: classes.join(" "),
    data: { id: leaf.id, parent, number: leaf.number, label: label === op ? op : `${label}\n${op}`, width,
      colour: PALETTES[view.way][kind] } };
}

function scopeElement(view, scope, parent) {
  const { colours, places, counts } = stripes(view.stages, scope.numbers, view.stage, view.way);
  const open = view.open.has(scope.id);
  const stops = scope.numbers.some((number) => view.stages.stops(view.stages.nodes[number]));
  const many = scope.numbers.length;
  const said = view.way === "change" && view.stage ? changeText(counts) : "";
  const name = shortLabel(scope.label);
  const label = open ? name : `${name}\n${many.toLocaleString("en")} node${many === 1 ? "" : "s"}${said}`;
  const classes = ["scope", open ? "open" : "", stops ? "stops" : ""].join(" ");
  return { group: "nodes", classes,
    data: { id: scope.id, parent, label, colours, places, width: 30 + 7.8 * Math.max(name.length, 9 + said.length) } };
}

function changeText(counts) {
  const signs = [["added", "+"], ["removed", "\u2212"], ["changed", "~"]];
  const said = signs.filter(([kind]) => counts.has(kind)).map(([kind, sign]) => `${sign}${counts.get(kind)}`);
  return said.length ? `  ${said.join(" ")}` : "";
}

/** One edge for all between the same two things, with the bytes that go between host and device over it. */
function edgesOf(view, home) {
  const nodes = view.stages.nodes, found = new Map();
  const add = (source, port, target, kind, size) => {
    const from = home.get(source), to = home.get(target);
    if (from === undefined || to === undefined || from === to) return;
    const key = `${from}>${to}>${kind}`;
    const held = found.get(key) || { from, to, kind, values: [], bytes: 0, cut: false };
    held.values.push({ source, port, target, size });
    if (kind !== "control" && nodes[source].side !== nodes[target].side && nodes[source].side && nodes[target].side) {
      held.cut = true;
      held.bytes += size || 0;
    }
    found.set(key, held);
  };
  for (const number of home.keys()) {
    const version = view.stages.at(nodes[number], view.stage);
    for (const [source, port] of version.inputs) add(source, port, number, "data", nodes[source].bytes[port]);
    if (view.controls) for (const source of version.controls) add(source, 0, number, "control", 0);
  }
  if (view.stage === view.data.stages.length - 1) {
    for (const sent of view.data.transfers) add(sent.source, 0, sent.target, sent.kind, sent.bytes);
  }
  return [...found.values()].map(edgeElement);
}

function edgeElement(edge) {
  const moved = edge.cut && edge.bytes ? bytesText(edge.bytes) : "";
  const transfer = edge.kind === "infeed" || edge.kind === "outfeed";
  const classes = [edge.kind === "control" ? "control" : "", edge.cut ? "cut" : "", transfer ? "transfer" : ""].join(" ");
  return { group: "edges", classes,
    data: { id: `${edge.from}>${edge.to}>${edge.kind}`, source: edge.from, target: edge.to,
      width: Math.min(6, 1 + Math.log2(edge.values.length) / 2), label: transfer ? `${edge.kind} ${moved}` : moved, edge } };
}
