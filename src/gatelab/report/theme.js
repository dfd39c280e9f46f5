"use strict";
// Before the page is painted, so that it does not flash in the other theme. A denied localStorage throws on access.
const themes = {
  read() { try { return localStorage.getItem("gatelab-theme") || "auto"; } catch { return this.now || "auto"; } },
  write(name) { this.now = name; try { localStorage.setItem("gatelab-theme", name); } catch { /* for this visit only */ } },
  show(name) {
    if (name === "light" || name === "dark") document.documentElement.dataset.theme = name;
    else delete document.documentElement.dataset.theme;
  },
};
themes.show(themes.read());
