"use strict";
// The tree of scopes. A scope of one node is not shown. One that holds very many things gets groups of what is alike, so that
// one look shows few of them.

const MOST_CHILDREN = 24;
const MOST_UNLIKE = 100;
const LEAST_ALIKE = 6;
const SIDES = { device: "device", host: "host", "": "left out" };

function newScope(id, label, parent) {
  return { id, label, parent, scopes: new Map(), leaves: [] };
}

/** The tree of the nodes of a stage. Each leaf is {id, number, label}; ids stay the same from stage to stage. */
function buildTree(stages, numbers, stage, apart) {
  const root = newScope("", "", null);
  const names = new Set();
  for (const number of numbers) {
    const name = stages.nodes[number].name;
    for (let at = name.indexOf("/"); at > 0; at = name.indexOf("/", at + 1)) names.add(name.slice(0, at));
  }
  for (const number of numbers) {
    const node = stages.nodes[number];
    let at = root;
    if (apart) at = child(at, `${SIDES[node.side || ""]}:`, SIDES[node.side || ""]);
    const side = at.id;
    const parts = node.name.split("/");
    const last = parts.pop();
    let path = "";
    for (const part of names.has(node.name) ? [...parts, last] : parts) {
      path = path ? `${path}/${part}` : part;
      at = child(at, `${side}${path}/`, part);
    }
    at.leaves.push({ id: `n${number}`, number, label: last, op: stages.at(node, stage).op, parent: at });
  }
  finish(root);
  return root;
}

function child(scope, id, label) {
  let found = scope.scopes.get(id);
  if (!found) scope.scopes.set(id, found = newScope(id, label, scope));
  return found;
}

/** Shorten chains of scopes that hold one scope each, group what is alike, and count nodes. */
function finish(scope) {
  for (const [id, inner] of [...scope.scopes]) {
    let at = inner;
    while (at.parent.id && !at.leaves.length && at.scopes.size === 1) {
      const only = at.scopes.values().next().value;
      only.label = `${at.label}/${only.label}`;
      only.parent = scope;
      at = only;
    }
    if (at !== inner) { scope.scopes.delete(id); scope.scopes.set(at.id, at); }
    finish(at);
    if (at.numbers.length === 1 && at.leaves.length) { // one node needs no scope
      const only = at.leaves[0];
      only.label = `${at.label}/${only.label}`;
      only.parent = scope;
      scope.scopes.delete(at.id);
      scope.leaves.push(only);
    }
  }
  if (scope.leaves.length + scope.scopes.size > MOST_CHILDREN) group(scope);
  count(scope);
}

/** Leaves of one op, and scopes whose names differ in a number at the end, become a group; a large group one of ranges. */
function group(scope) {
  const alike = new Map();
  const put = (key, item) => alike.has(key) ? alike.get(key).push(item) : alike.set(key, [item]);
  for (const leaf of scope.leaves) put(leaf.op, leaf);
  for (const inner of scope.scopes.values()) put(`${inner.label.replace(/_?\d+$/, "")}*`, inner);
  for (const [key, items] of alike) {
    if (items.length < LEAST_ALIKE || items.length === scope.leaves.length + scope.scopes.size) continue;
    inRanges(moved(items, scope, key), key);
  }
  if (scope.leaves.length + scope.scopes.size > MOST_UNLIKE) inRanges(scope, "");
}

/** What a group holds, by ranges, where it holds very much. */
function inRanges(scope, key) {
  const items = [...scope.leaves, ...scope.scopes.values()];
  if (items.length <= MOST_CHILDREN) return;
  const size = Math.max(MOST_CHILDREN, Math.ceil(Math.sqrt(items.length)));
  for (let start = 0; start < items.length; start += size) {
    const part = items.slice(start, start + size);
    moved(part, scope, `${key} ${start + 1}-${start + part.length}`);
  }
}

/** A new group in a scope, with some of what the scope holds. */
function moved(items, scope, label) {
  const made = newScope(`${scope.id}${label}#`, label, scope);
  const taken = new Set(items);
  scope.leaves = scope.leaves.filter((leaf) => !taken.has(leaf));
  for (const item of items) {
    item.parent = made;
    if (item.scopes === undefined) { made.leaves.push(item); continue; }
    scope.scopes.delete(item.id);
    made.scopes.set(item.id, item);
  }
  scope.scopes.set(made.id, made);
  return made;
}

function count(scope) {
  scope.numbers = scope.leaves.map((leaf) => leaf.number);
  for (const inner of scope.scopes.values()) for (const number of inner.numbers || count(inner)) scope.numbers.push(number);
  return scope.numbers;
}

/** Every scope and leaf that is seen while these scopes are open, in the order of the tree. */
function visible(root, open) {
  const found = [];
  const walk = (scope) => {
    for (const inner of scope.scopes.values()) {
      found.push(inner);
      if (open.has(inner.id)) walk(inner);
    }
    found.push(...scope.leaves);
  };
  walk(root);
  return found;
}

/** For each node the number is of, the id of what shows it: itself, or the closed scope around it. */
function showing(items, open) {
  const found = new Map();
  for (const item of items) {
    if (item.scopes === undefined) found.set(item.number, item.id);
    else if (!open.has(item.id)) for (const number of item.numbers) found.set(number, item.id);
  }
  return found;
}
