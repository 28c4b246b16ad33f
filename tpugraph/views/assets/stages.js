"use strict";
// The graph at one stage: which nodes are there, what each is by then, and what the stage did to it.

class Stages {
  constructor(data) {
    this.data = data;
    this.nodes = data.nodes;
  }

  alive(node, stage) {
    return node.born <= stage && (node.died === null || node.died > stage);
  }

  /** Numbers of the nodes to show: those that are there, and those that this stage removed. */
  shown(stage) {
    const found = [];
    this.nodes.forEach((node, number) => {
      if (this.alive(node, stage) || (stage > 0 && node.died === stage)) found.push(number);
    });
    return found;
  }

  /** "added", "removed", "changed" or "" of a node at a stage. */
  change(node, stage) {
    if (stage === 0) return "";
    if (node.died === stage) return "removed";
    if (node.born === stage) return "added";
    return node.versions.some((version) => version.stage === stage) ? "changed" : "";
  }

  /** Op, device, inputs, controls and attributes of a node at a stage. */
  at(node, stage) {
    const found = { op: "", device: "", inputs: [], controls: [], attrs: {} };
    for (const version of node.versions) {
      if (version.stage > stage) break;
      for (const key of ["op", "device", "inputs", "controls"]) {
        if (version[key] !== null) found[key] = version[key];
      }
      for (const [key, value] of Object.entries(version.attrs)) {
        if (value === null) delete found.attrs[key];
        else found.attrs[key] = value;
      }
    }
    return found;
  }

  /** Whether something about a node stops the step; a finding may be a mere note. */
  stops(node) {
    return node.findings.some((number) => this.data.findings[number].stops);
  }

  kind(node) {
    if (node.collective !== null) return "collective";
    return node.lives.length ? node.lives[0].kind : "";
  }

  /** The shortest chain of reasons from an output back to the input, as `tpugraph inspect --why` tells it. */
  chain(number, port) {
    const key = ([n, p]) => `${n}:${p}`;
    const lives = ([n, p]) => this.nodes[n].lives.find((l) => l.port === p);
    const before = new Map([[key([number, port]), null]]);
    const pending = [[number, port]];
    let end = null;
    for (const at of pending) { // grows while it is walked
      const deciding = (lives(at) || {}).deciding || [];
      if (!deciding.length && end === null) end = at;
      if (!deciding.length && lives(at) && lives(at).given) { end = at; break; }
      for (const next of deciding) {
        if (before.has(key(next))) continue;
        before.set(key(next), at);
        pending.push(next);
      }
    }
    const found = [];
    for (let at = end || pending[pending.length - 1]; at; at = before.get(key(at))) {
      found.unshift({ number: at[0], port: at[1], lives: lives(at) });
    }
    return found;
  }
}
