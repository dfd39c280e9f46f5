"use strict";
// Runs before the first paint, to avoid a flash of the other theme. Access to a denied localStorage throws.
const themes = {
  read() { try { return localStorage.getItem("gatelab-theme") || "auto"; } catch { return this.now || "auto"; } },
  write(name) { this.now = name; try { localStorage.setItem("gatelab-theme", name); } catch { /* for this visit only */ } },
  show(name) {
    if (name === "light" || name === "dark") document.documentElement.dataset.theme = name;
    else delete document.documentElement.dataset.theme;
  },
};
themes.show(themes.read());
