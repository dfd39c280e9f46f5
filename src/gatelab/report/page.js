// The page around the charts: theme, filters, copying, tables and their downloads.
(() => {
  const { node } = charts, said = document.getElementById("said");

  // ---- theme: automatic, light, dark, in a ring
  const button = document.getElementById("theme"), names = ["auto", "light", "dark"];
  const label = () => { const now = themes.read(); button.textContent = `Theme: ${now === "auto" ? "automatic" : now}`; };
  button.addEventListener("click", () => {
    const next = names[(names.indexOf(themes.read()) + 1) % names.length];
    themes.write(next);
    themes.show(next);
    label();
    charts.again();
  });
  label();

  // ---- contents: open beside the page, folded above it
  const folded = document.querySelector(".contents details"), narrow = matchMedia("(max-width: 1179px)");
  if (folded) {
    const fold = () => { folded.open = !narrow.matches; };
    narrow.addEventListener("change", fold);
    fold();
  }

  // ---- filters: [data-filter] holds buttons [data-key][data-value]; rows carry data-<key>
  for (const box of document.querySelectorAll("[data-filter]")) {
    const rows = [...document.querySelectorAll(`#${CSS.escape(box.dataset.filter)} tbody tr[data-verdict]`)];
    const count = box.querySelector("[data-count]"), clear = box.querySelector("[data-clear]"), field = box.querySelector("[data-search]"), chosen = {};
    // A row is found by its own words and by those of the study above it.
    const plain = (text) => text.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase();
    const titles = new Map([...document.querySelectorAll(`#${CSS.escape(box.dataset.filter)} tr[data-heading]`)].map((head) => [head.dataset.heading, plain(head.textContent)]));
    const texts = new Map(rows.map((row) => [row, `${plain(row.textContent)} ${titles.get(row.dataset.study)}`]));
    const show = () => {
      const words = plain(field ? field.value : "").split(/\s+/).filter(Boolean);
      for (const row of rows) row.hidden = Object.entries(chosen).some(([key, value]) => value && row.dataset[key] !== value) || words.some((word) => !texts.get(row).includes(word));
      for (const head of document.querySelectorAll(`#${CSS.escape(box.dataset.filter)} tbody tr[data-heading]`)) {
        head.hidden = !rows.some((row) => row.dataset.study === head.dataset.heading && !row.hidden);
      }
      const left = rows.filter((row) => !row.hidden).length;
      if (count) count.textContent = left === rows.length ? `${rows.length} claims` : `${left} of ${rows.length} claims`;
      if (clear) clear.hidden = left === rows.length;
    };
    const speak = () => { said.textContent = count ? count.textContent : ""; };
    if (field) field.addEventListener("input", () => { show(); speak(); });
    if (clear) clear.addEventListener("click", () => {
      if (field) field.value = "";
      for (const key of Object.keys(chosen)) chosen[key] = "";
      for (const other of box.querySelectorAll("button[data-key]")) other.setAttribute("aria-pressed", "false");
      show();
      speak();
      if (field) field.focus();
    });
    box.hidden = false;
    box.addEventListener("click", (event) => {
      const picked = event.target.closest("button[data-key]");
      if (!picked) return;
      const { key, value } = picked.dataset;
      chosen[key] = chosen[key] === value ? "" : value;
      for (const other of box.querySelectorAll(`button[data-key="${key}"]`)) other.setAttribute("aria-pressed", String(other.dataset.value === chosen[key]));
      show();
      speak();
    });
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
        getSelection().selectAllChildren(code); // no clipboard here: the reader's own copy takes it
        copy.textContent = "Selected";
      }
      said.textContent = copy.textContent;
      setTimeout(() => { copy.textContent = "Copy"; }, 2000);
    });
  }

  // ---- tables: made of their text when they are opened; a download is always whole
  const MOST = 500;
  function sheet(box, all, remark) {
    const [head, ...rows] = all, table = node("table");
    table.append(node("thead", {}, node("tr", {}, ...head.map((name) => node("th", { scope: "col" }, name)))));
    table.append(node("tbody", {}, ...rows.slice(0, MOST).map((row) => node("tr", {}, ...row.map((value) => node("td", {}, short(value)))))));
    box.replaceChildren(table);
    if (rows.length > MOST) box.append(node("p", { class: "remark" }, `The first ${MOST} of ${rows.length} rows; ${remark}.`));
  }
  const whenOpened = (box, fill) => box.addEventListener("toggle", () => { if (box.open) fill(); }, { once: true });
  for (const box of document.querySelectorAll("details.numbers")) {
    const { file } = box.dataset, csv = box.querySelector(".csv").textContent;
    const button = node("button", { type: "button", class: "quiet", "aria-label": `Download ${file}` }, "↓ CSV");
    button.addEventListener("click", () => charts.save(new Blob([csv], { type: "text/csv" }), file));
    box.before(node("div", { class: "table-row" }, button));
    box.previousElementSibling.prepend(box);
    whenOpened(box, () => sheet(box.querySelector(".sheet"), parse(csv), "the download has all"));
  }
  for (const host of document.querySelectorAll(".chart")) {
    const place = node("div", { class: "sheet", tabindex: 0, role: "region", "aria-label": `The values of ${host.dataset.name}` });
    const box = node("details", { class: "values" }, node("summary", {}, "The values of this figure as a table"), place);
    whenOpened(box, () => sheet(place, charts.values(host), "the tables below have all numbers"));
    host.append(box);
  }
  const short = (value) => (/^-?\d+\.\d{6,}(e[-+]?\d+)?$/.test(value) ? String(Number(Number(value).toPrecision(6))) : value);
  function parse(csv) {
    const rows = [[]];
    let field = "", quoted = false;
    for (let i = 0; i < csv.length; i++) {
      const c = csv[i];
      if (quoted) {
        if (c === '"' && csv[i + 1] === '"') { field += '"'; i++; }
        else if (c === '"') quoted = false;
        else field += c;
      } else if (c === '"') quoted = true;
      else if (c === "," || c === "\n") {
        rows[rows.length - 1].push(field);
        field = "";
        if (c === "\n" && i < csv.length - 1) rows.push([]);
      } else field += c;
    }
    return rows;
  }
})();
