"use strict";
// The page says everything without this script, which only hides what a filter leaves out and opens what a link names.
const form = document.querySelector(".filters");
const wanted = () => Object.fromEntries(new FormData(form));

function fits(item, want) {
  const { framework = "", family = "", kinds = "", words = "" } = item.dataset;
  return (!want.framework || framework === want.framework)
    && (!want.family || ` ${family} `.includes(` ${want.family} `))
    && (!want.kind || ` ${kinds} `.includes(` ${want.kind} `))
    && (!want.words || `${words} ${item.matches("tr, details") ? "" : item.textContent}`.toLowerCase().includes(want.words.toLowerCase()));
}

// A column of a grid is hidden by one rule, not by as many changes as it has cells.
const columns = document.head.appendChild(document.createElement("style")).sheet;
function hideColumns(want) {
  while (columns.cssRules.length) columns.deleteRule(0);
  if (!want.family) return;
  document.querySelectorAll("table.grid").forEach((table, number) => {
    table.id = `grid-${number}`;
    [...table.tHead.rows[0].cells].forEach((cell, place) => {
      if (place && cell.dataset.family !== want.family) columns.insertRule(`#${table.id} tr > :nth-child(${place + 1}) { display: none; }`);
    });
  });
}

function filter() {
  const want = wanted();
  let shown = 0, all = 0;
  for (const item of document.querySelectorAll("[data-framework]")) {
    const fit = fits(item, want);
    item.hidden = !fit;
    if (item.matches(".trial")) { all += 1; shown += fit; }
  }
  for (const section of document.querySelectorAll("[data-counts]")) {
    section.hidden = !section.querySelector("[data-framework]:not([hidden])");
  }
  hideColumns(want);
  document.querySelector("#matches").textContent = Object.values(want).some(Boolean) ? `${shown} of ${all} listed failures` : "";
}

function openTarget() {
  const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  for (let node = target; node; node = node.parentElement) if (node.tagName === "DETAILS") node.open = true;
  if (target) target.scrollIntoView();
}

if (form) {
  form.hidden = false;
  form.addEventListener("input", filter);
  form.addEventListener("reset", () => setTimeout(filter));
  form.addEventListener("submit", (event) => event.preventDefault());
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && !event.target.matches("input, select")) { event.preventDefault(); form.elements.words.focus(); }
  });
}
addEventListener("hashchange", openTarget);
addEventListener("beforeprint", () => document.querySelectorAll("details.finding").forEach((item) => { item.open = true; }));
openTarget();
