"use strict";
// Theme, figures, filters, copying, tables and downloads. The page is complete without it.
(() => {
  const said = document.getElementById("said");
  const node = (tag, attributes = {}, ...inside) => {
    const made = document.createElement(tag);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...inside);
    return made;
  };
  const action = (text, label, does) => {
    const button = node("button", { type: "button", class: "quiet", "aria-label": label }, text);
    button.addEventListener("click", does);
    return button;
  };
  function save(blob, name) {
    const link = node("a", { href: URL.createObjectURL(blob), download: name });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }

  // ---- theme: automatic, light, dark
  const button = document.getElementById("theme"), names = ["auto", "light", "dark"];
  const label = () => { const now = themes.read(); button.textContent = `Theme: ${now === "auto" ? "automatic" : now}`; };
  button.addEventListener("click", () => {
    const next = names[(names.indexOf(themes.read()) + 1) % names.length];
    themes.write(next);
    themes.show(next);
    label();
  });
  label();

  // ---- figures. On a narrow page they scroll; a switch selects the panels against n or P (data-views: x, y, width, height, size).
  const NS = "http://www.w3.org/2000/svg", LEAST = 0.8, MOST_WIDE = 1.5; // relative to the printed size
  const figures = [...document.querySelectorAll(".chart")].map((host) => {
    const svg = host.querySelector("svg"), box = svg.parentElement, views = JSON.parse(svg.dataset.views || "[]"), { name } = host.dataset;
    const whole = svg.getAttribute("viewBox").split(" ").map(Number);
    let chosen = "";
    function show(size = chosen) {
      const boxes = size ? views.filter((view) => !view[4] || view[4] === size) : [whole];
      box.replaceChildren(...boxes.map((view, i) => {
        const part = i ? document.createElementNS(NS, "svg") : svg;
        if (i) part.append(document.createElementNS(NS, "use")), part.firstChild.setAttribute("href", `#${name}-all`), part.setAttribute("aria-hidden", "true");
        part.setAttribute("viewBox", view.slice(0, 4).join(" "));
        part.style.minWidth = `${LEAST * view[2]}px`;
        part.style.maxWidth = `${MOST_WIDE * view[2]}px`;
        return part;
      }));
    }
    // A file has the colors of the light theme: the fallback values of the variables.
    function file() {
      const copy = svg.cloneNode(true), [x, y, wide, high] = chosen ? copy.getAttribute("viewBox").split(" ").map(Number) : whole;
      const extent = { viewBox: [x, y, wide, high].join(" "), width: wide, height: high, style: "" };
      for (const [key, value] of Object.entries(extent)) copy.setAttribute(key, value);
      const text = new XMLSerializer().serializeToString(copy).replace(/var\(--\w+, (#\w+|none)\)/g, "$1");
      return { text, wide, high };
    }
    const tools = node("div", { class: "tools" });
    if (["n", "P"].every((size) => views.some((view) => view[4] === size))) {
      const box = node("span", { class: "switch", role: "group", "aria-label": "Panels" });
      for (const [size, text] of [["n", "against n"], ["P", "against P"], ["", "both"]]) {
        const button = node("button", { type: "button", "data-view": size, "aria-pressed": String(size === "") }, text);
        button.addEventListener("click", () => {
          chosen = size;
          for (const other of box.children) other.setAttribute("aria-pressed", String(other === button));
          show();
        });
        box.append(button);
      }
      tools.append(box);
    }
    tools.append(action("↓ SVG", "Download this view as SVG", () => save(new Blob([file().text], { type: "image/svg+xml" }), `${name}.svg`)));
    tools.append(action("↓ PNG", "Download this view as PNG", async () => {
      const { text, wide, high } = file(), canvas = node("canvas", { width: 3 * wide, height: 3 * high }), image = new Image();
      image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
      await image.decode();
      canvas.getContext("2d").drawImage(image, 0, 0, 3 * wide, 3 * high);
      canvas.toBlob((blob) => save(blob, `${name}.png`));
    }));
    host.prepend(tools);
    show();
    return show;
  });

  // ---- print: the light theme, whole figures, and open folds
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details.fold:not([open])")];
    for (const part of opened) part.open = true;
    themes.show("light");
    for (const show of figures) show("");
  });
  addEventListener("afterprint", () => {
    for (const part of opened) part.open = false;
    themes.show(themes.read());
    for (const show of figures) show();
  });

  // ---- contents: open next to the page, folded above it
  const folded = document.querySelector(".contents details"), narrow = matchMedia("(max-width: 1179px)");
  if (folded) {
    const fold = () => { folded.open = !narrow.matches; };
    narrow.addEventListener("change", fold);
    fold();
  }

  // ---- filters: [data-filter] holds buttons [data-key][data-value]; rows carry data-<key>
  for (const box of document.querySelectorAll("[data-filter]")) {
    const table = document.getElementById(box.dataset.filter), rows = [...table.querySelectorAll("tr[data-verdict]")], heads = [...table.querySelectorAll("tr[data-heading]")];
    const count = box.querySelector("[data-count]"), clear = box.querySelector("[data-clear]"), field = box.querySelector("[data-search]");
    const buttons = [...box.querySelectorAll("button[data-key]")], chosen = {};
    // A search matches the text of a row and of its study.
    const plain = (text) => text.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase();
    const titles = new Map(heads.map((head) => [head.dataset.heading, plain(head.textContent)]));
    const texts = new Map(rows.map((row) => [row, `${plain(row.textContent)} ${titles.get(row.dataset.study)}`]));
    const show = () => {
      const words = plain(field.value).split(/\s+/).filter(Boolean);
      for (const row of rows) row.hidden = Object.entries(chosen).some(([key, value]) => value && row.dataset[key] !== value) || words.some((word) => !texts.get(row).includes(word));
      for (const head of heads) head.hidden = !rows.some((row) => row.dataset.study === head.dataset.heading && !row.hidden);
      for (const button of buttons) button.setAttribute("aria-pressed", String(button.dataset.value === chosen[button.dataset.key]));
      const left = rows.filter((row) => !row.hidden).length;
      count.textContent = left === rows.length ? `${rows.length} claims` : `${left} of ${rows.length} claims`;
      clear.hidden = left === rows.length;
    };
    const change = () => { show(); said.textContent = count.textContent; };
    field.addEventListener("input", change);
    clear.addEventListener("click", () => {
      field.value = "";
      for (const key of Object.keys(chosen)) chosen[key] = "";
      change();
      field.focus();
    });
    for (const button of buttons) button.addEventListener("click", () => {
      const { key, value } = button.dataset;
      chosen[key] = chosen[key] === value ? "" : value;
      change();
    });
    box.hidden = false;
    show();
  }

  // ---- commands
  for (const copy of document.querySelectorAll(".copy")) {
    copy.addEventListener("click", async () => {
      const code = copy.parentElement.querySelector("code");
      try {
        await navigator.clipboard.writeText(code.textContent);
        copy.textContent = "Copied";
      } catch {
        getSelection().selectAllChildren(code); // without a clipboard, the reader can copy the selection
        copy.textContent = "Selected";
      }
      said.textContent = copy.textContent;
      setTimeout(() => { copy.textContent = "Copy"; }, 2000);
    });
  }

  // ---- tables: built from the CSV text when they are opened
  const MOST = 500;
  function sheet(box, all) {
    const [head, ...rows] = all, table = node("table");
    table.append(node("thead", {}, node("tr", {}, ...head.map((name) => node("th", { scope: "col" }, name)))));
    table.append(node("tbody", {}, ...rows.slice(0, MOST).map((row) => node("tr", {}, ...row.map((value) => node("td", {}, short(value)))))));
    box.replaceChildren(table);
    if (rows.length > MOST) box.append(node("p", { class: "remark" }, `The first ${MOST} of ${rows.length} rows; the download has all.`));
  }
  for (const box of document.querySelectorAll("details.numbers")) {
    const { file } = box.dataset, csv = box.querySelector(".csv").textContent;
    box.before(node("div", { class: "table-row" }, action("↓ CSV", `Download ${file}`, () => save(new Blob([csv], { type: "text/csv" }), file))));
    box.previousElementSibling.prepend(box);
    box.addEventListener("toggle", () => { if (box.open) sheet(box.querySelector(".sheet"), parse(csv)); }, { once: true });
  }
  const short = (value) => (/^-?\d+\.\d{6,}(e[-+]?\d+)?$/.test(value) ? String(Number(Number(value).toPrecision(6))) : value);
  function parse(csv) {
    const rows = [[]];
    for (const [, field, end] of csv.matchAll(/("(?:[^"]|"")*"|[^",\n]*)([,\n])/g)) {
      rows.at(-1).push(field.replace(/^"|"$/g, "").replaceAll('""', '"'));
      if (end === "\n") rows.push([]);
    }
    return rows.slice(0, -1); // the text ends with a line feed
  }
})();
