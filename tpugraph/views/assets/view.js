"use strict";
// The page: its state, and what happens when something on it is used.

class View {
  constructor(data) {
    this.data = data;
    this.stages = new Stages(data);
    this.stage = data.stages.length - 1;
    this.apart = data.nodes.some((node) => node.side); // a conversion that stopped early tells no sides
    this.way = this.apart ? "side" : "verdict";
    this.controls = false;
    this.words = "";
    this.open = new Set(["device:", "host:"]);
    this.chosen = null;
    this.cy = newGraph(document.getElementById("graph"));
    this.listen();
    this.rebuild();
  }

  /** The tree of the stage, then the drawing. */
  rebuild() {
    this.numbers = this.stages.shown(this.stage);
    this.root = buildTree(this.stages, this.numbers, this.stage, this.apart);
    this.byName = new Map(this.numbers.map((number) => [this.stages.nodes[number].name, number]));
    this.head();
    this.draw();
    this.tell();
  }

  /** Lay out what is seen; what was clicked stays where it was. */
  draw(anchor) {
    const held = anchor === undefined ? null : this.placeOf(anchor);
    const items = visible(this.root, this.open);
    this.items = new Map(items.map((item) => [item.id, item]));
    this.home = showing(items, this.open);
    this.cy.batch(() => {
      this.cy.elements().remove();
      this.cy.add(elementsOf(this, items, this.home));
    });
    this.cy.resize();
    layOut(this.cy);
    if (held === null) this.cy.fit(undefined, 20);
    if (held === null && this.cy.zoom() > 1.3) { this.cy.zoom(1.3); this.cy.center(); }
    const now = held && this.placeOf(anchor);
    if (now) this.cy.panBy({ x: held.x - now.x, y: held.y - now.y });
    if (now) this.keepInSight();
    this.mark();
  }

  /** What is small enough to be seen whole is. */
  keepInSight() {
    const box = this.cy.elements().renderedBoundingBox();
    if (box.w > this.cy.width() || box.h > this.cy.height()) return;
    if (box.x1 < 0 || box.y1 < 0 || box.x2 > this.cy.width() || box.y2 > this.cy.height()) this.cy.center();
  }

  placeOf(id) {
    const box = this.cy.getElementById(id);
    return box.empty() ? null : { x: box.renderedBoundingBox().x1, y: box.renderedBoundingBox().y1 };
  }

  numberOf(name) {
    const found = this.byName.get(name);
    if (found !== undefined) return found;
    const other = this.stages.nodes.findIndex((node) => node.name === name);
    return other < 0 ? undefined : other;
  }

  // ---------------------------------------------------------------- what the user does

  toggle(id) {
    const opening = !this.open.has(id);
    if (opening) this.open.add(id);
    else this.open.delete(id);
    if (opening && visible(this.root, this.open).length > MOST_SEEN) {
      this.open.delete(id);
      this.say([make("p", { class: "bad" }, `More than ${MOST_SEEN} things would be seen at once: close a scope first.`)]);
      return;
    }
    this.draw(id);
    this.choose(id);
  }

  choose(id) {
    this.chosen = id;
    this.tell();
    this.cy.elements().unselect();
    this.cy.getElementById(id).select();
  }

  goTo(stage) {
    this.stage = stage;
    document.getElementById("stage").value = stage;
    this.rebuild();
  }

  /** Open the scopes around a node, go to a stage where it is there, and show it. */
  reveal(number) {
    const node = this.stages.nodes[number];
    if (!this.numbers.includes(number)) {
      this.stage = node.died === null ? node.born : node.died;
      this.goTo(this.stage);
    }
    const leaf = findLeaf(this.root, number);
    for (let at = leaf.parent; at && at.id; at = at.parent) this.open.add(at.id);
    this.draw();
    this.choose(leaf.id);
    this.cy.animate({ center: { eles: this.cy.getElementById(leaf.id) }, zoom: Math.max(1, this.cy.zoom()) }, { duration: 150 });
  }

  filter(words) {
    this.words = words.trim();
    this.chosen = null;
    this.mark();
    this.tell();
  }

  // ---------------------------------------------------------------- what the page says

  hits() {
    if (!this.words) return null;
    const pattern = /^\/(.+)\/$/.exec(this.words);
    let fits = (text) => text.toLowerCase().includes(this.words.toLowerCase());
    if (pattern) {
      try { const regular = new RegExp(pattern[1]); fits = (text) => regular.test(text); } catch { return []; }
    }
    return this.numbers.filter((number) => {
      const node = this.stages.nodes[number];
      return fits(node.name) || fits(this.stages.at(node, this.stage).op);
    });
  }

  /** What the filter lets through stands out, the rest is pale. */
  mark() {
    const hits = this.hits();
    this.cy.elements().removeClass("dim hit");
    if (hits === null) return;
    const seen = new Set(hits.map((number) => this.home.get(number)));
    this.cy.nodes().forEach((box) => {
      if (seen.has(box.id())) box.addClass("hit");
      else if (!box.hasClass("open")) box.addClass("dim");
    });
    this.cy.edges().addClass("dim");
  }

  say(parts) { document.getElementById("panel").replaceChildren(...parts.filter((part) => part !== null)); }

  /** What stands above and below the graph, which tells how much room there is for it. */
  head() {
    const stage = this.data.stages[this.stage];
    document.getElementById("stage-name").textContent = `${this.stage} ${stage.name}: +${stage.added} \u2212${stage.removed} ~${stage.changed}`;
    document.getElementById("legend").replaceChildren(...legend(this.way));
  }

  tell() {
    const item = this.items.get(this.chosen), edge = this.cy.getElementById(this.chosen || "").data("edge");
    if (edge) this.say(edgePanel(this, edge));
    else if (item) this.say(item.scopes === undefined ? nodePanel(this, item.number) : scopePanel(this, item));
    else if (this.words) this.say(this.hitsPanel());
    else this.say(stagePanel(this));
  }

  hitsPanel() {
    const hits = this.hits();
    return [make("h2", {}, `${hits.length.toLocaleString("en")} node${hits.length === 1 ? "" : "s"} with '${this.words}'`),
      listed(hits.map((number) => link(this, number)), 200)].flat();
  }

  listen() {
    const on = (id, event, action) => document.getElementById(id).addEventListener(event, action);
    const slider = document.getElementById("stage");
    slider.max = this.data.stages.length - 1;
    slider.value = this.stage;
    document.getElementById("sides").checked = this.apart;
    document.getElementById("colour").value = this.way;
    on("stage", "input", () => this.goTo(Number(slider.value)));
    on("colour", "change", (event) => { this.way = event.target.value; this.rebuild(); });
    on("controls", "change", (event) => { this.controls = event.target.checked; this.draw(); });
    on("sides", "change", (event) => { this.apart = event.target.checked; this.rebuild(); });
    on("filter", "input", (event) => this.filter(event.target.value));
    window.addEventListener("resize", () => { this.cy.resize(); this.cy.fit(undefined, 20); });
    this.cy.on("tap", (event) => { if (event.target === this.cy) this.choose(null); else this.choose(event.target.id()); });
    this.cy.on("dbltap", (event) => { if (event.target === this.cy) this.cy.fit(undefined, 20); });
    this.cy.on("dbltap", "node.scope", (event) => this.toggle(event.target.id()));
    const verdict = document.getElementById("verdict");
    if (this.data.runs === null) return;
    verdict.textContent = this.data.verdict;
    verdict.className = this.data.runs ? "runs" : "stops";
  }
}

function findLeaf(scope, number) {
  for (const leaf of scope.leaves) if (leaf.number === number) return leaf;
  for (const inner of scope.scopes.values()) if (inner.numbers.includes(number)) return findLeaf(inner, number);
  return undefined;
}

unpack("data").then((data) => {
  window.view = new View(data);
  requestAnimationFrame(() => setTimeout(() => { document.body.dataset.painted = String(Math.round(performance.now())); }, 0));
});
