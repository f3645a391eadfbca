"use strict";
(() => {
  const $ = (selector, at = document) => at.querySelector(selector);
  const $$ = (selector, at = document) => [...at.querySelectorAll(selector)];
  const data = JSON.parse($("#data").textContent);
  const root = document.documentElement;
  root.classList.add("js"); // without scripts all panes are shown; bodies fold all the same
  const panes = $$(".pane");
  const told = $(".told");
  const narrow = matchMedia("(max-width: 899px)");
  const make = (tag, attributes = {}, ...children) => {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children);
    return element;
  };

  // ---------------------------------------------------------------- numbers, as Python writes them
  const si = (n, unit = "") => {
    for (const prefix of ["", "k", "M", "G", "T", "P", "E"]) {
      const digits = !prefix ? 0 : n < 9.995 ? 2 : n < 99.95 ? 1 : 0;
      if (Number(n.toFixed(digits)) < 1000 || prefix === "E") return n.toFixed(digits) + (prefix || unit ? ` ${prefix}${unit}` : "");
      n /= 1000;
    }
  };

  // ---------------------------------------------------------------- elements by source line and variable
  const bySource = new Map();
  const byVariable = new Map();
  const collect = (at) => {
    for (const e of $$("[data-s]", at)) put(bySource, e.dataset.s, e);
    for (const e of $$("[data-v]", at)) put(byVariable, e.dataset.v, e);
  };
  const put = (map, key, element) => (map.get(key) || map.set(key, []).get(key)).push(element);
  const forget = (at) => {
    for (const map of [bySource, byVariable])
      for (const [key, all] of map) map.set(key, all.filter((e) => !at.contains(e)));
  };
  const rowOf = (element) => element.closest(".r[id]");
  const lineOf = (element) => {
    const id = element.id?.startsWith("e") ? element.id.slice(1) : element.dataset.n;
    return id === undefined ? null : id.split("-").map(Number);
  };

  let marked = [];
  let pinned = null; // {row | source | variable}
  const mark = (element, name) => { element.classList.add(name); marked.push([element, name]); };
  const unmark = () => { for (const [element, name] of marked) element.classList.remove(name); marked = []; };

  const markSource = (s) => { for (const e of bySource.get(s) || []) mark(e, "same"); };
  const markLine = (id, how) => {
    const row = document.getElementById(id);
    if (!row) return;
    if (row.dataset.s !== undefined) markSource(row.dataset.s);
    mark(row, how);
    for (const e of $$(`.node[data-n="${id.slice(1)}"]`)) mark(e, how);
  };
  const isBinder = (e) => e.nextElementSibling?.tagName === "I";
  const outside = (binder) => binder.closest(".in")?.parentElement.querySelector(`:scope > summary b[data-v="${binder.dataset.o}"]:not(:has(+ i))`);
  const markVariable = (key) => {
    const input = (byVariable.get(key) || []).find((e) => e.dataset.o);
    if (input && outside(input)) mark(outside(input), "use"); // the operand outside of the body
    for (const e of byVariable.get(key) || [])
      mark(e, e.tagName === "B" ? (isBinder(e) ? "def" : "use") : e.classList.contains("wide") ? "over" : e.classList.contains("node") ? "def" : "use");
  };
  const show = (subject) => {
    if (!subject) return;
    if (subject.variable) markVariable(subject.variable);
    if (subject.row) markLine(subject.row, subject === pinned ? "pin" : "on");
    if (subject.source) { markSource(subject.source); for (const e of bySource.get(subject.source) || []) if (e.matches(".p")) mark(e, subject === pinned ? "pin" : "on"); }
  };
  const subjectOf = (target) => {
    const v = target.closest("[data-v]");
    const line = target.closest(".r[id], .node[data-n]");
    const row = line && (line.id || `e${line.dataset.n}`);
    if (v && !v.classList.contains("node")) return { variable: v.dataset.v, row: v.closest("svg") ? null : row };
    if (row) return { row };
    if (v) return { variable: v.dataset.v };
    const p = target.closest(".p[data-s]");
    return p ? { source: p.dataset.s } : null;
  };
  let hovered = null;
  const refresh = () => { unmark(); show(pinned); if (hovered) show(hovered); tell(hovered || pinned); };
  document.addEventListener("pointerover", (event) => {
    if (event.pointerType === "touch" || dragging) return;
    const found = event.target.closest?.("main") ? subjectOf(event.target) : null;
    if (JSON.stringify(found) === JSON.stringify(hovered)) return;
    hovered = found;
    refresh();
  });

  // ---------------------------------------------------------------- details of the selection
  const plain = (row) => {
    const code = row.querySelector("code").cloneNode(true);
    for (const e of $$(".dots, .t", code)) e.remove();
    for (const e of $$("q", code)) e.textContent = `[${e.textContent}]`;
    for (const e of $$(".xs", code)) e.prepend(" ");
    return code.textContent.trim();
  };
  const part = (what, value) => make("span", {}, make("span", {}, `${what} `), value);
  const link = (text, go) => { const a = make("a", { role: "button", tabindex: "0" }, text); a.onclick = go; a.onkeydown = (e) => e.key === "Enter" && go(); return a; };
  const tell = (subject) => {
    const parts = [];
    const row = subject?.row && document.getElementById(subject.row);
    const full = subject && subject === pinned;
    if (subject?.variable) {
      const all = (byVariable.get(subject.variable) || []).filter((e) => e.tagName === "B");
      const def = all.find(isBinder);
      const uses = all.filter((e) => e !== def && rowOf(e));
      if (def) parts.push(make("strong", {}, def.textContent + def.nextElementSibling.textContent));
      else if (all[0]) parts.push(make("strong", {}, all[0].textContent));
      const place = (e) => link(rowOf(e).querySelector(".n").textContent, () => reveal(rowOf(e)));
      if (def?.closest(".h")) parts.push(part("is", "an input of the body"));
      else if (def && rowOf(def)) parts.push(part("made in line", place(def)));
      else if (def) parts.push(part("is", "an input"));
      if (def?.dataset.o && outside(def)) parts.push(part("outside", outside(def).textContent));
      const list = make("span");
      uses.slice(0, 12).forEach((e, i) => list.append(i ? ", " : "", place(e)));
      if (uses.length > 12) list.append(` and ${uses.length - 12} more`);
      parts.push(uses.length ? part(uses.length > 1 ? `used ${uses.length} times, in lines` : "used in line", list) : part("", "never used"));
    }
    const at = row && lineOf(row);
    const step = at && data.steps[at[0]];
    const figures = step?.lines?.[at[1]];
    if (figures && (!subject.variable || full)) {
      const [flops, transcendentals, integers, read, written, runs, during, after, scope] = figures;
      if (full) parts.push(make("code", {}, plain(row)));
      else parts.push(make("strong", {}, row.querySelector("u")?.textContent || ""));
      if (runs !== 1) parts.push(part("runs", `${runs} times`));
      if (flops) parts.push(part("flop", si(flops)));
      if (transcendentals) parts.push(part("transcendental", si(transcendentals)));
      if (integers) parts.push(part("integer", si(integers)));
      if (read || written) parts.push(part("reads", si(read, "B")), part("writes", si(written, "B")));
      if (flops && read + written) parts.push(part("flop/B", (flops / (read + written)).toPrecision(2)));
      parts.push(part("live while it runs", si(during, "B")), part("after", si(after, "B")));
      if (scope) parts.push(part("in", step.scopes[scope]));
    } else if (row && full) parts.push(make("code", {}, plain(row)));
    const s = row ? row.dataset.s : subject?.source;
    if (s !== undefined) parts.push(part("from", full ? link(data.places[s], () => revealSource(s)) : data.places[s]));
    if (subject?.source) {
      const here = front()?.dataset.pane;
      const work = data.steps[here]?.work?.[s];
      if (work) parts.push(part("equations", work[2]), part("operations", work[1]));
    }
    if (full) parts.push(Object.assign(link("clear (Esc)", () => pin(null)), { className: "x" }));
    told.hidden = !parts.length;
    told.replaceChildren(make("div", {}, ...parts));
  };

  const unfold = (element) => { for (let e = element.parentElement; e; e = e.parentElement) if (e.tagName === "DETAILS") e.open = true; };
  const reveal = (row, focus = true) => {
    const pane = row.closest(".pane");
    if (pane.dataset.pane !== "s") front(pane);
    else if (narrow.matches) front(pane);
    unfold(row);
    row.scrollIntoView({ block: "nearest" });
    if (focus) row.focus({ preventScroll: true });
  };
  const revealSource = (s) => { const p = (bySource.get(s) || []).find((e) => e.matches(".p")); if (p) reveal(p, false); };
  const pin = (subject) => {
    pinned = subject;
    hovered = null;
    refresh();
    if (!subject) return;
    const row = subject.row && document.getElementById(subject.row);
    const s = row ? row.dataset.s : subject.source;
    if (s === undefined || subject.variable) return;
    for (const pane of panes) {
      if (pane.contains(row) || (narrow.matches && !pane.classList.contains("front"))) continue;
      const first = (bySource.get(s) || []).find((e) => pane.contains(e) && e.matches(".r"));
      if (first && first.closest("[hidden]") === null) { unfold(first); scrollWithin(first); }
    }
    for (const [pane, graph] of graphs) {
      const line = row && pane.contains(row) ? row : (bySource.get(s) || []).find((e) => pane.contains(e) && e.matches(".r[id]"));
      if (line) graph.center(line.id.slice(1));
    }
  };
  const scrollWithin = (element) => { // without scrolling the pane itself into view
    const rows = element.closest(".rows");
    const box = element.getBoundingClientRect(), outer = rows.getBoundingClientRect();
    if (box.top < outer.top + 24 || box.bottom > outer.bottom - 40) rows.scrollTop += box.top - outer.top - outer.height / 3;
  };
  document.addEventListener("click", (event) => {
    const target = event.target;
    if (target.closest(".t")) { event.preventDefault(); const d = target.closest("details"); d.open = !d.open; return; }
    if (!target.closest("main") || dragged) return;
    if (target.closest(".f > summary")) event.preventDefault();
    if (target.closest(".h a")) {
      event.preventDefault();
      const there = document.getElementById(target.closest("a").hash.slice(1));
      pin({ row: there.id });
      reveal(there);
      return;
    }
    if (target.closest("button, a, .ins > summary")) return;
    const time = target.closest(".time");
    if (time) {
      const box = time.getBoundingClientRect(), lines = time.dataset.lines.split(",");
      const line = lines[Math.min(lines.length - 1, Math.floor((event.clientX - box.left) / box.width * lines.length))];
      const row = document.getElementById(`e${time.closest(".pane").dataset.pane}-${line}`);
      pin({ row: row.id }); setView(row.closest(".pane"), "code"); reveal(row);
      return;
    }
    const pane = target.closest(".pane");
    if (pane && pane.dataset.pane !== "s") front(pane);
    const found = subjectOf(target);
    pin(JSON.stringify(found) === JSON.stringify(pinned) ? null : found);
  });

  // ---------------------------------------------------------------- panes
  const tabOf = (pane) => $(`.tab[data-pane="${pane.dataset.pane}"]`);
  let frontPane = null;
  const front = (pane) => {
    if (pane) {
      frontPane = pane;
      pane.classList.remove("off");
      for (const p of panes) { p.classList.toggle("front", p === pane); tabOf(p).classList.toggle("front", p === pane); tabOf(p).setAttribute("aria-pressed", String(!p.classList.contains("off"))); }
      paintSource();
    }
    return frontPane;
  };
  const paintSource = () => {
    const work = data.steps[frontPane?.dataset.pane]?.work;
    if (!work) return;
    for (const p of $$(".p[data-s]")) {
      const [width, text, count] = work[p.dataset.s] || ["0", "", 0];
      const cell = $(".c", p);
      cell.style.setProperty("--w", width);
      cell.textContent = text === "0" ? "" : text;
      cell.title = `${count} equation${count === 1 ? "" : "s"}`;
    }
  };
  for (const tab of $$(".tab")) tab.onclick = () => {
    const pane = panes.find((p) => p.dataset.pane === tab.dataset.pane);
    const box = pane.getBoundingClientRect(), seen = box.left < innerWidth - 40 && box.right > 40; // scrolled into view if it is not visible
    const off = !narrow.matches && seen && !pane.classList.contains("off") && panes.filter((p) => !p.classList.contains("off")).length > 1;
    if (off) {
      pane.classList.add("off");
      tab.setAttribute("aria-pressed", "false");
      if (pane === frontPane) front(panes.find((p) => !p.classList.contains("off") && p.dataset.pane !== "s") || null);
    } else { front(pane); pane.scrollIntoView({ inline: "nearest", block: "nearest" }); }
  };
  const steps = panes.filter((p) => p.dataset.pane !== "s");
  const setView = (pane, view) => {
    const graph = $(".graph", pane);
    if (!graph) return;
    graph.hidden = view !== "graph";
    $(".rows", pane).hidden = view === "graph";
    for (const b of $$("[data-view]", pane)) b.setAttribute("aria-pressed", String(b.dataset.view === view));
    if (view === "graph") { if (!graphs.has(pane)) graphs.set(pane, graphIn(pane)); if (pinned?.row) graphs.get(pane).center(pinned.row.slice(1)); }
    refresh();
  };
  for (const button of $$("[data-view]")) button.onclick = () => { const pane = button.closest(".pane"); front(pane); setView(pane, button.dataset.view); };

  // ---------------------------------------------------------------- the graph
  const SVG = "http://www.w3.org/2000/svg";
  const svg = (tag, attributes = {}, text) => {
    const element = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    if (text !== undefined) element.textContent = text;
    return element;
  };
  const HEIGHT = { e: 26, i: 22, o: 22, r: 18, b: 18 }, GAP = 44, PAD = 14, HEAD = 30;
  const graphs = new Map();

  const graphIn = (pane) => {
    const index = pane.dataset.pane, step = data.steps[index];
    const canvas = $(".graph svg", pane), world = svg("g");
    const opened = new Set();
    const within = new Map(); // the equation that encloses each body's nodes
    for (const [line, bodies] of Object.entries(step.bodies))
      for (const [key] of bodies) for (const node of step.graphs[key].nodes) if (node[5] >= 0) within.set(node[5], Number(line));
    if (step.lines.length <= 40) for (const line of Object.keys(step.bodies)) opened.add(Number(line));
    let view = { x: 0, y: 0, k: 1 }, size = { width: 0, height: 0 }, places = new Map();

    // Makes room for opened nodes: layers grow, neighbours in the layer move aside, everything below moves down.
    const arrange = (key) => {
      const { nodes } = step.graphs[key];
      const insides = nodes.map((n) => opened.has(n[5]) && step.bodies[n[5]] ? step.bodies[n[5]].map(([k, label]) => ({ label, ...arrange(k) })) : null);
      const widths = nodes.map((n, i) => insides[i] ? Math.max(n[3], insides[i].reduce((w, b) => w + b.width + PAD, PAD)) : n[3]);
      const heights = nodes.map((n, i) => insides[i] ? HEAD + Math.max(...insides[i].map((b) => b.height)) + PAD + 16 : HEIGHT[n[0]]);
      const bands = [];
      nodes.forEach((n, i) => { const b = (bands[n[1]] ||= { height: 0, grown: [], top: 0 }); b.height = Math.max(b.height, heights[i]); if (insides[i]) b.grown.push([n[2], (widths[i] - n[3]) / 2, i]); });
      let top = 0;
      for (const band of bands) { band.top = top; top += band.height + GAP; }
      const xs = nodes.map((n, i) => band_x(n, i, bands[n[1]].grown));
      const left = Math.min(...xs.map((x, i) => x - widths[i] / 2)), right = Math.max(...xs.map((x, i) => x + widths[i] / 2));
      return { key, nodes, insides, widths, heights, bands, xs: xs.map((x) => x - left), width: nodes.length ? right - left : 40, height: Math.max(top - GAP, 10) };
    };
    const band_x = (n, i, grown) => grown.reduce((x, [at, by, which]) => which === i ? x : x + Math.sign(n[2] - at) * by, n[2]);

    const draw = (into, g, ox, oy) => {
      const wires = svg("g"), boxes = svg("g"), labels = svg("g");
      into.append(wires, boxes, labels);
      const name = (v) => `${index}.${v}`;
      const top = (i) => g.bands[g.nodes[i][1]].top, bottom = (i) => top(i) + g.bands[g.nodes[i][1]].height;
      const y0 = (i) => top(i) + (bottom(i) - top(i) - g.heights[i]) / 2, y1 = (i) => y0(i) + g.heights[i];
      const curve = (x0, ya, x1, yb) => { const m = ((ya + yb) / 2).toFixed(1); return `C${x0.toFixed(1)},${m} ${x1.toFixed(1)},${m} ${x1.toFixed(1)},${yb.toFixed(1)}`; };
      for (const [v, source, port, bends, targets] of step.graphs[g.key].edges) {
        const count = g.nodes[source][6].length;
        const chain = [[source, g.xs[source] + g.widths[source] * ((port + 0.5) / count - 0.5)], ...bends.map((b) => [b, g.xs[b]])];
        let d = `M${chain[0][1].toFixed(1)},${y1(source).toFixed(1)}V${bottom(source).toFixed(1)}`;
        for (let i = 1; i < chain.length; i++) d += curve(chain[i - 1][1], bottom(chain[i - 1][0]), chain[i][1], top(chain[i][0])) + `V${bottom(chain[i][0]).toFixed(1)}`;
        for (const [t, operand, operands] of targets) {
          const [from, x] = chain[Math.min(g.nodes[t][1] - 1 - g.nodes[source][1], chain.length - 1)];
          const end = g.xs[t] + g.widths[t] * ((operand + 1) / (operands + 1) - 0.5);
          d += `M${x.toFixed(1)},${bottom(from).toFixed(1)}${curve(x, bottom(from), end, top(t))}V${y0(t).toFixed(1)}`;
        }
        wires.append(svg("path", { class: "wire", d, "data-v": name(v) }), svg("path", { class: "wide", d, "data-v": name(v) }));
      }
      g.nodes.forEach((n, i) => {
        const [role, , , , label, line, results] = n;
        if (role === "b") return;
        const x = g.xs[i], w = g.widths[i], y = y0(i), h = g.heights[i], inside = g.insides[i];
        const node = svg("g", { class: `node ${role}` + (line >= 0 ? ` k-${step.kinds[line]}` : "") + (inside ? " open" : "") });
        if (line >= 0) {
          node.dataset.n = `${index}-${line}`;
          const row = document.getElementById(`e${index}-${line}`);
          if (row?.dataset.s !== undefined) node.dataset.s = row.dataset.s;
          places.set(line, { x: ox + x, y: oy + y, w, h, node });
        } else if (results.length) node.dataset.v = name(results[0][0]);
        node.append(svg("rect", { x: x - w / 2, y, width: w, height: h, rx: role === "e" ? 5 : h / 2 }));
        const bodies = line >= 0 && step.bodies[line];
        node.append(svg("text", { class: "title", x: x + (bodies ? 6 : 0), y: y + (inside ? 17 : h / 2 + 4) }, label));
        if (bodies) {
          const tw = svg("text", { class: "tw", x: x - (label.length * 7.3) / 2 - 5, y: y + (inside ? 17 : h / 2 + 4) }, inside ? "▾" : "▸");
          const hit = svg("rect", { x: x - (label.length * 7.3) / 2 - 14, y, width: 22, height: inside ? HEAD - 4 : h, "data-open": line, style: "fill:transparent;stroke:none" });
          node.append(tw, hit);
        }
        boxes.append(node);
        let at = x - w / 2 + PAD + (inside ? (w - inside.reduce((s, b) => s + b.width + PAD, PAD)) / 2 : 0);
        for (const b of inside || []) {
          node.append(svg("text", { class: "label", x: at + b.width / 2, y: y + HEAD + 6 }, b.label));
          const inner = svg("g", { transform: `translate(${at.toFixed(1)},${y + HEAD + 16})` });
          node.append(inner);
          draw(inner, b, ox + at, oy + y + HEAD + 16);
          at += b.width + PAD;
        }
        if (role === "e" || role === "i")
          if (results.length <= 6) results.forEach(([, type], j) => labels.append(svg("text", { class: "ty", x: x + w * ((j + 0.5) / results.length - 0.5), y: bottom(i) + 13 }, step.types[type])));
      });
    };
    const redraw = () => {
      forget(world);
      world.replaceChildren();
      places = new Map();
      const g = arrange("");
      size = { width: g.width, height: g.height };
      draw(world, g, 0, 0);
      collect(world);
      refresh();
      search();
    };
    const move = () => world.setAttribute("transform", `translate(${view.x.toFixed(2)},${view.y.toFixed(2)}) scale(${view.k.toFixed(4)})`);
    const box = () => canvas.getBoundingClientRect();
    const zoom = (by, x = box().width / 2, y = box().height / 2) => {
      const k = Math.min(4, Math.max(0.02, view.k * by));
      view = { x: x - (x - view.x) * k / view.k, y: y - (y - view.y) * k / view.k, k };
      move();
    };
    const fit = (first = false) => {
      const { width, height } = box();
      const wide = (width - 32) / size.width, k = first ? Math.max(0.5, Math.min(1, wide)) : Math.max(0.02, Math.min(1.1, wide, (height - 56) / size.height));
      view = { k, x: (width - size.width * k) / 2, y: Math.max(16, (height - 40 - size.height * k) / 2) };
      if (size.height * k > height) view.y = 16;
      const begin = first && size.width * k > width && places.get(Math.min(...places.keys()));
      if (begin) view.x = width / 2 - begin.x * k;
      move();
    };
    const center = (id) => {
      const [step_, line] = id.split("-");
      if (step_ !== index || $(".graph", pane).hidden) return;
      let around = within.get(Number(line)), grew = false;
      for (; around !== undefined; around = within.get(around)) if (!opened.has(around)) { opened.add(around); grew = true; }
      if (grew) redraw();
      const p = places.get(Number(line));
      if (!p) return;
      const { width, height } = box(), k = Math.max(view.k, 0.55);
      const x = view.x + p.x * k, y = view.y + p.y * k;
      if (k !== view.k || x < 40 || y < 20 || x > width - 40 || y > height - 90) { view = { k, x: width / 2 - p.x * k, y: height * 0.4 - p.y * k }; move(); }
    };
    const toggle = (line) => {
      const before = places.get(line);
      opened.has(line) ? opened.delete(line) : opened.add(line);
      redraw();
      const after = places.get(line);
      view.x += (before.x - after.x) * view.k; view.y += (before.y - after.y) * view.k; // keeps it under the pointer
      move();
    };
    const all = (open) => { opened.clear(); if (open) for (const line of Object.keys(step.bodies)) opened.add(Number(line)); redraw(); fit(true); };

    canvas.append(world);
    redraw();
    fit(true);
    canvas.addEventListener("wheel", (e) => { e.preventDefault(); const b = box(); zoom(Math.exp(-e.deltaY * (e.ctrlKey ? 0.01 : 0.0016)), e.clientX - b.left, e.clientY - b.top); }, { passive: false });
    const fingers = new Map();
    canvas.addEventListener("pointerdown", (e) => { fingers.set(e.pointerId, [e.clientX, e.clientY]); dragged = false; });
    canvas.addEventListener("pointermove", (e) => {
      const last = fingers.get(e.pointerId);
      if (!last) return;
      const [other] = [...fingers].filter(([id]) => id !== e.pointerId).map(([, at]) => at);
      if (other) {
        const b = box(), far = (p) => Math.hypot(p[0] - other[0], p[1] - other[1]);
        zoom(far([e.clientX, e.clientY]) / Math.max(1, far(last)), other[0] - b.left, other[1] - b.top);
      } else { view.x += e.clientX - last[0]; view.y += e.clientY - last[1]; move(); }
      if (Math.hypot(e.clientX - last[0], e.clientY - last[1]) > 2 || dragging) { dragging = dragged = true; if (!canvas.hasPointerCapture(e.pointerId)) canvas.setPointerCapture(e.pointerId); }
      fingers.set(e.pointerId, [e.clientX, e.clientY]);
    });
    for (const over of ["pointerup", "pointercancel"]) canvas.addEventListener(over, (e) => { fingers.delete(e.pointerId); dragging = false; if (dragged) setTimeout(() => { dragged = false; }); });
    canvas.addEventListener("click", (e) => { const hit = e.target.closest("[data-open]"); if (hit && !dragged) { e.stopPropagation(); toggle(Number(hit.dataset.open)); } });
    canvas.addEventListener("dblclick", (e) => { const node = e.target.closest(".node[data-n]"); const line = node && Number(node.dataset.n.split("-")[1]); if (node && step.bodies[line]) toggle(line); else { const b = box(); zoom(1.6, e.clientX - b.left, e.clientY - b.top); } });
    const does = { in: () => zoom(1.4), out: () => zoom(1 / 1.4), fit: () => fit(), open: () => all(true), close: () => all(false) };
    for (const b of $$("[data-zoom]", pane)) b.onclick = () => does[b.dataset.zoom]();
    return { center, does };
  };
  let dragging = false, dragged = false;

  // ---------------------------------------------------------------- search
  const input = $(".search input"), output = $(".search output");
  let hits = [], place = -1;
  const search = () => {
    for (const e of $$(".hit, .now")) e.classList.remove("hit", "now");
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    document.body.classList.toggle("searching", words.length > 0);
    hits = [];
    place = -1;
    if (words.length)
      for (const row of $$(".code .r[id], .p")) {
        const text = row.querySelector("code").textContent.toLowerCase();
        if (words.every((w) => text.includes(w))) {
          row.classList.add("hit");
          if (row.id) { hits.push(row); for (const n of $$(`.node[data-n="${row.id.slice(1)}"]`)) n.classList.add("hit"); }
        }
      }
    output.textContent = words.length ? `${hits.length} found` : "";
  };
  const next = (by) => {
    const here = hits.filter((r) => !r.closest(".off") && (!narrow.matches || r.closest(".front")));
    if (!here.length) return;
    if (place >= 0) here[place % here.length]?.classList.remove("now");
    place = (place + by + here.length + (place < 0 && by < 0 ? 1 : 0)) % here.length;
    const row = here[place];
    row.classList.add("now");
    output.textContent = `${place + 1} of ${here.length}`;
    reveal(row, false);
    for (const pane of panes) if (pane.contains(row)) graphs.get(pane)?.center(row.id.slice(1));
  };
  input.addEventListener("input", search);
  input.addEventListener("keydown", (e) => {
    if (e.key === "Enter") next(e.shiftKey ? -1 : 1);
    if (e.key === "Escape") { input.value = ""; search(); input.blur(); }
    e.stopPropagation();
  });

  // ---------------------------------------------------------------- buttons and keys
  const theme = () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    try { localStorage.setItem("tracefx-theme", root.dataset.theme); } catch { /* a frame without storage */ }
  };
  try { const kept = localStorage.getItem("tracefx-theme"); if (kept) root.dataset.theme = kept; } catch { /* as above */ }
  const fold = () => { const all = $$(".f", frontPane || document); const open = !all.some((d) => d.open); for (const d of all) d.open = open; };
  const help = () => { const dialog = $(".help"); dialog.open ? dialog.close() : dialog.showModal(); };
  const does = { theme, fold, help };
  for (const button of $$("[data-do]")) button.onclick = () => does[button.dataset.do]();
  $(".help").addEventListener("click", (e) => { if (e.target === $(".help")) $(".help").close(); });

  const visible = (pane) => $$(".r[id]", pane).filter((r) => r.offsetParent !== null);
  const step = (by) => {
    const pane = frontPane, rows = visible(pane);
    if (!rows.length) return;
    const current = rows.indexOf(document.activeElement.closest?.(".r[id]") || (pinned?.row && document.getElementById(pinned.row)));
    const row = rows[Math.min(rows.length - 1, Math.max(0, current < 0 ? 0 : current + by))];
    row.focus();
    hovered = { row: row.id };
    refresh();
    const s = row.dataset.s;
    const p = s !== undefined && (bySource.get(s) || []).find((e) => e.matches(".p"));
    if (p && p.offsetParent) scrollWithin(p);
  };
  const foldOne = (open) => {
    const row = document.activeElement.closest?.(".r[id]");
    const own = row?.matches("summary") ? row.parentElement : null;
    if (own && own.open !== open) own.open = open;
    else if (!open && row) { const around = row.parentElement.closest(".f") === own ? own?.parentElement.closest(".f") : row.closest(".f"); around?.firstElementChild.focus(); }
    else if (open && own) step(1);
  };
  const other = (by) => { const open = steps.filter((p) => narrow.matches || !p.classList.contains("off")); const i = open.indexOf(frontPane); const pane = open[(i + by + open.length) % open.length]; front(pane); pane.scrollIntoView({ inline: "nearest", block: "nearest" }); };
  const keys = {
    j: () => step(1), ArrowDown: () => step(1), k: () => step(-1), ArrowUp: () => step(-1),
    h: () => foldOne(false), ArrowLeft: () => foldOne(false), l: () => foldOne(true), ArrowRight: () => foldOne(true),
    e: fold, t: theme, "?": help, "/": () => input.focus(), n: () => next(1), N: () => next(-1),
    g: () => { const graph = $(".graph", frontPane); if (graph) setView(frontPane, graph.hidden ? "graph" : "code"); },
    s: () => $('.tab[data-pane="s"]')?.click(), "[": () => other(-1), "]": () => other(1),
    Escape: () => { pin(null); input.value = ""; search(); },
    Enter: () => { const row = document.activeElement.closest?.(".r[id]"); if (row) pin(pinned?.row === row.id ? null : { row: row.id }); },
    "+": () => graphs.get(frontPane)?.does.in(), "=": () => graphs.get(frontPane)?.does.in(),
    "-": () => graphs.get(frontPane)?.does.out(), 0: () => graphs.get(frontPane)?.does.fit(),
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || $(".help").open || event.target.matches?.("input")) return;
    if (event.key === "Enter" && event.target.matches?.("button, a, .ins > summary")) return;
    const action = keys[event.key];
    if (action) { event.preventDefault(); action(); }
  });
  addEventListener("beforeprint", () => { for (const d of $$("details")) d.open = true; });

  collect(document);
  front(steps[0] || panes[0]);
})();
