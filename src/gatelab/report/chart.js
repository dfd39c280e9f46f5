"use strict";
// Draws one panel of what gatelab.plotting.chart reads from a figure: axes, series, texts. figure.js has the rest.
const panels = (() => {
  const NS = "http://www.w3.org/2000/svg", FONT = "system-ui, sans-serif", SMALL = 11;
  const DASH = { dashed: "5 3", dotted: "1.5 2.5", dashdot: "6 3 1.5 3" };
  const pen = document.createElement("canvas").getContext("2d");
  const now = { paper: false }; // while printing, figures have the width of a sheet

  // ---- small tools
  const node = (tag, attributes = {}, ...inside) => fill(document.createElement(tag), attributes, inside);
  const shape = (tag, attributes = {}, ...inside) => fill(document.createElementNS(NS, tag), attributes, inside);
  function fill(made, attributes, inside) {
    for (const [key, value] of Object.entries(attributes)) if (value !== null && value !== undefined) made.setAttribute(key, value);
    made.append(...inside);
    return made;
  }
  let counter = 0;
  const unique = (name) => `${name}-${++counter}`;
  const round = (v) => Math.round(v * 100) / 100;
  const known = new Map(); // asking for a style is slow and every mark needs one: forgotten when all is drawn again
  function variable(name) {
    if (!known.has(name)) known.set(name, getComputedStyle(document.documentElement).getPropertyValue(name).trim());
    return known.get(name);
  }
  function isDark() {
    const chosen = document.documentElement.dataset.theme;
    return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  }
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

  // ---- colours: greys turn round in the dark, dark hues are lightened, white is the paper
  function ink(colour) {
    const rgb = [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16));
    const grey = Math.max(...rgb) - Math.min(...rgb) < 20;
    if (grey && rgb[0] > 250) return variable("--surface");
    if (!isDark()) return colour;
    if (grey) return hex(rgb.map((v) => 255 - 0.87 * v));
    const light = (0.2126 * rgb[0] ** 2.2 + 0.7152 * rgb[1] ** 2.2 + 0.0722 * rgb[2] ** 2.2) / 255 ** 2.2;
    const share = Math.max(0, Math.min(0.45, (0.3 - light) * 1.7));
    return hex(rgb.map((v) => v + (255 - v) * share));
  }
  const hex = (rgb) => "#" + rgb.map((v) => Math.round(v).toString(16).padStart(2, "0")).join("");

  // ---- numbers
  const UP = { "-": "⁻", 0: "⁰", 1: "¹", 2: "²", 3: "³", 4: "⁴", 5: "⁵", 6: "⁶", 7: "⁷", 8: "⁸", 9: "⁹" };
  function say(value, digits = 4) {
    if (value === null || value === undefined) return "–";
    if (value === 0) return "0";
    const size = Math.abs(value);
    if (size >= 1e-3 && size < 1e5) return String(Number(value.toPrecision(digits))).replace("-", "−");
    const [mantissa, power] = value.toExponential(digits - 1).split("e");
    const short = String(Number(mantissa)).replace("-", "−");
    const ten = "10" + String(Number(power)).split("").map((c) => UP[c]).join("");
    return short === "1" ? ten : short === "−1" ? `−${ten}` : `${short}×${ten}`;
  }

  // ---- scales
  function scale(axis, from, to) {
    const ahead = forward(axis), [a, b] = axis.limits.map(ahead);
    const to_px = (v) => (v === null ? NaN : from + ((ahead(v) - a) / (b - a)) * (to - from));
    return Object.assign(to_px, { from, to, axis });
  }
  function forward(axis) {
    if (axis.scale === "log") return (v) => (v > 0 ? Math.log10(v) : -1e3);
    if (axis.scale === "symlog") return (v) => Math.sign(v) * Math.log10(1 + Math.abs(v) / axis.threshold);
    return (v) => v;
  }
  function ticks(axis, room, apart) {
    if (axis.ticks) return axis.ticks.at.map((at, i) => ({ at, text: axis.ticks.labels[i] }));
    const [low, high] = [Math.min(...axis.limits), Math.max(...axis.limits)];
    const most = Math.max(2, Math.floor(room / apart));
    const at = axis.scale === "log" ? logTicks(low, high, most) : axis.scale === "symlog" ? symlogTicks(axis, high, low) : evenTicks(low, high, most);
    return at.filter((v) => v >= low * (low > 0 ? 0.9999 : 1.0001) && v <= high * (high > 0 ? 1.0001 : 0.9999)).map((v) => ({ at: v, text: say(v) }));
  }
  function evenTicks(low, high, most) {
    const rough = (high - low) / most, power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => s >= rough * 0.999);
    const made = [];
    for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k++) made.push(Number((k * step).toPrecision(12)));
    return made;
  }
  function logTicks(low, high, most) {
    const decades = Math.log10(high / low);
    if (decades < 0.5) return evenTicks(low, high, Math.min(most, 5));
    const first = Math.floor(Math.log10(low)), last = Math.ceil(Math.log10(high));
    const subs = decades * 3 <= most ? [1, 2, 5] : decades * 2 <= most ? [1, 3] : [1];
    const every = Math.ceil(decades / most), made = [];
    for (let k = first; k <= last; k++) if (k % every === 0) for (const s of subs) made.push(s * 10 ** k);
    return made;
  }
  function symlogTicks(axis, high, low) {
    const made = [0];
    for (let v = axis.threshold; v <= Math.max(high, -low); v *= 10) made.push(v, -v);
    return made;
  }
  // Those whose labels would touch lose the label, the later ones first.
  function thinned(marks, place, size) {
    let end = -Infinity;
    const order = [...marks].sort((p, q) => place(p.at) - place(q.at));
    for (const mark of order) {
      const half = size(mark.text) / 2, at = place(mark.at);
      if (at - half < end) mark.text = "";
      else end = at + half + 5;
    }
    return marks;
  }

  // ---- marks
  const STAR = Array.from({ length: 10 }, (_, i) => [(i % 2 ? 0.45 : 1.15) * Math.sin((i * Math.PI) / 5), -(i % 2 ? 0.45 : 1.15) * Math.cos((i * Math.PI) / 5)]);
  const CORNERS = {
    s: [[-0.85, -0.85], [0.85, -0.85], [0.85, 0.85], [-0.85, 0.85]],
    "^": [[0, -1.05], [1, 0.85], [-1, 0.85]], v: [[0, 1.05], [1, -0.85], [-1, -0.85]],
    "<": [[-1.05, 0], [0.85, 1], [0.85, -1]], ">": [[1.05, 0], [-0.85, 1], [-0.85, -1]],
    D: [[0, -1.15], [1.15, 0], [0, 1.15], [-1.15, 0]], d: [[0, -1.15], [0.7, 0], [0, 1.15], [-0.7, 0]],
    h: [[0, -1.1], [0.95, -0.55], [0.95, 0.55], [0, 1.1], [-0.95, 0.55], [-0.95, -0.55]], "*": STAR,
  };
  const STROKES = { x: "M-1,-1L1,1M-1,1L1,-1", X: "M-1,-1L1,1M-1,1L1,-1", "+": "M-1,0H1M0,-1V1", P: "M-1,0H1M0,-1V1", "|": "M0,-1V1", _: "M-1,0H1" };
  function mark(kind, x, y, size, colour, hollow, alpha = 1) {
    const r = Math.max(size, 3.2) * 0.74, at = { transform: `translate(${round(x)},${round(y)})`, opacity: alpha === 1 ? null : alpha };
    if (kind in STROKES) {
      const thick = kind === "P" || kind === "X" ? r * 0.75 : 1.5;
      const path = STROKES[kind].replace(/-?1/g, (v) => round(Number(v) * r));
      return shape("path", { ...at, d: path, stroke: colour, "stroke-width": round(thick), fill: "none" });
    }
    const paint = { fill: hollow ? variable("--surface") : colour, stroke: hollow ? colour : variable("--surface"), "stroke-width": hollow ? 1.3 : 0.6 };
    if (kind in CORNERS) return shape("polygon", { ...at, points: CORNERS[kind].map((p) => p.map((v) => round(v * r))).join(" "), ...paint });
    return shape("circle", { ...at, r: round(r * (kind === "." ? 0.6 : 1)), ...paint });
  }
  function swatch(entry) {
    const colour = ink(entry.colour), made = shape("svg", { width: 26, height: 12, viewBox: "0 0 26 12", "aria-hidden": "true" });
    if (entry.patch) made.append(shape("rect", { x: 3, y: 2, width: 20, height: 8, fill: colour }));
    if (entry.dash !== "none") made.append(shape("path", { d: "M1,6H25", stroke: colour, "stroke-width": Math.max(1.4, entry.width), "stroke-dasharray": DASH[entry.dash] }));
    if (entry.marker) made.append(mark(entry.marker, 13, 6, Math.min(entry.size + 2, 8), colour, entry.hollow));
    return made;
  }

  // ---- series: what is drawn (behind, clipped to the panel; marks in front) and which places answer to a pointer
  function draw(one, x, y, box, panel) {
    // Upon a map, whose colours are the same in both themes, lines keep theirs.
    const back = shape("g"), front = shape("g"), places = [], paint = panel.maps.length ? (c) => c : ink, colour = paint(one.colour), alpha = one.alpha ?? 1;
    const inside = (px, py) => px >= box.left - 2 && px <= box.right + 2 && py >= box.top - 2 && py <= box.bottom + 2;
    const tall = (v) => Math.max(box.top - 1e4, Math.min(box.bottom + 1e4, v));
    const pen = { stroke: colour, "stroke-width": Math.max(one.width ?? 1, 0.8) * 1.15, fill: "none", "stroke-dasharray": DASH[one.dash], "stroke-linejoin": "round", opacity: alpha };
    const place = (px, py, values) => { if (inside(px, py)) places.push({ px, py, one, ...values }); };
    const points = (one.x ?? []).map((v, i) => [x(v), tall(y((one.y ?? one.low)?.[i] ?? null))]);
    if (one.kind === "line" || one.kind === "points") {
      if (one.kind === "line" && one.dash !== "none") back.append(shape("path", { d: trace(points), ...pen }));
      points.forEach(([px, py], i) => {
        if (!Number.isFinite(px) || !Number.isFinite(py) || !inside(px, py)) return;
        if (one.marker) front.append(mark(one.marker, px, py, one.size, one.colours ? paint(one.colours[i]) : colour, one.hollow, alpha));
        place(px, py, { x: one.x[i], y: one.y[i], range: range(panel.series[one.interval], i) });
      });
    } else if (one.kind === "band") {
      const other = one.x.map((v, i) => [x(v), tall(y(one.high[i]))]).reverse();
      back.append(shape("path", { d: `${trace([...points, ...other])}Z`, fill: colour, opacity: alpha }));
    } else if (one.kind === "area") {
      back.append(shape("path", { d: `${trace(points)}Z`, fill: one.fill === false ? "none" : colour, stroke: one.width ? colour : null, opacity: alpha }));
    } else if (one.kind === "segments") {
      for (const [a, b, c, d] of one.ends) back.append(shape("path", { d: trace([[x(a), tall(y(b))], [x(c), tall(y(d))]]), ...pen }));
    } else if (one.kind === "steps") {
      const base = tall(y(one.base)), path = [[x(one.edges[0]), base]];
      one.y.forEach((v, i) => {
        const [left, right] = [x(one.edges[i]), x(one.edges[i + 1])], top = tall(y(v));
        path.push([left, top], [right, top]);
        place((left + right) / 2, top, { from: one.edges[i], to: one.edges[i + 1], y: v });
      });
      path.push([x(one.edges[one.edges.length - 1]), base]);
      back.append(shape("path", { d: trace(path), ...(one.fill ? { fill: colour, opacity: alpha } : pen) }));
    } else if (one.kind === "bars") {
      one.boxes.forEach(([a, b, w, h], i) => {
        const [px, qx, py, qy] = [x(a), x(a + w), tall(y(b)), tall(y(b + h))];
        back.append(shape("rect", { x: round(Math.min(px, qx)), y: round(Math.min(py, qy)), width: round(Math.abs(qx - px)), height: round(Math.abs(qy - py)), fill: paint(one.colours[i]), opacity: alpha }));
        place(one.upright ? (px + qx) / 2 : qx, one.upright ? qy : (py + qy) / 2, one.upright ? { x: a + w / 2, y: b + h } : { x: a + w, y: b + h / 2 });
      });
    } else if (one.kind === "span") {
      const [p, q] = one.ends.map(one.axis === "x" ? x : y), [low, high] = [Math.min(p, q), Math.max(p, q)];
      const size = one.axis === "x" ? { x: low, y: box.top, width: high - low, height: box.bottom - box.top } : { x: box.left, y: low, width: box.right - box.left, height: high - low };
      back.append(shape("rect", { ...size, fill: colour, opacity: alpha }));
    } else if (one.kind === "level") {
      const at = round((one.axis === "x" ? x : y)(one.at));
      back.append(shape("path", { d: one.axis === "x" ? `M${at},${box.top}V${box.bottom}` : `M${box.left},${at}H${box.right}`, ...pen }));
      const values = { [one.axis]: one.at };
      if (one.axis === "x") place(at, box.bottom, values); else place(box.right, at, values);
    }
    return { back, front, places };
  }
  function trace(points) {
    let d = "", lifted = true;
    for (const [px, py] of points) {
      if (!Number.isFinite(px) || !Number.isFinite(py)) { lifted = true; continue; }
      d += `${lifted ? "M" : "L"}${round(px)},${round(py)}`;
      lifted = false;
    }
    return d || "M0,0";
  }
  function range(other, i) {
    if (!other) return null;
    if (other.kind === "band") return { along: "y", low: other.low[i], high: other.high[i] };
    const [a, b, c, d] = other.ends[i];
    return other.along === "x" ? { along: "x", low: Math.min(a, c), high: Math.max(a, c) } : { along: "y", low: Math.min(b, d), high: Math.max(b, d) };
  }

  // ---- one panel
  function letters(text, x, y, more = {}) {
    const lines = String(text).split("\n");
    const made = shape("text", { x: round(x), y: round(y), "font-size": SMALL, "font-family": FONT, fill: variable("--muted"), ...more });
    lines.forEach((line, i) => made.append(shape("tspan", { x: round(x), dy: i ? SMALL * 1.2 : 0 }, line)));
    return made;
  }
  function panelSvg(chart, panel, width, height, alone, lines = 0) {
    const bareX = panel.x.bare && !alone, bareY = panel.y.bare && !alone;
    const xLabel = panel.x.label || (alone ? panel.x.shared : ""), yLabel = panel.y.label || (alone ? panel.y.shared : "");
    const yMarks = ticks(panel.y, height, 34), left = bareY && !panel.equal ? 10 : Math.max(22, ...yMarks.map((m) => measure(m.text))) + 10;
    const beyond = panel.texts.filter((t) => t.at[0] >= 1 && t.across === "left");
    const beside = Math.max(0, ...beyond.map((t) => measure(t.text))), roomy = beside < 0.45 * width;
    const right = beside && roomy ? beside + 16 : 14;
    const above = yLabel ? wrap(yLabel, width - 8) : [], top = Math.max(above.length, lines) * 15 + 10;
    const box = { left, top, right: width - right, bottom: top + height };
    if (panel.equal) shrink(panel, box);
    const x = scale(panel.x, box.left, box.right), y = scale(panel.y, box.bottom, box.top);
    const xMarks = thinned(ticks(panel.x, box.right - box.left, 46), x, measure);
    thinned(yMarks, y, () => SMALL);
    const deep = bareX ? 0 : Math.max(...xMarks.map((m) => m.text.split("\n").length), 1) * 13 + 6;
    const below = xLabel ? wrap(xLabel, width - left) : [], whole = box.bottom + deep + below.length * 14 + 6;
    const svg = shape("svg", { width, height: round(whole), viewBox: `0 0 ${width} ${round(whole)}`, role: "img", "aria-label": describe(chart, panel) });
    const clip = unique("clip"), rule = variable("--rule"), axisInk = variable("--faint");
    svg.append(shape("clipPath", { id: clip }, shape("rect", { x: box.left, y: box.top, width: box.right - box.left, height: box.bottom - box.top })));
    above.forEach((line, i) => svg.append(letters(line, 2, 12 + (Math.max(above.length, lines) - above.length + i) * 15)));
    const back = shape("g", { "clip-path": `url(#${clip})` });
    for (const one of panel.maps) back.append(image(one, x, y));
    if (!panel.maps.length) {
      if (panel.x.grid) for (const m of xMarks) back.append(shape("path", { d: `M${round(x(m.at))},${box.top}V${box.bottom}`, stroke: rule }));
      if (panel.y.grid) for (const m of yMarks) back.append(shape("path", { d: `M${box.left},${round(y(m.at))}H${box.right}`, stroke: rule }));
    }
    svg.append(back, shape("path", { d: `M${box.left},${box.top}V${box.bottom}H${box.right}`, stroke: axisInk, fill: "none" }));
    for (const m of xMarks) {
      svg.append(shape("path", { d: `M${round(x(m.at))},${box.bottom}v4`, stroke: axisInk }));
      if (!bareX) svg.append(letters(m.text, x(m.at), box.bottom + 16, { "text-anchor": "middle" }));
    }
    if (!bareY) for (const m of yMarks) svg.append(letters(m.text, box.left - 6, y(m.at) + 4 - (m.text.split("\n").length - 1) * 6, { "text-anchor": "end" }));
    below.forEach((line, i) => svg.append(letters(line, (box.left + box.right) / 2, box.bottom + deep + 12 + i * 14, { "text-anchor": "middle" })));
    const places = [];
    for (const one of panel.series) {
      const made = draw(one, x, y, box, panel), groups = one.groups.join(" ");
      made.back.dataset.groups = made.front.dataset.groups = groups;
      back.append(made.back);
      svg.append(made.front);
      places.push(...made.places);
    }
    const size = fitting(panel, box);
    for (const t of panel.texts) if (size) svg.append(words(t, box, roomy, panel.maps.length > 0, size));
    return { svg, places, box, x, y };
  }
  function shrink(panel, box) {
    const [w, h] = [panel.x, panel.y].map((a) => Math.abs(a.limits[1] - a.limits[0]));
    const tall = box.bottom - box.top, wide = box.right - box.left;
    if (wide * (h / w) > tall * 1.15) box.right = box.left + (tall * 1.15 * w) / h;
    box.bottom = box.top + ((box.right - box.left) * h) / w;
  }
  // Numbers in the cells of a map are as large as their cells allow; below eight pixels they are left to the pointer.
  function fitting(panel, box) {
    const map = panel.maps.find((m) => m.shape), full = SMALL - 0.5;
    if (!map || !panel.texts.length) return full;
    const room = (box.right - box.left) / map.shape[1] - 3, size = Math.min(full, (SMALL * room) / Math.max(...panel.texts.map((t) => measure(t.text))));
    return size < 8 ? 0 : size;
  }
  function words(t, box, roomy, upon, size) {
    const beyond = t.at[0] >= 1 && t.across === "left", tight = beyond && !roomy;
    const px = tight ? box.right : box.left + t.at[0] * (box.right - box.left), py = box.bottom - t.at[1] * (box.bottom - box.top);
    const anchor = tight ? "end" : { left: "start", right: "end", center: "middle" }[t.across];
    const drop = tight ? -7 : { top: 10, center: 4, bottom: -3, baseline: 0 }[t.up] ?? 0;
    // Upon a map the figure has chosen a colour for the cell, which is the same in both themes: an edge would smear it.
    const look = upon && !beyond ? { fill: t.colour } : { fill: ink(t.colour), "paint-order": "stroke", stroke: variable("--surface"), "stroke-width": 3 };
    return letters(t.text, px, py + drop, { "text-anchor": anchor, "font-size": round(size), ...look });
  }
  function image(one, x, y) {
    const [left, right, bottom, top] = one.extent, [px, qx, py, qy] = [x(left), x(right), y(top), y(bottom)];
    return shape("image", { href: one.png, x: round(Math.min(px, qx)), y: round(Math.min(py, qy)), width: round(Math.abs(qx - px)), height: round(Math.abs(qy - py)), preserveAspectRatio: "none", style: one.shape ? "image-rendering: pixelated" : null });
  }
  const nameOf = (chart, one) => [...new Set([...one.groups.map((g) => chart.groups[g].name), ...(one.groups.length ? [] : [one.label])])].filter(Boolean).join(", ");
  function describe(chart, panel) {
    const names = [...new Set(panel.series.map((one) => nameOf(chart, one)).filter(Boolean))];
    const axes = `${panel.y.label || panel.y.shared || "value"} against ${panel.x.label || panel.x.shared || "place"}`;
    return `${panel.title ? `${panel.title}: ` : ""}${axes}${names.length ? `; ${names.join("; ")}` : ""}`;
  }

  return { now, node, shape, fill, round, variable, wrap, say, ink, swatch, letters, panelSvg, nameOf, describe, unique, forget: () => known.clear(), NS, FONT };
})();
