// A whole figure: its panels in rows, what answers to a pointer and to keys, legends, the switch of axes, downloads.
const charts = (() => {
  const { now, node, shape, fill, round, variable, wrap, say, swatch, letters, panelSvg, nameOf, describe, unique, forget, NS, FONT } = panels;
  const LEAST = 250, GAP = 22;

  // ---- pointing: the nearest place, or the cell of a map; arrows do the same from the keyboard
  function listen(state, plot, panel, made) {
    const tip = node("div", { class: "tip", hidden: "" }), ring = shape("g", { "pointer-events": "none" });
    made.svg.append(ring);
    plot.append(tip);
    let at = -1;
    const open = () => made.places.filter((p) => !p.one.groups.some((g) => state.hidden.has(g)));
    const hide = () => { tip.hidden = true; ring.replaceChildren(); at = -1; };
    function show(place, aloud) {
      const lines = content(state.chart, panel, place);
      tip.replaceChildren(...lines.map((line, i) => node(i || !lines.name ? "div" : "strong", {}, line)));
      tip.hidden = false;
      const room = plot.clientWidth, wide = tip.offsetWidth;
      tip.style.left = `${Math.max(0, Math.min(place.px + 12, room - wide))}px`;
      tip.style.top = `${place.py > tip.offsetHeight + 14 ? place.py - tip.offsetHeight - 10 : place.py + 16}px`;
      ring.replaceChildren(shape("circle", { cx: round(place.px), cy: round(place.py), r: 6.5, fill: "none", stroke: variable("--ink"), "stroke-width": 1.6 }));
      if (aloud) document.getElementById("said").textContent = lines.join(", ");
    }
    made.svg.addEventListener("pointermove", (event) => {
      const frame = made.svg.getBoundingClientRect(), mx = event.clientX - frame.left, my = event.clientY - frame.top;
      let best = null, least = 45 ** 2;
      for (const p of open()) {
        const flat = p.one.kind === "level" ? (p.one.axis === "x" ? (p.px - mx) ** 2 : (p.py - my) ** 2) * 16 + 100 : (p.px - mx) ** 2 + (p.py - my) ** 2;
        if (flat < least) [best, least] = [p, flat];
      }
      best ??= cell(panel, made, mx, my);
      if (best) { show(best); at = open().indexOf(best); } else hide();
    });
    made.svg.addEventListener("pointerleave", hide);
    plot.addEventListener("blur", hide);
    plot.addEventListener("keydown", (event) => {
      const all = open(), step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (event.key === "Escape") return hide();
      if (!all.length) return undefined;
      if (step) at = (at + step + all.length) % all.length;
      else if (event.key === "ArrowDown" || event.key === "ArrowUp") at = neighbour(all, Math.max(at, 0), event.key === "ArrowDown" ? 1 : -1);
      else if (event.key === "Home") at = 0;
      else if (event.key === "End") at = all.length - 1;
      else return undefined;
      event.preventDefault();
      return show(all[at], true);
    });
  }
  function neighbour(all, at, step) {
    const series = [...new Set(all.map((p) => p.one))], next = series[(series.indexOf(all[at].one) + step + series.length) % series.length];
    return all.findIndex((p) => p.one === next);
  }
  function content(chart, panel, place) {
    const lines = [], xName = panel.x.label || panel.x.shared || "x", yName = panel.y.label || panel.y.shared || "y";
    const known = (axis, v) => { const i = axis.ticks ? axis.ticks.at.indexOf(v) : -1; return i < 0 ? say(v) : axis.ticks.labels[i].replace("\n", " "); };
    if (place.one?.groups) { const name = nameOf(chart, place.one); if (name) { lines.push(name); lines.name = true; } }
    if (place.from !== undefined) lines.push(`${xName}: ${say(place.from)} to ${say(place.to)}`);
    if (place.x !== undefined) lines.push(`${xName}: ${known(panel.x, place.x)}${interval(place.range, "x")}`);
    if (place.y !== undefined) lines.push(`${yName}: ${known(panel.y, place.y)}${interval(place.range, "y")}`);
    if (place.value !== undefined) lines.push(`value: ${say(place.value)}`);
    return lines;
  }
  const interval = (found, along) => (found && found.along === along ? ` [${say(found.low)}, ${say(found.high)}]` : "");
  function cell(panel, made, mx, my) {
    const one = panel.maps.find((m) => m.values), { box } = made;
    if (!one || mx < box.left || mx > box.right || my < box.top || my > box.bottom) return null;
    const [rows, columns] = one.shape, [left, right, bottom, top] = one.extent;
    const u = (mx - made.x(left)) / (made.x(right) - made.x(left)), v = (my - made.y(top)) / (made.y(bottom) - made.y(top));
    const j = Math.floor(u * columns), i = Math.floor(v * rows);
    if (i < 0 || j < 0 || i >= rows || j >= columns) return null;
    return { px: mx, py: my, x: Math.round(left + (j + 0.5) * ((right - left) / columns)), y: Math.round(top + (i + 0.5) * ((bottom - top) / rows)), value: one.values[i * columns + j] };
  }

  // ---- the whole figure
  const AXES = { n: /^neurons n\b/, P: /^parameters P\b/ };
  const against = (panel) => Object.keys(AXES).find((name) => panel.x && AXES[name].test(panel.x.label || panel.x.shared));
  const measured = (state) => (now.paper ? 680 : state.grid.clientWidth);
  function render(state, width = measured(state)) {
    const { chart } = state;
    if (!width) return;
    state.width = width;
    const shown = chart.panels.filter((p) => state.view === "both" || against(p) === state.view);
    const most = Math.max(...shown.map((p) => shown.filter((q) => q.row === p.row).length));
    const full = state.view === "both" ? most : shown.length;
    const least = shown.every((p) => p.equal || p.picture) ? 170 : LEAST;
    // The figure's own places are kept where its narrowest panel has room; else panels flow, row by row.
    const narrowest = Math.min(...shown.map((p) => p.across)), cell = (width + GAP) / chart.columns;
    const kept = state.view === "both" && cell * narrowest - GAP >= least;
    const columns = kept ? chart.columns : Math.max(1, Math.min(full, Math.floor((width + GAP) / (least + GAP))));
    const one = (Math.min(width, columns === 1 ? 1100 : width) - GAP * (columns - 1)) / columns;
    state.grid.replaceChildren();
    state.grid.style.gridTemplateColumns = `repeat(${columns}, ${round(one)}px)`;
    const across = (p) => (kept ? p.across : p.across === chart.columns ? columns : 1);
    const wide = (p) => Math.floor(one * across(p) + GAP * (across(p) - 1));
    const heights = new Map();
    for (const p of shown) heights.set(p, height(p, wide(p)));
    if (kept) for (const p of shown) heights.set(p, Math.max(...shown.filter((q) => q.row === p.row && q.down === p.down).map((q) => heights.get(q))));
    const lines = (p) => (kept ? Math.max(...shown.filter((q) => q.row === p.row).map((q) => (q.y?.label ? wrap(q.y.label, wide(q) - 8).length : 0))) : 0);
    for (const panel of shown) state.grid.append(panelBox(state, panel, wide(panel), heights.get(panel), { kept, across: across(panel), columns, lines: lines(panel) }));
    state.foot.replaceChildren(legend(state, chart.legend));
    for (const bar of chart.bars) if (bar.panels.length !== 1) state.foot.append(colourBar(bar, Math.min(width, 420)));
    update(state);
  }
  function height(panel, width) {
    const named = panel.y?.ticks?.labels ?? [], rows = named.length * (9 + 13 * Math.max(0, ...named.map((text) => text.split("\n").length)));
    return Math.max(rows, Math.min(440, Math.max(panel.aspect > 3 ? 70 : 170, (width - 56) / panel.aspect)));
  }
  function panelBox(state, panel, width, tall, { kept, across, columns, lines }) {
    const place = kept ? `grid-column: ${panel.column + 1} / span ${across}; grid-row: ${3 * panel.row + 1} / span ${3 * panel.down}` : `grid-column: span ${across}; grid-row: span 3`;
    const made = node("div", { class: "panel", style: place }), index = state.chart.panels.indexOf(panel);
    made.append(node("p", { class: "panel-title" }, state.chart.title || state.chart.panels.length > 1 ? panel.title : ""));
    if (panel.picture) {
      const alt = panel.title || state.chart.title;
      made.append(node("div", { class: "plot picture" }, node("img", { src: panel.picture.png, alt, width, height: Math.round(width / panel.picture.aspect) })));
    } else {
      const drawn = panelSvg(state.chart, panel, width, tall, !kept || columns === 1, lines);
      const hint = `${describe(state.chart, panel).slice(0, 120)}. Arrow keys go from point to point.`;
      const plot = node("div", { class: "plot", tabindex: 0, role: "group", "aria-label": hint }, drawn.svg);
      made.append(plot);
      listen(state, plot, panel, drawn);
    }
    const foot = node("div", {}, legend(state, panel.legend));
    for (const bar of state.chart.bars) if (bar.panels.length === 1 && bar.panels[0] === index) foot.append(colourBar(bar, Math.min(width, 300)));
    made.append(foot);
    return made;
  }
  function legend(state, entries) {
    const made = node("ul", { class: "legend" });
    for (const entry of entries) {
      const look = state.chart.groups[entry.group], inside = [swatch(look), node("span", {}, entry.text)];
      const item = look.used ? node("button", { type: "button", "data-group": entry.group, "aria-pressed": "true", title: "Hide or show" }, ...inside) : node("span", { class: "entry" }, ...inside);
      if (look.used) item.addEventListener("click", () => { state.hidden.has(entry.group) ? state.hidden.delete(entry.group) : state.hidden.add(entry.group); update(state); });
      made.append(node("li", {}, item));
    }
    return entries.length ? made : node("span");
  }
  function colourBar(bar, width) {
    const id = unique("bar"), [low, high] = bar.limits, inner = width - 20, height = bar.label ? 48 : 34;
    const stops = bar.colours.map((c, i) => shape("stop", { offset: i / (bar.colours.length - 1), "stop-color": c }));
    const svg = shape("svg", { width, height, class: "bar", role: "img", "aria-label": `Colours: ${bar.label || "value"} from ${say(low)} to ${say(high)}` });
    svg.append(shape("linearGradient", { id }, ...stops), shape("rect", { x: 10, y: 4, width: inner, height: 10, fill: `url(#${id})`, rx: 2 }));
    svg.append(letters(say(low, 3), 10, 28), letters(say(high, 3), width - 10, 28, { "text-anchor": "end" }), letters(bar.label, width / 2, 42, { "text-anchor": "middle" }));
    return svg;
  }
  function update(state) {
    for (const part of state.host.querySelectorAll("g[data-groups]")) {
      const groups = part.dataset.groups.split(" ").filter(Boolean).map(Number);
      part.style.display = groups.some((g) => state.hidden.has(g)) ? "none" : "";
    }
    for (const button of state.host.querySelectorAll("button[data-group]")) button.setAttribute("aria-pressed", String(!state.hidden.has(Number(button.dataset.group))));
  }

  // ---- export: the view as one SVG of its own; what is HTML on the page (titles, legends) is set as text
  function standalone(state) {
    const frame = state.grid.getBoundingClientRect(), pad = 16, wide = Math.ceil(state.width + 2 * pad);
    const made = shape("svg", { xmlns: NS, "font-family": FONT }), head = state.chart.title ? 30 : 0;
    const start = frame.top, at = (found) => { const r = found.getBoundingClientRect(); return { x: r.left - frame.left + pad, y: r.top - start + pad + head, width: r.width }; };
    const tall = Math.ceil(state.foot.getBoundingClientRect().bottom - start + 2 * pad + head);
    fill(made, { width: wide, height: tall, viewBox: `0 0 ${wide} ${tall}` }, [shape("rect", { width: wide, height: tall, fill: variable("--surface") })]);
    if (head) made.append(letters(state.chart.title, pad, pad + 10, { "font-size": 14, "font-weight": 600, fill: variable("--ink") }));
    for (const title of state.host.querySelectorAll(".panel-title")) {
      const r = at(title);
      made.append(letters(wrap(title.textContent, r.width, 13).join("\n"), r.x, r.y + 13, { "font-size": 13, fill: variable("--ink") }));
    }
    for (const svg of state.host.querySelectorAll(".plot > svg, svg.bar, .legend svg")) {
      if (svg.closest("[aria-pressed=false]")) continue;
      const copy = svg.cloneNode(true), r = at(svg);
      made.append(fill(copy, { x: round(r.x), y: round(r.y) }, []));
    }
    for (const picture of state.host.querySelectorAll(".picture img")) {
      const r = at(picture);
      made.append(shape("image", { href: picture.src, x: r.x, y: r.y, width: r.width, height: picture.getBoundingClientRect().height }));
    }
    for (const span of state.host.querySelectorAll(".legend span")) {
      if (span.closest("[aria-pressed=false]") || span.classList.contains("entry")) continue;
      const r = at(span);
      made.append(letters(wrap(span.textContent, r.width + 12, 12).join("\n"), r.x, r.y + 12, { "font-size": 12 }));
    }
    for (const unseen of made.querySelectorAll('[style*="display: none"]')) unseen.remove();
    return { text: new XMLSerializer().serializeToString(made), wide, tall };
  }
  function savePng(state, name) {
    const { text, wide, tall } = standalone(state), canvas = node("canvas", { width: 2 * wide, height: 2 * tall }), picture = new Image();
    picture.onload = () => { canvas.getContext("2d").drawImage(picture, 0, 0, 2 * wide, 2 * tall); canvas.toBlob((blob) => save(blob, name)); };
    picture.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  }
  function save(blob, name) {
    const link = node("a", { href: URL.createObjectURL(blob), download: name });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }

  function start(host) {
    const chart = JSON.parse(host.querySelector("script").textContent), name = host.dataset.name;
    const state = { host, chart, view: "both", hidden: new Set(), grid: node("div", { class: "grid" }), foot: node("div", { class: "chart-foot" }), width: 0 };
    const tools = node("div", { class: "tools" }), alone = chart.panels.length === 1 && !chart.title, title = node("p", { class: "figure-title" }, alone ? chart.panels[0].title : chart.title);
    const kinds = new Set(chart.panels.map(against));
    if (kinds.has("n") && kinds.has("P")) tools.append(viewSwitch(state));
    const files = node("span", { class: "files" });
    for (const [label, act] of [["SVG", () => save(new Blob([standalone(state).text], { type: "image/svg+xml" }), `${name}.svg`)], ["PNG", () => savePng(state, `${name}.png`)]]) {
      const button = node("button", { type: "button", class: "quiet", "aria-label": `Download this view as ${label}`, "data-save": label.toLowerCase() }, `↓ ${label}`);
      button.addEventListener("click", act);
      files.append(button);
    }
    tools.append(files);
    host.append(node("div", { class: "chart-head" }, title, tools), state.grid, state.foot);
    if (chart.thinned.length) host.append(node("p", { class: "remark" }, `Thinned for the page, extremes kept: ${chart.thinned.join("; ")}.`));
    if (chart.left_out.length) host.append(node("p", { class: "remark" }, `Not drawn here: ${chart.left_out.join("; ")}.`));
    new ResizeObserver(() => { if (state.grid.clientWidth !== state.width && !now.paper) render(state); }).observe(host);
    return state;
  }
  function viewSwitch(state) {
    const made = node("span", { class: "switch", role: "group", "aria-label": "Panels" });
    for (const [view, text] of [["n", "against n"], ["P", "against P"], ["both", "both"]]) {
      const button = node("button", { type: "button", "data-view": view, "aria-pressed": String(view === state.view) }, text);
      button.addEventListener("click", () => {
        state.view = view;
        for (const b of made.children) b.setAttribute("aria-pressed", String(b === button));
        render(state);
      });
      made.append(button);
    }
    return made;
  }

  const all = [...document.querySelectorAll(".chart")].map(start);
  // All widths first: to ask for one between two drawings would have the browser lay out the page each time.
  function again() {
    const widths = all.map(measured);
    forget();
    all.forEach((state, i) => render(state, widths[i]));
  }
  again();
  // A browser asks for the page before it applies the style for paper: until it has printed, the theme is the light one.
  // What is folded on the screen is open on paper.
  let folded = [];
  addEventListener("beforeprint", () => {
    folded = [...document.querySelectorAll("details.fold:not([open])")];
    for (const one of folded) one.open = true;
    now.paper = true;
    themes.show("light");
    again();
  });
  addEventListener("afterprint", () => {
    for (const one of folded) one.open = false;
    now.paper = false;
    themes.show(themes.read());
    again();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
  return { again, save, node };
})();
