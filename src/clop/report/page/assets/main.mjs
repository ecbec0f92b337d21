// Starts what needs a script; without one the page shows tables and pictures.

import { startLayer } from "./layer.mjs";
import { startCurves } from "./curves.mjs";
import { startClaims } from "./claims.mjs";

document.documentElement.classList.add("js");
startLayer(document);
startCurves(document.body);
startClaims(document);

// A number leads to its runs: open the list that it names.
function openTarget() {
  const target = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
  const list = target && target.closest("details");
  if (!list) return;
  for (let each = list; each; each = each.parentElement.closest("details")) each.open = true;
  target.scrollIntoView({ block: "center" });
  list.querySelector("summary").focus({ preventScroll: true });
}
addEventListener("hashchange", openTarget);
openTarget();

// Light or dark: as the system has it, until somebody chooses.
const theme = document.getElementById("theme");
theme.addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
});
