"use strict";
// What each way of colouring says of a node.

const PALETTES = {
  side: { device: "#93c5fd", host: "#fcd34d", "left out": "#d1d5db" },
  placement: { collective: "#c084fc", replicate: "#86efac", shard: "#93c5fd", entries: "#67e8f9", partial: "#f9a8d4",
    percore: "#fdba74", held: "#d6d3d1", none: "#e5e7eb" },
  change: { added: "#86efac", removed: "#fca5a5", changed: "#fcd34d", same: "#e5e7eb" },
  verdict: { "in the way": "#f87171", "nothing against it": "#bbf7d0", "not on the device": "#e5e7eb" },
};
const WORDS = {
  replicate: "replicated", shard: "sharded", entries: "ragged rows", partial: "partial sum or extreme", percore: "each core's own", held: "a container",
  collective: "a collective", none: "not partitioned", same: "as before",
};

function kindOf(stages, node, stage, way) {
  if (way === "side") return SIDES[node.side || ""];
  if (way === "placement") return stages.kind(node) || "none";
  if (way === "change") return stages.change(node, stage) || "same";
  if (stages.stops(node)) return "in the way";
  return node.side === "device" ? "nothing against it" : "not on the device";
}

/** The colours of a scope as stripes: each kind as wide as its share of the nodes. */
function stripes(stages, numbers, stage, way) {
  const counts = new Map();
  for (const number of numbers) {
    const kind = kindOf(stages, stages.nodes[number], stage, way);
    counts.set(kind, (counts.get(kind) || 0) + 1);
  }
  const colours = [], places = [];
  let done = 0;
  for (const kind of Object.keys(PALETTES[way])) {
    if (!counts.has(kind)) continue;
    const colour = PALETTES[way][kind];
    colours.push(colour, colour);
    places.push(`${(100 * done) / numbers.length}%`);
    done += counts.get(kind);
    places.push(`${(100 * done) / numbers.length}%`);
  }
  return { colours: colours.join(" "), places: places.join(" "), counts };
}

function legend(way) {
  const said = [];
  for (const [kind, colour] of Object.entries(PALETTES[way])) {
    said.push(make("span", { class: "swatch", style: `background: ${colour}` }), WORDS[kind] || kind);
  }
  said.push(make("span", { class: "swatch", style: "background: #ea580c" }), "between host and device");
  return said;
}
