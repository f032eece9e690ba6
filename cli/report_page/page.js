// SPDX-License-Identifier: Apache-2.0
//
// Draws the report from the JSON in #data (cli/report_page/page.cc). Texts of
// the runs become text nodes, never HTML.
"use strict";

const { version, runs } = JSON.parse(document.getElementById("data").textContent);
const at = (id) => document.getElementById(id);
const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const runColor = (i) => color(`--run-${i}`);
const number = (value) => Number(value.toPrecision(4)).toString();

// make("td", {className: "number"}, "text", node, …)
function make(tag, fields, ...children) {
  const node = Object.assign(document.createElement(tag), fields);
  node.append(...children);
  return node;
}

function swatch(i) {
  const mark = make("span", { className: "swatch", ariaHidden: "true" });
  mark.style.background = `var(--run-${i})`;
  return mark;
}

// `numbers`: the columns, counted from 0, that hold numbers.
function fillTable(table, caption, head, rows, numbers) {
  const cell = (tag, text, column, scope) => {
    const node = make(tag, numbers(column) ? { className: "number" } : {}, text);
    if (scope) node.scope = scope;
    return node;
  };
  table.replaceChildren(
    make("caption", {}, caption),
    make("thead", {}, make("tr", {}, ...head.map((text, i) => cell("th", text, i, "col")))),
    make("tbody", {}, ...rows.map(({ cells, className }) =>
      make("tr", className ? { className } : {},
        ...cells.map((text, i) => (i === 0 ? cell("th", text, i, "row") : cell("td", text, i)))))));
}

// A table that is made when somebody opens it, and anew after `changed()`.
function lazyTable(details, fill) {
  let made = false;
  const build = () => {
    if (made || !details.open) return;
    made = true;
    details.querySelector(".wide")?.remove();
    const table = make("table", {});
    const box = make("div", { className: "wide", tabIndex: 0 }, table);
    fill(table);
    box.setAttribute("role", "region");
    box.setAttribute("aria-label", details.querySelector("summary").textContent);
    details.append(box);
  };
  details.addEventListener("toggle", build);
  return () => { made = false; build(); };
}

const steps = (first, last) => (first === last ? `step ${first}` : `steps ${first} to ${last}`);
const ends = (curve) => {
  const { values } = curve;
  const least = values.reduce((best, value, i) => (value < values[best] ? i : best), 0);
  return { first: values[0], last: values.at(-1), least: values[least], at: curve.steps[least] };
};

// ---- runs ------------------------------------------------------------------

const shown = runs.map(() => true);

function showRuns() {
  at("summary").textContent =
    `${runs.length} ${runs.length === 1 ? "run" : "runs"}. Curves and heat maps keep the lowest and the highest, ` +
    "or the worst, of what they leave out.";
  at("made").textContent = `Made by onnx-fp8 ${version}; drawn with Chart.js ${Chart.version} (MIT License).`;
  runs.forEach((run, i) => {
    const box = make("input", { type: "checkbox", checked: true });
    box.addEventListener("change", () => { shown[i] = box.checked; drawCurves(); });
    at("shown").append(make("label", {}, box, swatch(i), make("span", { className: "name" }, run.folder)));
    for (const note of run.notes) at("notes").append(make("p", { className: "quiet" }, `${run.folder}: ${note}`));
  });
  at("shown").hidden = runs.length === 1;
  const text = (curve, key) => (curve.values.length ? number(ends(curve)[key]) : "–");
  fillTable(at("runs"), "Losses of training and of validations",
    ["run", "steps", "skipped", "loss, first", "loss, last", "validation, last", "validation, best", "at step"],
    runs.map((run) => ({
      cells: [run.folder, `${run.last_step}${run.stopped_early ? ", stopped early" : ""}`, `${run.skipped.count}`,
        text(run.loss, "first"), text(run.loss, "last"), text(run.val_loss, "last"), text(run.val_loss, "least"),
        run.val_loss.values.length ? `${ends(run.val_loss).at}` : "–"],
    })), (column) => column > 0);
}

// ---- curves ----------------------------------------------------------------

const charts = [];
const points = (curve) => curve.steps.map((x, i) => ({ x, y: curve.values[i] }));

function line(i, label, curve, dash) {
  const few = curve.steps.length < 2 ? 3 : dash.length ? 2 : 0;
  return { label, data: points(curve), run: i, borderDash: dash, borderWidth: 1.5, pointRadius: few, tension: 0 };
}

function lossLines() {
  return runs.flatMap((run, i) => [
    line(i, run.folder, run.loss, []),
    ...(run.val_loss.steps.length ? [line(i, `${run.folder}, validation`, run.val_loss, [6, 3])] : []),
    ...(run.marks.length ? [{
      label: `${run.folder}, skipped`, data: run.marks.map(([x, y]) => ({ x, y })), run: i, showLine: false,
      pointStyle: "crossRot", pointRadius: 5, borderWidth: 2,
    }] : []),
  ]);
}

function curveOptions(title, logarithmic) {
  const axis = (text, type) => ({
    type, title: { display: true, text, color: color("--quiet") }, grid: { color: color("--line") },
    ticks: { color: color("--quiet"), maxRotation: 0 },
  });
  return {
    animation: false, parsing: false, responsive: true, maintainAspectRatio: false,
    interaction: { mode: "nearest", axis: "x", intersect: false },
    scales: { x: axis("step", "linear"), y: axis(title, logarithmic ? "logarithmic" : "linear") },
    plugins: {
      legend: { display: false },
      tooltip: {
        callbacks: {
          title: (items) => (items.length ? `step ${items[0].parsed.x}` : ""),
          label: (item) => `${item.dataset.label}: ${number(item.parsed.y)}`,
        },
      },
    },
  };
}

function styled(lines) {
  for (const one of lines) {
    one.borderColor = one.backgroundColor = one.pointBorderColor = runColor(one.run);
    one.hidden = !shown[one.run];
  }
  return lines;
}

function drawCurves() {
  for (const chart of charts) {
    const lines = styled(chart.lines());
    chart.drawn?.destroy();
    chart.drawn = new Chart(chart.canvas, {
      type: "line", data: { datasets: lines }, options: curveOptions(chart.title, chart.log.checked),
    });
  }
}

function described(title, key) {
  return `${title} by step. ` + runs.map((run) => {
    const curve = run[key];
    if (!curve.values.length) return `${run.folder} has none.`;
    const { first, last, least, at: step } = ends(curve);
    return `${run.folder}: first ${number(first)}, last ${number(last)}, lowest ${number(least)} at step ${step}.`;
  }).join(" ");
}

const TABLE_ROWS = 60;

// About TABLE_ROWS of the points, as rows.
function curveTable(table, caption, columns) {
  const all = [...new Set(columns.flatMap(({ curve }) => curve.steps))].sort((a, b) => a - b);
  const some = all.filter((_, i) => i % Math.ceil(all.length / TABLE_ROWS) === 0 || i === all.length - 1);
  const values = columns.map(({ curve }) => new Map(curve.steps.map((step, i) => [step, curve.values[i]])));
  fillTable(table, `${caption}; ${some.length} of ${all.length} steps that the picture shows`,
    ["step", ...columns.map(({ name }) => name)],
    some.map((step) => ({ cells: [`${step}`, ...values.map((of) => (of.has(step) ? number(of.get(step)) : "–"))] })),
    () => true);
}

function addCurve(id, title, lines, columns) {
  const canvas = at(id);
  canvas.setAttribute("aria-label", `${described(title, id === "loss" ? "loss" : "grad_norm")} A table follows.`);
  const log = at(`${id}-log`);
  log.addEventListener("change", drawCurves);
  charts.push({ canvas, title, lines, log });
  lazyTable(at(`${id}-table`), (table) => curveTable(table, title, columns));
}

function showCurves() {
  const named = (key, more) => runs.filter((run) => run[key].steps.length)
    .map((run) => ({ name: `${run.folder}${more}`, curve: run[key] }));
  addCurve("loss", "Loss", lossLines, [...named("loss", ""), ...named("val_loss", ", validation")]);
  addCurve("norm", "Gradient norm", () => runs.map((run, i) => line(i, run.folder, run.grad_norm, [])),
    named("grad_norm", ""));
  at("loss-legend").textContent = "Dashed lines are validations, crosses are skipped steps.";
  drawCurves();
}

// ---- heat maps -------------------------------------------------------------

const LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const VALUES = Object.fromEntries([...LETTERS].map((letter, i) => [letter, i]));
const EXACT = 4095;

// Codes of cli/report_page/heat_map.h: null is none, Infinity an exact cast.
const decibels = (code) => (code === 0 ? null : code === EXACT ? Infinity : (code - 1) / 10 - 150);
const share = (code) => (code === 0 ? null : code === 1 ? 0 : 10 ** ((code - 2) / 400 - 10));

function decoded(text, decode) {
  const table = Array.from({ length: 4096 }, (_, code) => decode(code));
  return Array.from({ length: text.length / 2 }, (_, i) => table[64 * VALUES[text[2 * i]] + VALUES[text[2 * i + 1]]]);
}

const NUMBERS = {
  sqnr: {
    name: "SQNR", decode: decibels, worse: (a, b) => a < b,
    text: (value) => (value === null ? "none" : value === Infinity ? "exact" : `${value.toFixed(1)} dB`),
    help: "The ratio of a tensor to the noise of its cast to FP8, in dB: the lower, the noisier. A product is measured " +
      "beside the product of its operands before their casts.",
  },
  saturated: {
    name: "saturated share", decode: share, worse: (a, b) => a > b, text: shareText,
    help: "The share of numbers that were too large for the format. Products have none.",
  },
  flushed: {
    name: "flushed share", decode: share, worse: (a, b) => a > b, text: shareText,
    help: "The share of numbers that the cast made zero.",
  },
};

function shareText(value) {
  return value === null ? "none" : value === 0 ? "0 %" : `${Number((100 * value).toPrecision(2))} %`;
}

// From bad to good; readable for color-blind people, and on light and dark.
const STOPS = [[122, 4, 30], [214, 69, 32], [247, 170, 60], [158, 205, 190], [49, 130, 189], [22, 60, 120]];

function mixed(part) {
  const place = Math.min(Math.max(part, 0), 1) * (STOPS.length - 1);
  const low = Math.min(Math.floor(place), STOPS.length - 2);
  return STOPS[low].map((from, i) => Math.round(from + (place - low) * (STOPS[low + 1][i] - from)));
}

const SHARE_FLOOR = -6; // powers of ten; smaller shares look like this one

// 0: bad, 1: good.
function goodness(key, value, range) {
  if (key !== "sqnr") return value === 0 ? 1 : 0.8 * (Math.log10(value) / SHARE_FLOOR);
  if (value === Infinity) return 1;
  return range.high > range.low ? (value - range.low) / (range.high - range.low) : 0.5;
}

const map = { cursor: null };

function numbersOf(run, key) {
  run.decoded ??= {};
  return run.decoded[key] ??= decoded(run.casts[key], NUMBERS[key].decode);
}

// One scale for all runs, so that their colors compare.
function rangeOf(key) {
  if (key !== "sqnr") return {};
  map.range ??= runs.filter((run) => run.casts).reduce((range, run) => {
    for (const value of numbersOf(run, key)) {
      if (value === null || value === Infinity) continue;
      range.low = Math.min(range.low, value);
      range.high = Math.max(range.high, value);
    }
    return range;
  }, { low: Infinity, high: -Infinity });
  return map.range;
}

const rowName = ([fqn, gemm, operand, use]) => `${fqn}, ${gemm} ${operand}${use > 1 ? `, copy ${use}` : ""}`;

// The worst number of a row and its column; null: it has none.
function worstOf(row) {
  const { values, columns, key } = map;
  let worst = null;
  for (let column = 0; column < columns; ++column) {
    const value = values[row * columns + column];
    if (value !== null && (worst === null || NUMBERS[key].worse(value, worst.value))) worst = { value, column };
  }
  return worst;
}

function chooseRows() {
  const kind = at("casts-kind").value, name = at("casts-name").value.trim().toLowerCase();
  const rows = map.casts.rows.map((row, i) => ({ i, name: rowName(row), row, worst: worstOf(i) }))
    .filter(({ row, worst, name: own }) => worst && own.toLowerCase().includes(name) &&
      (kind === "all" || (row[2] === "product") === (kind === "products")));
  if (at("casts-order").value === "worst") {
    rows.sort((a, b) => (NUMBERS[map.key].worse(a.worst.value, b.worst.value) ? -1 : a.worst.value === b.worst.value ? 0 : 1));
  }
  return rows;
}

function drawScale() {
  const { key } = map, range = rangeOf(key);
  const context = at("scale").getContext("2d");
  for (let x = 0; x < 256; ++x) {
    context.fillStyle = `rgb(${mixed(key === "sqnr" ? x / 255 : 0.8 * (1 - x / 255))})`;
    context.fillRect(x, 0, 1, 1);
  }
  const finite = Number.isFinite(range.low);
  at("scale-low").textContent = key === "sqnr" ? (finite ? `${range.low.toFixed(1)} dB` : "") : "0.0001 %";
  at("scale-high").textContent = key === "sqnr" ? (finite ? `${range.high.toFixed(1)} dB` : "exact") : "100 %";
}

// A picture with one pixel for each cell.
function cells() {
  const { rows, columns, values, key } = map, range = rangeOf(key);
  const small = make("canvas", { width: Math.max(columns, 1), height: Math.max(rows.length, 1) });
  const context = small.getContext("2d");
  const image = context.createImageData(small.width, small.height);
  const colors = new Map();
  rows.forEach(({ i }, y) => {
    for (let x = 0; x < columns; ++x) {
      const value = values[i * columns + x];
      if (value === null) continue;
      if (!colors.has(value)) colors.set(value, mixed(goodness(key, value, range)));
      image.data.set([...colors.get(value), 255], 4 * (y * columns + x));
    }
  });
  context.putImageData(image, 0, 0);
  return small;
}

// The middle of a long name is left out.
function fitting(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  let kept = text.length - 1;
  const cut = () => `${text.slice(0, Math.ceil(kept / 2))}…${text.slice(text.length - Math.floor(kept / 2))}`;
  while (kept > 2 && context.measureText(cut()).width > width) --kept;
  return cut();
}

const AXIS = 20; // pixels above the cells, for steps

function drawMap() {
  const canvas = at("map"), width = at("map-box").clientWidth, count = Math.max(map.rows.length, 1);
  const height = Math.max(3, Math.min(16, Math.floor(7000 / count)));
  const labels = height >= 12 ? Math.min(340, Math.round(width * 0.36)) : 0;
  Object.assign(map, { labels, height, cell: (width - labels) / Math.max(map.columns, 1) });
  const tall = AXIS + count * height;
  const scale = Math.min(devicePixelRatio || 1, Math.sqrt(1.6e7 / (width * tall)));
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(tall * scale);
  canvas.style.height = `${tall}px`;
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  context.imageSmoothingEnabled = false;
  if (map.rows.length) context.drawImage(map.small, labels, AXIS, width - labels, count * height);
  context.font = "11px system-ui, sans-serif";
  context.fillStyle = color("--quiet");
  context.textBaseline = "middle";
  const { first, last } = map.casts;
  context.fillText(`step ${first[0]}`, labels + 2, AXIS / 2);
  context.textAlign = "right";
  context.fillText(`${last.at(-1)}`, width - 2, AXIS / 2);
  context.textAlign = "left";
  context.fillStyle = color("--text");
  if (labels) {
    map.rows.forEach(({ name }, y) =>
      context.fillText(fitting(context, name, labels - 8), 4, AXIS + (y + 0.5) * height));
  }
  if (map.cursor) {
    context.strokeStyle = color("--text");
    context.lineWidth = 2;
    const { x, y } = map.cursor;
    context.strokeRect(labels + x * map.cell - 1, AXIS + y * height - 1, Math.max(map.cell, 3) + 2, height + 2);
  }
}

function tell() {
  const { cursor, rows, casts, columns, values, key } = map;
  if (!cursor || !rows[cursor.y]) {
    at("cell").textContent = rows.length ? "Point at a cell, or move by the arrow keys." : "No row fits.";
    return;
  }
  const { i, name, row } = rows[cursor.y];
  const format = row[4] ? ` (${row[4]})` : "";
  const when = steps(casts.first[cursor.x], casts.last[cursor.x]);
  at("cell").textContent = `${name}${format}, ${when}: ${NUMBERS[key].text(values[i * columns + cursor.x])}`;
}

function chooseMap() {
  const run = runs[Number(at("casts-run").value)];
  const key = at("casts-number").value;
  Object.assign(map, { casts: run.casts, key, values: numbersOf(run, key), columns: run.casts.first.length, cursor: null });
  map.rows = chooseRows();
  map.small = cells();
  const { measured, left_out: leftOut } = run.casts;
  at("casts-help").textContent = `${NUMBERS[key].help} ${measured} measured steps in ${map.columns} columns` +
    (measured > map.columns ? ", each with the worst of its steps." : ".") +
    (leftOut ? ` ${leftOut} rows with less noise are left out.` : "");
  const worst = map.rows.reduce((best, one) =>
    (!best || NUMBERS[key].worse(one.worst.value, best.worst.value) ? one : best), null);
  at("map").setAttribute("aria-label", `${NUMBERS[key].name} of ${map.rows.length} tensors by step.` +
    (worst ? ` Worst: ${NUMBERS[key].text(worst.worst.value)}, ${worst.name}.` : "") +
    " The arrow keys move from cell to cell; a table follows.");
  drawScale();
  drawMap();
  tell();
  map.changed();
}

function mapTable(table) {
  const { rows, casts, columns, values, key } = map;
  const { name, text } = NUMBERS[key];
  fillTable(table, `${name}, ${rows.length} rows`,
    ["tensor", "format", "worst", "at", `first (${steps(casts.first[0], casts.last[0])})`,
      `last (${steps(casts.first.at(-1), casts.last.at(-1))})`],
    rows.map(({ i, name: own, row, worst }) => ({
      cells: [own, row[4] || "–", text(worst.value), steps(casts.first[worst.column], casts.last[worst.column]),
        text(values[i * columns]), text(values[i * columns + columns - 1])],
    })), (column) => column === 2 || column > 3);
}

function moveCursor(x, y) {
  const inside = (value, size) => Math.max(0, Math.min(size - 1, value));
  if (!map.rows.length) return;
  map.cursor = { x: inside(x, map.columns), y: inside(y, map.rows.length) };
  drawMap();
  tell();
}

const MOVES = {
  ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1], PageUp: [0, -10], PageDown: [0, 10],
  Home: [-Infinity, 0], End: [Infinity, 0],
};

function onKey(event) {
  const move = MOVES[event.key];
  if (!move || event.ctrlKey || event.altKey || event.metaKey) return;
  event.preventDefault();
  const { x, y } = map.cursor ?? { x: 0, y: 0 };
  if (map.cursor) moveCursor(x + move[0], y + move[1]);
  else moveCursor(0, 0);
  const box = at("map-box"), top = AXIS + map.cursor.y * map.height;
  if (top < box.scrollTop) box.scrollTop = top - AXIS;
  if (top + map.height > box.scrollTop + box.clientHeight) box.scrollTop = top + map.height - box.clientHeight;
}

function onPointer(event) {
  const place = at("map").getBoundingClientRect();
  const x = Math.floor((event.clientX - place.left - map.labels) / map.cell);
  const y = Math.floor((event.clientY - place.top - AXIS) / map.height);
  if (map.cursor?.x !== x || map.cursor?.y !== y) moveCursor(x, y);
}

function showCasts() {
  const measured = runs.flatMap((run, i) => (run.casts ? [i] : []));
  const without = runs.filter((run) => !run.casts).map((run) => run.folder);
  const advice = "train --stats measures the casts to FP8 and writes statistics.jsonl, from which heat maps are drawn.";
  if (!measured.length) {
    at("casts").replaceChildren(make("p", {}, `No run here has statistics. ${advice}`));
    return;
  }
  if (without.length) {
    at("casts").prepend(make("p", { className: "quiet" }, `Without statistics: ${without.join(", ")}. ${advice}`));
  }
  at("casts-run").append(...measured.map((i) => make("option", { value: `${i}` }, runs[i].folder)));
  map.changed = lazyTable(at("casts-table"), mapTable);
  for (const id of ["run", "number", "kind", "order"]) at(`casts-${id}`).addEventListener("change", chooseMap);
  at("casts-name").addEventListener("input", chooseMap);
  at("map").addEventListener("keydown", onKey);
  at("map").addEventListener("pointermove", onPointer);
  at("map").addEventListener("pointerdown", onPointer);
  chooseMap();
  new ResizeObserver(drawMap).observe(at("map-box"));
}

// ---- skipped steps and settings ---------------------------------------------

function rangesText({ count, ranges, told }) {
  const list = ranges.map(([first, last]) => (first === last ? `${first}` : `${first}–${last}`)).join(", ");
  return count > told ? `${list} and ${count - told} more` : list;
}

function showSkipped() {
  const box = at("skipped");
  for (const run of runs) {
    const told = [[run.skipped, "skipped"], [run.not_finite, "with a loss that is not finite"]]
      .filter(([steps_]) => steps_.count)
      .map(([steps_, what]) => `${steps_.count} ${what}: ${steps_.count === 1 ? "step" : "steps"} ${rangesText(steps_)}`);
    box.append(make("p", {}, make("span", { className: "name" }, run.folder), `: ${told.join("; ") || "none"}`));
  }
}

function showSettings() {
  const of = (run) => new Map([...run.facts, ...run.settings]);
  const maps = runs.map(of);
  const names = [...new Set(maps.flatMap((one) => [...one.keys()]))];
  if (!names.length) {
    at("settings-help").textContent = "The folders have no config.json, which the program writes.";
    return;
  }
  at("settings-help").textContent = "Flags that were given, and what the folder tells of the model and the program." +
    (runs.length > 1 ? " Rows that differ are shaded and end with a star." : "");
  fillTable(at("settings"), "Settings", ["setting", ...runs.map((run) => run.folder)],
    names.map((name) => {
      const values = maps.map((one) => (one.has(name) ? one.get(name) || "on" : "–"));
      const differs = new Set(values).size > 1;
      return { cells: [differs ? `${name} *` : name, ...values], className: differs ? "differs" : "" };
    }), () => false);
}

// The milliseconds since the page was opened are in data-drawn of <html>.
document.title = `Report: ${runs.map((run) => run.folder).join(", ")}`;
showRuns();
showCurves();
showCasts();
showSkipped();
showSettings();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  drawCurves();
  if (map.casts) drawMap();
});
document.documentElement.dataset.drawn = `${Math.round(performance.now())}`;
