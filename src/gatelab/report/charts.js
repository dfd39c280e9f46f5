"use strict";
// The figures of a page. What gatelab.plotting.chart makes of a figure becomes traces and a layout, one plot a panel;
// plotly draws them when they come into view. Legends, switches and downloads are elements of the page.
const charts = (() => {
  const NS = "http://www.w3.org/2000/svg", FONT = "system-ui, sans-serif", SMALL = 11, LEAST = 250, GAP = 22;
  const DASH = { solid: "solid", dashed: "5px,3px", dotted: "1.5px,2.5px", dashdot: "6px,3px,1.5px,3px" };
  const SYMBOL = {
    o: "circle", ".": "circle", s: "square", "^": "triangle-up", v: "triangle-down", "<": "triangle-left", ">": "triangle-right",
    D: "diamond", d: "diamond-tall", P: "cross", X: "x", x: "x-thin", "+": "cross-thin", "*": "star", h: "hexagon", "|": "line-ns", _: "line-ew",
  };
  const GLYPH = { o: "●", ".": "·", s: "■", "^": "▲", v: "▼", "<": "◀", ">": "▶", D: "◆", d: "♦", P: "✚", X: "✖", x: "×", "+": "+", "*": "★", h: "⬢", "|": "|", _: "–" };
  const HOLLOW = { o: "○", s: "□", "^": "△", v: "▽", "<": "◁", ">": "▷", D: "◇", d: "◇", "*": "☆", h: "⬡" };
  const print = { paper: false }; // while printing, figures have the width of a sheet

  // ---- small tools
  const fill = (element, attributes, inside) => {
    for (const [key, value] of Object.entries(attributes)) if (value !== null && value !== undefined) element.setAttribute(key, value);
    element.append(...inside);
    return element;
  };
  const node = (tag, attributes = {}, ...inside) => fill(document.createElement(tag), attributes, inside);
  const shape = (tag, attributes = {}, ...inside) => fill(document.createElementNS(NS, tag), attributes, inside);
  const styles = new Map(); // asking for a style is slow: they are forgotten when the theme changes
  function variable(name) {
    if (!styles.has(name)) styles.set(name, getComputedStyle(document.documentElement).getPropertyValue(name).trim());
    return styles.get(name);
  }
  const pen = document.createElement("canvas").getContext("2d");
  function measure(text, size = SMALL) {
    pen.font = `${size}px ${FONT}`;
    return Math.max(...String(text).split("\n").map((line) => pen.measureText(line).width));
  }
  function wrap(text, width, size = SMALL) {
    const lines = [];
    for (const word of text.split(/\s+/)) {
      const longer = lines.length ? `${lines[lines.length - 1]} ${word}` : word;
      if (lines.length && measure(longer, size) <= width) lines[lines.length - 1] = longer;
      else lines.push(word);
    }
    return lines;
  }
  // Plotly reads some elements in a text: none of ours has any.
  const plain = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;").replace(/\n/g, "<br>");
  const UP = { "-": "⁻", 0: "⁰", 1: "¹", 2: "²", 3: "³", 4: "⁴", 5: "⁵", 6: "⁶", 7: "⁷", 8: "⁸", 9: "⁹" };
  function say(value, digits = 4) {
    if (value === null || value === undefined) return "–";
    if (value === 0) return "0";
    const size = Math.abs(value);
    if (size >= 1e-3 && size < 1e5) return String(Number(value.toPrecision(digits))).replace("-", "−");
    const [mantissa, power] = value.toExponential(digits - 1).split("e");
    const short = String(Number(mantissa)).replace("-", "−");
    const ten = "10" + String(Number(power)).split("").map((sign) => UP[sign]).join("");
    return short === "1" ? ten : short === "−1" ? `−${ten}` : `${short}×${ten}`;
  }

  // ---- colours: greys turn round in the dark, dark hues are lightened, white is the paper
  function ink(colour) {
    const rgb = [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16));
    const grey = Math.max(...rgb) - Math.min(...rgb) < 20;
    if (grey && rgb[0] > 250) return variable("--surface");
    const chosen = document.documentElement.dataset.theme;
    if (chosen ? chosen === "light" : !matchMedia("(prefers-color-scheme: dark)").matches) return colour;
    if (grey) return hex(rgb.map((v) => 255 - 0.87 * v));
    const light = (0.2126 * rgb[0] ** 2.2 + 0.7152 * rgb[1] ** 2.2 + 0.0722 * rgb[2] ** 2.2) / 255 ** 2.2;
    const share = Math.max(0, Math.min(0.45, (0.3 - light) * 1.7));
    return hex(rgb.map((v) => v + (255 - v) * share));
  }
  const hex = (rgb) => "#" + rgb.map((v) => Math.round(v).toString(16).padStart(2, "0")).join("");

  // ---- axes. Plotly has no axis that is even near nought and logarithmic beyond: such values are turned here.
  const turned = (axis) => (v) => (axis.scale === "symlog" && v !== null ? Math.sign(v) * Math.log10(1 + Math.abs(v) / axis.threshold) : v);
  const inLayout = (axis) => (v) => (axis.scale === "log" ? Math.log10(v) : turned(axis)(v)); // ranges and annotations
  const rangeOf = (axis) => axis.limits.map(inLayout(axis));
  const labelOf = (axis) => axis.label || axis.shared;
  const spread = (low, high, count) => Array.from({ length: count }, (_, i) => low + ((high - low) * i) / (count - 1));
  function along(axis, count) { // places from end to end
    const [low, high] = axis.limits;
    return axis.scale === "log" ? spread(Math.log10(low), Math.log10(high), count).map((v) => 10 ** v) : spread(low, high, count);
  }
  function ticks(axis, range, room) {
    if (axis.ticks) return { tickmode: "array", tickvals: axis.ticks.at.map(turned(axis)), ticktext: axis.ticks.labels.map(plain) };
    let values = null;
    if (axis.scale === "log") values = logTicks(Math.min(...range), Math.max(...range), Math.max(2, Math.floor(room)));
    if (axis.scale === "symlog") {
      values = [0];
      for (let v = axis.threshold; v <= Math.max(...axis.limits.map(Math.abs)); v *= 10) values.push(v, -v);
    }
    return values ? { tickmode: "array", tickvals: values.map(turned(axis)), ticktext: values.map((v) => say(v)) } : { tickmode: "auto", nticks: Math.max(3, Math.floor(room)) };
  }
  function logTicks(low, high, most) { // the exponents of the ends; at most so many marks
    const decades = high - low, values = [];
    if (decades < 0.5) {
      const [a, b] = [10 ** low, 10 ** high], rough = (b - a) / Math.min(most, 5), power = 10 ** Math.floor(Math.log10(rough));
      const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => s >= rough * 0.999);
      for (let k = Math.ceil(a / step - 1e-9); k * step <= b * (1 + 1e-9); k++) values.push(Number((k * step).toPrecision(12)));
      return values;
    }
    const factors = decades * 3 <= most ? [1, 2, 5] : decades * 2 <= most ? [1, 3] : [1], every = Math.ceil(decades / most);
    for (let k = Math.floor(low); k <= Math.ceil(high); k++) if (k % every === 0) values.push(...factors.map((f) => Number(`${f}e${k}`)));
    return values.filter((v) => Math.log10(v) >= low - 1e-4 && Math.log10(v) <= high + 1e-4);
  }

  // ---- what a reader who points at a place is told
  const nameOf = (chart, series) => [...new Set(series.groups.length ? series.groups.map((g) => chart.groups[g].name) : [series.label])].filter(Boolean).join(", ");
  // Marks are often a series of their own upon a line: they have the intervals of that line.
  function owner(panel, series) {
    if (series.interval !== undefined) return series;
    return panel.series.find((line) => line.interval !== undefined && line.colour === series.colour && String(line.groups) === String(series.groups));
  }
  function interval(panel, series, i) {
    const line = owner(panel, series), j = line === series ? i : line?.x.findIndex((v, k) => v === series.x[i] && line.y[k] === series.y[i]) ?? -1;
    if (!line || j < 0) return {};
    const other = panel.series[line.interval];
    if (other.kind === "band") return { y: [other.low[j], other.high[j]] };
    const [a, b, c, d] = other.ends[j];
    return other.along === "x" ? { x: [Math.min(a, c), Math.max(a, c)] } : { y: [Math.min(b, d), Math.max(b, d)] };
  }
  const between = (ends) => (ends ? ` [${say(ends[0])}, ${say(ends[1])}]` : "");
  function told(axis, value) {
    const i = axis.ticks ? axis.ticks.at.indexOf(value) : -1;
    return i < 0 ? say(value) : axis.ticks.labels[i].replace("\n", " ");
  }
  function sentence(panel, name, x, y, range = {}) {
    const lines = [];
    if (x !== null) lines.push(`${labelOf(panel.x) || "x"}: ${told(panel.x, x)}${between(range.x)}`);
    if (y !== null) lines.push(`${labelOf(panel.y) || "y"}: ${told(panel.y, y)}${between(range.y)}`);
    const wrapped = (text) => wrap(text, 280, 12).map(plain).join(" <br>"); // the space tells such a break from those between lines
    return [...(name ? [`<b>${wrapped(name)}</b>`] : []), ...lines.map(wrapped)].join("<br>");
  }

  // ---- one series as one trace
  function trace(chart, panel, series) {
    const x = turned(panel.x), y = turned(panel.y), name = nameOf(chart, series);
    const colour = panel.maps.length ? series.colour : ink(series.colour); // upon a map, lines keep the colours chosen for it
    const line = { color: colour, width: Math.max(series.width ?? 1, 0.8) * 1.15, dash: DASH[series.dash] ?? "solid" };
    const base = { type: "scatter", mode: "lines", line, opacity: series.alpha ?? 1, hoverinfo: "text", cliponaxis: false, showlegend: false };
    const outline = (points) => ({ ...base, x: points.map((p) => x(p[0])), y: points.map((p) => y(p[1])), hoverinfo: "skip" });
    const filled = (points) => ({ ...outline(points), fill: "toself", fillcolor: colour, line: { width: 0 } });
    switch (series.kind) {
      case "line":
      case "points": {
        const drawn = series.kind === "line" && series.dash !== "none";
        const mode = [drawn && "lines", series.marker && "markers"].filter(Boolean).join("+") || "none";
        return { ...base, mode, x: series.x.map(x), y: series.y.map(y), marker: markers(series, colour), text: series.x.map((v, i) => sentence(panel, name, v, series.y[i], interval(panel, series, i))) };
      }
      case "band": {
        const known = series.x.map((_, i) => i).filter((i) => series.low[i] !== null && series.high[i] !== null);
        return filled([...known.map((i) => [series.x[i], series.low[i]]), ...known.reverse().map((i) => [series.x[i], series.high[i]])]);
      }
      case "area": {
        const points = series.x.map((v, i) => [v, series.y[i]]);
        const edge = { line: { ...line, width: series.width ?? 0 } };
        return series.fill === false ? { ...outline([...points, points[0]]), ...edge } : { ...filled(points), ...edge };
      }
      case "segments":
        return outline(series.ends.flatMap(([a, b, c, d]) => [[a, b], [c, d], [null, null]]));
      case "steps": {
        const points = series.y.flatMap((v, i) => [[series.edges[i], v], [series.edges[i + 1], v]]), last = series.edges[series.edges.length - 1];
        const text = series.y.flatMap((v, i) => Array(2).fill(`${name ? `<b>${plain(name)}</b><br>` : ""}${plain(labelOf(panel.x) || "x")}: ${say(series.edges[i])} to ${say(series.edges[i + 1])}<br>${plain(labelOf(panel.y) || "y")}: ${say(v)}`));
        const path = [[series.edges[0], series.base], ...points, [last, series.base]];
        return { ...(series.fill ? filled(path) : outline(path)), hoverinfo: "text", hoveron: "points", text: [null, ...text, null] };
      }
      case "bars": {
        const upright = series.upright, paint = panel.maps.length ? (c) => c : ink;
        const middle = series.boxes.map(([a, b, w, h]) => (upright ? a + w / 2 : b + h / 2)), end = series.boxes.map(([a, b, w, h]) => (upright ? b + h : a + w));
        const sizes = { [upright ? "x" : "y"]: middle, [upright ? "y" : "x"]: series.boxes.map(([, , w, h]) => (upright ? h : w)), width: series.boxes.map(([, , w, h]) => (upright ? w : h)) };
        const starts = series.boxes.map(([a, b]) => (upright ? b : a)), text = middle.map((v, i) => (upright ? sentence(panel, name, v, end[i]) : sentence(panel, name, end[i], v)));
        return { type: "bar", orientation: upright ? "v" : "h", ...sizes, ...(starts.some(Boolean) ? { base: starts } : {}), marker: { color: series.colours.map(paint), line: { width: 0 } }, opacity: series.alpha ?? 1, hovertext: text, hoverinfo: "text", textposition: "none", showlegend: false };
      }
      case "span": {
        const [low, high] = series.ends, [start, end] = panel[series.axis === "x" ? "y" : "x"].limits;
        const corners = [[low, start], [high, start], [high, end], [low, end]];
        return filled(series.axis === "x" ? corners : corners.map(([a, b]) => [b, a]));
      }
      default: { // a level: one value, from edge to edge
        const across = series.axis === "x", places = along(across ? panel.y : panel.x, 41), fixed = places.map(() => series.at);
        const text = across ? sentence(panel, name, series.at, null) : sentence(panel, name, null, series.at);
        return { ...base, x: (across ? fixed : places).map(x), y: (across ? places : fixed).map(y), text: places.map(() => text) };
      }
    }
  }
  function markers(series, colour) {
    if (!series.marker) return {};
    const symbol = SYMBOL[series.marker] ?? "circle", thin = /^(x-thin|cross-thin|line-)/.test(symbol), surface = variable("--surface");
    const colours = series.colours ? series.colours.map(ink) : colour, size = Math.max(series.size, 3.2) * (series.marker === "." ? 0.9 : 1.5);
    return { symbol, size, opacity: 1, color: series.hollow ? surface : colours, line: { color: series.hollow || thin ? colours : surface, width: thin ? 1.6 : series.hollow ? 1.3 : 0.6 } };
  }
  // A map is a picture below; where its values are few enough to be kept, an unseen heat map answers to the pointer.
  function cells(panel, map) {
    const [rows, columns] = map.shape, [left, right, bottom, top] = map.extent, dx = (right - left) / columns, dy = (bottom - top) / rows;
    const places = { x0: left + dx / 2, dx, y0: top + dy / 2, dy }, grid = Array.from({ length: rows }, (_, i) => map.values.slice(i * columns, (i + 1) * columns));
    const text = grid.map((row, i) => row.map((value, j) => `${sentence(panel, "", Math.round(places.x0 + j * dx), Math.round(places.y0 + i * dy))}<br>value: ${say(value)}`));
    return { type: "heatmap", ...places, z: grid, text, hoverinfo: "text", opacity: 0, showscale: false };
  }

  // ---- one panel: traces and layout
  function describe(chart, panel) {
    const names = [...new Set(panel.series.map((series) => nameOf(chart, series)).filter(Boolean))];
    const axes = `${labelOf(panel.y) || "value"} against ${labelOf(panel.x) || "place"}`;
    return `${panel.title ? `${panel.title}: ` : ""}${axes}${names.length ? `; ${names.join("; ")}` : ""}`;
  }
  function frame(panel, width, tall, alone) { // what surrounds the values, in pixels
    const bare = { x: panel.x.bare && !alone, y: panel.y.bare && !alone };
    const above = panel.y.label || alone ? labelOf(panel.y) : "", below = panel.x.label || alone ? labelOf(panel.x) : "";
    const beside = Math.max(0, ...panel.texts.filter(beyond).map((text) => measure(text.text)));
    const named = panel.y.ticks ? Math.max(...panel.y.ticks.labels.map((text) => measure(text)), 0) + 12 : 44;
    const left = bare.y ? 10 : named, roomy = width - left - beside - 16 > 0.4 * width, right = beside && roomy ? beside + 16 : 14;
    const lines = { above: above ? wrap(above, width - 8) : [], below: below ? wrap(below, width - left - right) : [] };
    const top = lines.above.length * 15 + 12, deep = bare.x ? 8 : 26 + 13 * (Math.max(1, ...(panel.x.ticks?.labels ?? []).map((text) => text.split("\n").length)) - 1);
    const bottom = deep + lines.below.length * 15;
    let height = tall;
    if (panel.equal) height = Math.min(1.15 * tall, ((width - left - right) * Math.abs(panel.y.limits[1] - panel.y.limits[0])) / Math.abs(panel.x.limits[1] - panel.x.limits[0]));
    return { bare, lines, roomy, margin: { l: left, r: right, t: top, b: bottom }, inner: { width: width - left - right, height }, height: Math.ceil(height + top + bottom) };
  }
  const beyond = (text) => text.at[0] >= 1 && text.across === "left";
  function figureOf(state, panel, box, width) {
    const { chart } = state, muted = variable("--muted"), font = { family: FONT, size: SMALL, color: muted };
    const side = (axis, bare, room) => ({
      type: axis.scale === "log" ? "log" : "linear", range: rangeOf(axis), ...ticks(axis, rangeOf(axis), room),
      showgrid: axis.grid && !panel.maps.length, gridcolor: variable("--rule"), zeroline: false, showline: true, linecolor: variable("--faint"),
      ticks: "outside", ticklen: 4, tickcolor: variable("--faint"), showticklabels: !bare, automargin: true, exponentformat: "power", minexponent: 5,
    });
    const layout = {
      width, height: box.height, margin: { ...box.margin, pad: 0 }, font, showlegend: false, hovermode: "closest", hoverdistance: 40, barmode: "overlay",
      dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom", paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      hoverlabel: { bgcolor: variable("--ink"), bordercolor: variable("--ink"), align: "left", font: { family: FONT, size: 12, color: variable("--paper") } },
      xaxis: { ...side(panel.x, box.bare.x, box.inner.width / 46), title: { text: box.lines.below.map(plain).join("<br>"), standoff: 6, font } },
      yaxis: side(panel.y, box.bare.y, box.inner.height / 34),
      annotations: [...headings(box, font), ...words(panel, box)],
      images: panel.maps.map((map) => picture(panel, map)),
    };
    if (panel.equal) Object.assign(layout.yaxis, { scaleanchor: "x", constrain: "domain", constraintoward: "top" }), Object.assign(layout.xaxis, { constrain: "domain", constraintoward: "left" });
    const traces = [...panel.maps.filter((map) => map.values).map((map) => cells(panel, map)), ...panel.series.map((series) => ({ ...trace(chart, panel, series), meta: series.groups }))];
    return { traces: traces.map((made) => ({ ...made, visible: shown(state, made) })), layout };
  }
  const shown = (state, made) => !(made.meta ?? []).some((group) => state.hidden.has(group));
  const headings = (box, font) => (box.lines.above.length ? [{ text: box.lines.above.map(plain).join("<br>"), xref: "paper", yref: "paper", x: 0, y: 1, xanchor: "left", yanchor: "bottom", xshift: 4 - box.margin.l, yshift: 4, align: "left", showarrow: false, font }] : []);
  function picture(panel, map) {
    const [left, right, bottom, top] = map.extent, x = inLayout(panel.x), y = inLayout(panel.y);
    const wide = x(right) - x(left), high = y(top) - y(bottom);
    return { source: map.png, xref: "x", yref: "y", x: x(left), y: y(top), sizex: Math.abs(wide), sizey: Math.abs(high), sizing: "stretch", layer: "below", xanchor: "left", yanchor: "top" };
  }
  // Numbers in the cells of a map are as large as their cells allow and move with them; below eight pixels they are
  // left to the pointer. All other texts keep their place in the panel.
  function words(panel, box) {
    const map = panel.maps.find((m) => m.shape), widest = Math.max(1, ...panel.texts.map((text) => measure(text.text)));
    const size = map ? Math.min(SMALL - 0.5, (SMALL * (box.inner.width / map.shape[1] - 3)) / widest) : SMALL - 0.5;
    if (size < 8) return [];
    const lowest = []; // of texts that do not move with a map, a later one goes below those that it would cover
    const drop = (text) => {
      const own = { left: text.at[0] * box.inner.width, right: text.at[0] * box.inner.width + measure(text.text) + 4, top: (1 - text.at[1]) * box.inner.height };
      const start = own.top;
      while (lowest.some((other) => own.left < other.right && other.left < own.right && Math.abs(own.top - other.top) < 13)) own.top += 13;
      lowest.push(own);
      return start - own.top;
    };
    return panel.texts.map((text) => {
      const tight = beyond(text) && !box.roomy, upon = panel.maps.length > 0 && !beyond(text);
      const place = (axis, part) => { const [low, high] = rangeOf(axis); return low + part * (high - low); };
      const at = upon ? { xref: "x", yref: "y", x: place(panel.x, text.at[0]), y: place(panel.y, text.at[1]) } : { xref: "x domain", yref: "y domain", x: tight ? 1 : text.at[0], y: text.at[1] };
      const up = { top: "top", center: "middle", bottom: "bottom", baseline: "bottom" }[text.up] ?? "bottom";
      return {
        ...at, text: plain(text.text), xanchor: tight ? "right" : text.across, yanchor: tight ? "bottom" : up, yshift: tight ? 4 : upon ? 0 : drop(text), align: "left", showarrow: false, borderpad: 0,
        font: { family: FONT, size, color: upon ? text.colour : ink(text.colour) }, bgcolor: upon ? "rgba(0,0,0,0)" : `${variable("--surface")}b0`,
      };
    });
  }

  // ---- the whole figure: its panels in rows
  const AXES = { n: /^neurons n\b/, P: /^parameters P\b/ };
  const against = (panel) => Object.keys(AXES).find((name) => panel.x && AXES[name].test(labelOf(panel.x)));
  const measured = (state) => (print.paper ? 680 : state.grid.clientWidth);
  function render(state, width = measured(state)) {
    const { chart } = state;
    if (!width) return;
    state.width = width;
    const seen = chart.panels.filter((p) => state.view === "both" || against(p) === state.view);
    const inRow = (p) => seen.filter((q) => q.row === p.row);
    const most = state.view === "both" ? Math.max(...seen.map((p) => inRow(p).length)) : seen.length;
    const least = seen.every((p) => p.equal || p.picture) ? 170 : LEAST;
    // The figure's own places are kept where its narrowest panel has room; else panels flow, row by row.
    const narrowest = Math.min(...seen.map((p) => p.across)), cell = (width + GAP) / chart.columns;
    const own = state.view === "both" && cell * narrowest - GAP >= least;
    const columns = own ? chart.columns : Math.max(1, Math.min(most, Math.floor((width + GAP) / (least + GAP))));
    const column = (Math.min(width, columns === 1 ? 1100 : width) - GAP * (columns - 1)) / columns;
    const across = (p) => (own ? p.across : p.across === chart.columns ? columns : 1);
    const wide = (p) => Math.floor(column * across(p) + GAP * (across(p) - 1));
    const height = (p) => (own ? Math.max(...inRow(p).filter((q) => q.down === p.down).map((q) => tall(q, wide(q)))) : tall(p, wide(p)));
    clear(state);
    state.grid.style.gridTemplateColumns = `repeat(${columns}, ${Math.floor(column * 100) / 100}px)`;
    for (const p of seen) {
      const place = own ? `grid-column: ${p.column + 1} / span ${across(p)}; grid-row: ${3 * p.row + 1} / span ${3 * p.down}` : `grid-column: span ${across(p)}; grid-row: span 3`;
      state.grid.append(panelBox(state, p, wide(p), height(p), !own, place));
    }
    state.foot.replaceChildren(legend(state, chart.legend));
    for (const bar of chart.bars) if (bar.panels.length !== 1) state.foot.append(colourBar(bar, Math.min(width, 420)));
    update(state);
  }
  function clear(state) {
    for (const [plot] of state.plots) { coming.unobserve(plot); if (plot.data) Plotly.purge(plot); }
    state.plots.clear();
    state.grid.replaceChildren();
  }
  function tall(panel, width) {
    const named = panel.y?.ticks?.labels ?? [], rows = named.length * (9 + 13 * Math.max(0, ...named.map((text) => text.split("\n").length)));
    return Math.max(rows, Math.min(440, Math.max(panel.aspect > 3 ? 70 : 170, (width - 56) / panel.aspect)));
  }
  function panelBox(state, panel, width, height, alone, place) {
    const { chart } = state, box = node("div", { class: "panel", style: place }), index = chart.panels.indexOf(panel);
    box.append(node("p", { class: "panel-title" }, chart.title || chart.panels.length > 1 ? panel.title : ""));
    if (panel.picture) {
      const image = node("img", { src: panel.picture.png, alt: panel.title || chart.title, width, height: Math.round(width / panel.picture.aspect) });
      box.append(node("div", { class: "plot picture" }, image));
    } else {
      const around = frame(panel, width, height, alone), hint = `${describe(chart, panel)}. Arrow keys go from point to point, plus and minus zoom, 0 shows all again.`;
      const plot = node("div", { class: "plot", tabindex: 0, role: "img", "aria-label": hint, style: `height: ${around.height}px; width: ${width}px` });
      state.plots.set(plot, { panel, box: around, width });
      plot.addEventListener("keydown", (event) => pressed(state, plot, event));
      coming.observe(plot);
      box.append(plot);
    }
    const foot = node("div", {}, legend(state, panel.legend));
    for (const bar of chart.bars) if (bar.panels.length === 1 && bar.panels[0] === index) foot.append(colourBar(bar, Math.min(width, 300)));
    box.append(foot);
    return box;
  }
  function draw(state, plot) {
    if (plot.data) return;
    const { panel, box, width } = state.plots.get(plot), { traces, layout } = figureOf(state, panel, box, width);
    Plotly.newPlot(plot, traces, layout, { displayModeBar: false, doubleClick: "reset", showTips: false });
    // Marks of logarithmic axes are ours: they are chosen again when a reader has zoomed.
    plot.on("plotly_relayout", (change) => {
      if (!Object.keys(change).some((key) => key.includes("range"))) return;
      state.reset.hidden = [...state.plots].every(([other, { panel: own }]) => !other.data || ["x", "y"].every((name) => String(other.layout[`${name}axis`].range) === String(rangeOf(own[name]))));
      const fresh = {};
      for (const [key, axis, room] of [["xaxis", panel.x, box.inner.width / 46], ["yaxis", panel.y, box.inner.height / 34]]) {
        if (axis.scale === "log" && !axis.ticks) for (const [name, value] of Object.entries(ticks(axis, plot.layout[key].range, room))) fresh[`${key}.${name}`] = value;
      }
      Plotly.relayout(plot, fresh);
    });
  }
  const coming = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) if (isIntersecting) draw(all.find((state) => state.plots.has(target)), target);
  }, { rootMargin: "400px" });

  // ---- keys: from point to point, said aloud; closer and farther
  function pressed(state, plot, event) {
    draw(state, plot);
    const places = stops(plot), step = { ArrowRight: 1, ArrowLeft: -1 }[event.key], now = plot.stop ?? -1, count = places.length;
    const zoom = { "+": 0.7, "=": 0.7, "-": 1 / 0.7 }[event.key];
    if (event.key === "Escape") { plot.stop = -1; Plotly.Fx.unhover(plot); return; }
    if (zoom) Plotly.relayout(plot, Object.fromEntries(["xaxis", "yaxis"].map((key) => { const [a, b] = plot.layout[key].range, half = ((b - a) / 2) * zoom; return [`${key}.range`, [(a + b) / 2 - half, (a + b) / 2 + half]]; })));
    else if (event.key === "0") reset(state);
    else if (!count) return;
    else if (step) plot.stop = (now + step + count) % count;
    else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      const curves = [...new Set(places.map((p) => p.curveNumber))], next = curves.indexOf(places[Math.max(now, 0)].curveNumber) + (event.key === "ArrowDown" ? 1 : -1);
      plot.stop = places.findIndex((p) => p.curveNumber === curves[(next + curves.length) % curves.length]);
    } else if (event.key === "Home") plot.stop = 0;
    else if (event.key === "End") plot.stop = count - 1;
    else return;
    event.preventDefault();
    const place = places[plot.stop];
    if (!place || zoom || event.key === "0") return;
    Plotly.Fx.hover(plot, [{ curveNumber: place.curveNumber, pointNumber: place.pointNumber }]);
    document.getElementById("said").textContent = spoken(place.text);
  }
  const spoken = (text) => new DOMParser().parseFromString(text.replace(/ <br>/g, " ").replace(/<br>/g, ", "), "text/html").body.textContent;
  function stops(plot) {
    return plot.data.flatMap((series, curveNumber) => {
      const texts = series.type === "heatmap" || series.visible === false ? [] : series.hovertext ?? series.text ?? [];
      return texts.map((text, pointNumber) => ({ curveNumber, pointNumber, text })).filter(({ text, pointNumber }) => text && text !== texts[pointNumber - 1] && series.y[pointNumber] !== null);
    });
  }
  function reset(state) {
    for (const [plot, { panel }] of state.plots) if (plot.data) Plotly.relayout(plot, { "xaxis.range": rangeOf(panel.x), "yaxis.range": rangeOf(panel.y) });
  }

  // ---- legends and colour bars
  function swatch(entry) {
    const colour = ink(entry.colour), drawn = shape("svg", { width: 26, height: 12, viewBox: "0 0 26 12", "aria-hidden": "true" });
    const dashes = (DASH[entry.dash] ?? "solid").replace("solid", "").replace(/px/g, "");
    if (entry.dash !== "none") drawn.append(shape("path", { d: "M1,6H25", stroke: colour, "stroke-width": Math.max(1.4, entry.width), "stroke-dasharray": dashes || null }));
    if (entry.marker) drawn.append(shape("text", { x: 13, y: 10, "text-anchor": "middle", "font-size": 12, fill: colour }, (entry.hollow && HOLLOW[entry.marker]) || GLYPH[entry.marker] || "●"));
    return drawn;
  }
  function legend(state, entries) {
    const list = node("ul", { class: "legend" });
    for (const entry of entries) {
      const look = state.chart.groups[entry.group], inside = [swatch(look), node("span", {}, entry.text)];
      const item = look.used ? node("button", { type: "button", "data-group": entry.group, "aria-pressed": "true", title: "Hide or show" }, ...inside) : node("span", { class: "entry" }, ...inside);
      if (look.used) item.addEventListener("click", () => { state.hidden.has(entry.group) ? state.hidden.delete(entry.group) : state.hidden.add(entry.group); update(state); });
      list.append(node("li", {}, item));
    }
    return entries.length ? list : node("span");
  }
  function update(state) {
    for (const [plot] of state.plots) {
      if (!plot.data) continue;
      plot.stop = -1;
      Plotly.restyle(plot, { visible: plot.data.map((made) => shown(state, made)) });
    }
    for (const button of state.host.querySelectorAll("button[data-group]")) button.setAttribute("aria-pressed", String(!state.hidden.has(Number(button.dataset.group))));
  }
  const letters = (text, x, y, more = {}) => shape("text", { x, y, "font-size": SMALL, "font-family": FONT, fill: variable("--muted"), ...more }, ...String(text).split("\n").map((line, i) => shape("tspan", { x, dy: i ? SMALL * 1.2 : 0 }, line)));
  let bars = 0;
  function colourBar(bar, width) {
    const id = `colours-${++bars}`, [low, high] = bar.limits, height = bar.label ? 48 : 34;
    const steps = bar.colours.map((colour, i) => shape("stop", { offset: i / (bar.colours.length - 1), "stop-color": colour }));
    const svg = shape("svg", { width, height, class: "bar", role: "img", "aria-label": `Colours: ${bar.label || "value"} from ${say(low)} to ${say(high)}` });
    svg.append(shape("linearGradient", { id }, ...steps), shape("rect", { x: 10, y: 4, width: width - 20, height: 10, fill: `url(#${id})`, rx: 2 }));
    svg.append(letters(say(low, 3), 10, 28), letters(say(high, 3), width - 10, 28, { "text-anchor": "end" }), letters(bar.label, width / 2, 42, { "text-anchor": "middle" }));
    return svg;
  }

  // ---- downloads: the panels as plotly writes them, with what is HTML on the page (titles, legends) set as text
  async function standalone(state) {
    for (const [plot] of state.plots) draw(state, plot);
    const drawn = await Promise.all([...state.plots.keys()].map((plot) => Plotly.toImage(plot, { format: "svg", width: plot.clientWidth, height: plot.clientHeight })));
    const area = state.grid.getBoundingClientRect(), pad = 16, head = state.chart.title ? 30 : 0, wide = Math.ceil(state.width + 2 * pad);
    const tallest = Math.ceil(state.foot.getBoundingClientRect().bottom - area.top + 2 * pad + head);
    const place = (element) => { const r = element.getBoundingClientRect(); return { x: r.left - area.left + pad, y: r.top - area.top + pad + head, width: r.width, height: r.height }; };
    const whole = shape("svg", { xmlns: NS, "font-family": FONT, width: wide, height: tallest, viewBox: `0 0 ${wide} ${tallest}` }, shape("rect", { width: wide, height: tallest, fill: variable("--surface") }));
    const write = (element, size, more) => { const r = place(element); whole.append(letters(wrap(element.textContent, r.width + 12, size).join("\n"), r.x, r.y + size, { "font-size": size, ...more })); };
    if (head) whole.append(letters(state.chart.title, pad, pad + 10, { "font-size": 14, "font-weight": 600, fill: variable("--ink") }));
    for (const title of state.host.querySelectorAll(".panel-title")) write(title, 13, { fill: variable("--ink") });
    [...state.plots.keys()].forEach((plot, i) => {
      const text = decodeURIComponent(drawn[i].slice(drawn[i].indexOf(",") + 1)), svg = document.importNode(new DOMParser().parseFromString(text, "image/svg+xml").documentElement, true), r = place(plot);
      for (const image of svg.querySelectorAll("image")) image.setAttribute("style", "image-rendering: pixelated");
      whole.append(fill(svg, { x: r.x, y: r.y }, []));
    });
    for (const svg of state.host.querySelectorAll("svg.bar, .legend svg")) if (!svg.closest("[aria-pressed=false]")) { const r = place(svg); whole.append(fill(svg.cloneNode(true), { x: r.x, y: r.y }, [])); }
    for (const image of state.host.querySelectorAll(".picture img")) { const r = place(image); whole.append(shape("image", { href: image.src, ...r })); }
    for (const text of state.host.querySelectorAll(".legend span:not(.entry)")) if (!text.closest("[aria-pressed=false]")) write(text, 12);
    return { text: new XMLSerializer().serializeToString(whole), wide, tall: tallest };
  }
  const saveSvg = async (state, name) => save(new Blob([(await standalone(state)).text], { type: "image/svg+xml" }), name);
  async function savePng(state, name) {
    const { text, wide, tall: high } = await standalone(state), canvas = node("canvas", { width: 2 * wide, height: 2 * high }), image = new Image();
    image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
    await image.decode();
    canvas.getContext("2d").drawImage(image, 0, 0, 2 * wide, 2 * high);
    canvas.toBlob((blob) => save(blob, name));
  }
  function save(blob, name) {
    const link = node("a", { href: URL.createObjectURL(blob), download: name });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }

  // ---- the values of a figure as a table
  function values(host) {
    const { chart } = all.find((state) => state.host === host);
    const rows = [["panel", "series", "x", "y", "low", "high"]], plainly = (v) => (v === null || v === undefined ? "" : String(v));
    for (const panel of chart.panels) for (const series of panel.series) {
      const start = [[panel.title, `${labelOf(panel.y)} against ${labelOf(panel.x)}`].filter((text) => text.trim()).join(": "), nameOf(chart, series)];
      const add = (...cells) => rows.push([...start, ...cells].map(plainly));
      if (series.kind === "line" || series.kind === "points") series.x.forEach((v, i) => { const range = interval(panel, series, i); add(told(panel.x, v), told(panel.y, series.y[i]), ...(range.y ?? range.x ?? ["", ""])); });
      if (series.kind === "band" && !panel.series.some((other) => panel.series[other.interval] === series)) series.x.forEach((v, i) => add(v, "", series.low[i], series.high[i]));
      if (series.kind === "steps") series.y.forEach((v, i) => add(`${series.edges[i]} to ${series.edges[i + 1]}`, v));
      if (series.kind === "bars") for (const [a, b, w, h] of series.boxes) series.upright ? add(told(panel.x, a + w / 2), b + h) : add(a + w, told(panel.y, b + h / 2));
      if (series.kind === "level") series.axis === "x" ? add(series.at, "") : add("", series.at);
    }
    return rows;
  }

  // ---- start
  function start(host) {
    const chart = JSON.parse(host.querySelector("script").textContent), name = host.dataset.name;
    const state = { host, chart, view: "both", hidden: new Set(), plots: new Map(), grid: node("div", { class: "grid" }), foot: node("div", { class: "chart-foot" }), reset: action("Show all again", "reset", () => reset(state)), width: 0 };
    const tools = node("div", { class: "tools" }), single = chart.panels.length === 1 && !chart.title, kinds = new Set(chart.panels.map(against));
    state.reset.hidden = true;
    tools.append(state.reset);
    if (kinds.has("n") && kinds.has("P")) tools.append(viewSwitch(state));
    const files = node("span", { class: "files" }, action("↓ SVG", "svg", () => saveSvg(state, `${name}.svg`)), action("↓ PNG", "png", () => savePng(state, `${name}.png`)));
    for (const button of files.children) button.setAttribute("aria-label", `Download this view as ${button.dataset.act.toUpperCase()}`);
    tools.append(files);
    host.append(node("div", { class: "chart-head" }, node("p", { class: "figure-title" }, single ? chart.panels[0].title : chart.title), tools), state.grid, state.foot);
    if (chart.thinned.length) host.append(node("p", { class: "remark" }, `Thinned for the page, extremes kept: ${chart.thinned.join("; ")}.`));
    if (chart.left_out.length) host.append(node("p", { class: "remark" }, `Not drawn here: ${chart.left_out.join("; ")}.`));
    new ResizeObserver(() => { if (state.grid.clientWidth !== state.width && !print.paper) render(state); }).observe(host);
    return state;
  }
  function action(text, act, does) {
    const button = node("button", { type: "button", class: "quiet", "data-act": act }, text);
    button.addEventListener("click", does);
    return button;
  }
  function viewSwitch(state) {
    const box = node("span", { class: "switch", role: "group", "aria-label": "Panels" });
    for (const [view, text] of [["n", "against n"], ["P", "against P"], ["both", "both"]]) {
      const button = node("button", { type: "button", "data-view": view, "aria-pressed": String(view === state.view) }, text);
      button.addEventListener("click", () => {
        state.view = view;
        for (const other of box.children) other.setAttribute("aria-pressed", String(other === button));
        render(state);
      });
      box.append(button);
    }
    return box;
  }
  const all = [...document.querySelectorAll(".chart")].map(start);
  // All widths first: to ask for one between two drawings would have the browser lay out the page each time.
  function again() {
    const widths = all.map(measured);
    styles.clear();
    all.forEach((state, i) => render(state, widths[i]));
  }
  again();
  // A browser asks for the page before it applies the style for paper: until it has printed, the theme is the light one.
  // What is folded on the screen is open on paper.
  let folded = [];
  addEventListener("beforeprint", () => {
    folded = [...document.querySelectorAll("details.fold:not([open])")];
    for (const part of folded) part.open = true;
    print.paper = true;
    themes.show("light");
    again();
    for (const state of all) for (const [plot] of state.plots) draw(state, plot);
  });
  addEventListener("afterprint", () => {
    for (const part of folded) part.open = false;
    print.paper = false;
    themes.show(themes.read());
    again();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
  return { again, save, node, values };
})();
