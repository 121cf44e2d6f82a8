// Drawing: lanes over time and lines over time, on canvases. This file does not depend on the meaning of the data.

const DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const VALUE = new Map([...DIGITS].map((digit, at) => [digit, at]));
const LABEL = 150; // width of names in pixels

/** A share as written in a cell; null for what is not known. */
function share(text, at) {
  const value = VALUE.get(text[at]);
  return value === undefined ? null : value / 63;
}

function make(tag, text, className) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (className) element.className = className;
  return element;
}

const percent = (value) => (value === null || value === undefined ? "–" : `${(100 * value).toFixed(0)} %`);
const seconds = (ms) => (ms >= 100000 ? `${(ms / 1000).toFixed(0)} s` : `${(ms / 1000).toFixed(ms >= 10000 ? 1 : 2)} s`);

/** Slow is warm, fast is blue: told apart with every kind of colour vision. */
function speedColour(value) {
  const stops = [[178, 36, 44], [239, 138, 98], [247, 214, 150], [103, 169, 207], [33, 102, 172]];
  const place = Math.min(Math.max(value, 0), 1) * (stops.length - 1);
  const at = Math.min(Math.floor(place), stops.length - 2);
  const mix = stops[at].map((from, k) => Math.round(from + (stops[at + 1][k] - from) * (place - at)));
  return `rgb(${mix})`;
}

/** Neighbours differ: the golden angle around the circle of colours. */
const hueColour = (number) => `hsl(${(number * 137.508 + 210) % 360} 58% ${number % 2 ? 62 : 50}%)`;

const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

const tip = {
  show(text, x, y) {
    const box = document.getElementById("tip");
    box.textContent = text;
    box.hidden = false;
    const left = Math.min(x + 14, innerWidth - box.offsetWidth - 8);
    const top = y + 18 + box.offsetHeight > innerHeight ? y - box.offsetHeight - 10 : y + 18;
    box.style.left = `${Math.max(left, 4)}px`;
    box.style.top = `${Math.max(top, 4)}px`;
  },
  hide() { document.getElementById("tip").hidden = true; },
};

/** The stretch of time that all pictures show, in columns. */
const view = { from: 0, to: 1, listeners: [] };
function look(from, to) {
  view.from = from;
  view.to = to;
  view.listeners.forEach((redraw) => redraw());
}

function surface(canvas, width, height) {
  const scale = window.devicePixelRatio || 1;
  canvas.width = Math.max(1, Math.round(width * scale));
  canvas.height = Math.max(1, Math.round(height * scale));
  canvas.style.height = `${height}px`;
  const paper = canvas.getContext("2d");
  paper.setTransform(scale, 0, 0, scale, 0, 0);
  paper.clearRect(0, 0, width, height);
  paper.font = "11px system-ui, 'DejaVu Sans', sans-serif";
  return paper;
}

/** Text cut to a width. */
function fit(paper, text, width) {
  if (paper.measureText(text).width <= width) return text;
  let cut = text.slice(0, Math.ceil(width / 4));
  while (cut && paper.measureText(cut + "…").width > width) cut = cut.slice(0, -1);
  return cut + "…";
}

function axis(paper, edges, left, width, y, height) {
  const from = edges[view.from], to = edges[view.to], span = to - from;
  if (!(span > 0)) return;
  const rough = span / Math.max(4, width / 90), power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((k) => k * power).find((k) => k >= rough);
  paper.fillStyle = style("--dim");
  paper.strokeStyle = style("--line");
  paper.textAlign = "center";
  for (let at = Math.ceil(from / step) * step; at <= to + 1e-9; at += step) {
    const x = left + ((at - from) / span) * width;
    paper.beginPath();
    paper.moveTo(x, y - height);
    paper.lineTo(x, y + 4);
    paper.globalAlpha = 0.5;
    paper.stroke();
    paper.globalAlpha = 1;
    if (x > left + 12 && x < left + width - 12) paper.fillText(seconds(at), x, y + 15);
  }
  paper.textAlign = "left";
}

/**
 * Lanes over time. `rows()` returns lanes; a lane has `label`; `cell(lane, column)` returns {colour, tick, mark} or null;
 * `describe(lane, column)` returns the text of the tip.
 */
function lanes(pane, edges, { rows, height, cell, describe, name }) {
  const canvas = make("canvas"), sizer = make("div");
  canvas.tabIndex = 0;
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", name);
  pane.append(canvas, sizer);
  const foot = 22;
  const cursor = { row: -1, column: -1 };
  let drag = null;

  function draw() {
    const all = rows(), tall = height(), width = pane.clientWidth;
    const most = parseFloat(getComputedStyle(pane).maxHeight) || 400;
    const high = Math.min(most, all.length * tall + foot);
    sizer.style.height = `${Math.max(0, all.length * tall + foot - high)}px`;
    const paper = surface(canvas, width, high);
    const left = Math.min(LABEL, width / 3), wide = width - left, columns = view.to - view.from;
    const top = pane.scrollTop, first = Math.floor(top / tall);
    const last = Math.min(all.length, Math.ceil((top + high - foot) / tall));
    const gap = tall > 4 ? 1 : 0, step = wide / columns, empty = style("--empty");
    axis(paper, edges, left, wide, high - foot + 2, high - foot);
    for (let row = first; row < last; row++) {
      const lane = all[row], y = row * tall - top;
      if (tall >= 10) {
        paper.fillStyle = row === cursor.row ? style("--accent") : style("--ink");
        paper.fillText(fit(paper, lane.label, left - 10), 0, y + tall - 3);
      }
      paper.fillStyle = empty;
      paper.fillRect(left, y, wide, tall - gap);
      const ticks = [], marks = [];
      let open = null, from = 0;
      const flush = (to) => {
        if (open !== null) {
          paper.fillStyle = open;
          paper.fillRect(left + from * step, y, (to - from) * step + 0.3, tall - gap);
        }
      };
      for (let at = 0; at < columns; at++) {
        const shown = cell(lane, view.from + at), colour = shown ? shown.colour : null;
        if (colour !== open) {
          flush(at);
          open = colour;
          from = at;
        }
        if (shown && shown.tick) ticks.push(at);
        if (shown && shown.mark) marks.push(at);
      }
      flush(columns);
      if (tall >= 6) {
        // White between dark lines, visible on every colour.
        const thin = Math.min(1.2, step / 3);
        paper.fillStyle = "#0009";
        for (const at of ticks) paper.fillRect(left + at * step - thin, y, 3 * thin, tall - gap);
        paper.fillStyle = "#fff";
        for (const at of ticks) paper.fillRect(left + at * step, y, thin, tall - gap);
        paper.fillStyle = style("--ink");
        for (const at of marks) {
          const x = left + (at + 0.5) * step;
          paper.beginPath();
          paper.moveTo(x - 3, y);
          paper.lineTo(x + 3, y);
          paper.lineTo(x, y + 5);
          paper.fill();
        }
      }
    }
    paper.clearRect(0, high - foot, width, foot);
    axis(paper, edges, left, wide, high - foot + 2, 0);
    if (cursor.column >= view.from && cursor.row >= first) {
      paper.strokeStyle = style("--accent");
      paper.lineWidth = 2;
      paper.strokeRect(left + (cursor.column - view.from) * step, cursor.row * tall - top, Math.max(step, 3), tall);
    }
    if (drag && drag.to !== drag.from) {
      paper.fillStyle = style("--accent");
      paper.globalAlpha = 0.25;
      paper.fillRect(Math.min(drag.from, drag.to), 0, Math.abs(drag.to - drag.from), high - foot);
      paper.globalAlpha = 1;
    }
  }

  function find(event) {
    const box = canvas.getBoundingClientRect(), left = Math.min(LABEL, pane.clientWidth / 3);
    const x = event.clientX - box.left, wide = pane.clientWidth - left;
    const row = Math.floor((event.clientY - box.top + pane.scrollTop) / height());
    const part = (x - left) / wide;
    const column = view.from + Math.floor(Math.min(Math.max(part, 0), 0.999999) * (view.to - view.from));
    return { x, row, column, inside: part >= 0 && row >= 0 && row < rows().length };
  }

  canvas.addEventListener("mousemove", (event) => {
    const at = find(event);
    if (drag) {
      drag.to = at.x;
      draw();
    }
    if (at.inside) tip.show(describe(rows()[at.row], at.column), event.clientX, event.clientY);
    else tip.hide();
  });
  canvas.addEventListener("mouseleave", tip.hide);
  canvas.addEventListener("mousedown", (event) => {
    const at = find(event);
    if (at.inside) drag = { from: at.x, to: at.x, column: at.column };
  });
  addEventListener("mouseup", (event) => {
    if (!drag) return;
    const { column, from } = drag, at = find(event);
    drag = null;
    const [low, high] = [Math.min(column, at.column), Math.max(column, at.column) + 1];
    if (Math.abs(at.x - from) > 5 && high > low) look(low, high);
    else draw();
  });
  canvas.addEventListener("keydown", (event) => {
    const move = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    const all = rows();
    if (!move || !all.length) return;
    event.preventDefault();
    cursor.row = Math.min(Math.max(cursor.row + move[0], 0), all.length - 1);
    cursor.column = Math.min(Math.max(cursor.column + move[1], view.from), view.to - 1);
    const y = cursor.row * height();
    if (y < pane.scrollTop) pane.scrollTop = y;
    if (y > pane.scrollTop + canvas.clientHeight - 40) pane.scrollTop = y - canvas.clientHeight + 40;
    draw();
    const box = canvas.getBoundingClientRect(), left = Math.min(LABEL, pane.clientWidth / 3);
    const x = left + ((cursor.column - view.from) / (view.to - view.from)) * (pane.clientWidth - left);
    tip.show(describe(all[cursor.row], cursor.column), box.left + x, box.top + y - pane.scrollTop);
  });
  canvas.addEventListener("blur", () => { cursor.row = cursor.column = -1; tip.hide(); draw(); });
  pane.addEventListener("scroll", draw);
  view.listeners.push(draw);
  return draw;
}

/** Lines over time, each value a share. */
function lines(box, title, edges, series) {
  const chart = make("div", undefined, "chart"), canvas = make("canvas"), legend = make("div", undefined, "legend");
  chart.append(make("h3", title), legend, canvas);
  for (const { label, colour } of series) {
    const item = make("span"), swatch = make("i");
    swatch.style.background = `var(${colour})`;
    item.append(swatch, label);
    legend.append(item);
  }
  box.append(chart);
  let hover = null;
  function draw() {
    const width = chart.clientWidth, high = 190, left = 44, foot = 22, top = 8;
    const paper = surface(canvas, width, high);
    const columns = view.to - view.from, step = (width - left - 8) / columns;
    const y = (value) => top + (1 - value) * (high - foot - top);
    paper.textAlign = "right";
    for (const value of [0, 0.25, 0.5, 0.75, 1]) {
      paper.strokeStyle = style("--line");
      paper.beginPath();
      paper.moveTo(left, y(value));
      paper.lineTo(width - 8, y(value));
      paper.stroke();
      paper.fillStyle = style("--dim");
      paper.fillText(`${100 * value} %`, left - 6, y(value) + 4);
    }
    axis(paper, edges, left, width - left - 8, high - foot + 2, 0);
    for (const { values, colour } of series) {
      paper.strokeStyle = paper.fillStyle = style(colour);
      paper.lineWidth = 1.8;
      paper.beginPath();
      let pen = false;
      for (let at = view.from; at < view.to; at++) {
        const value = values[at];
        if (value === null) { pen = false; continue; }
        const x = left + (at - view.from + 0.5) * step;
        if (pen) paper.lineTo(x, y(value));
        else paper.moveTo(x, y(value));
        if (!pen && (at + 1 >= view.to || values[at + 1] === null)) paper.fillRect(x - 1.5, y(value) - 1.5, 3, 3);
        pen = true;
      }
      paper.stroke();
    }
    if (hover !== null) {
      paper.strokeStyle = style("--dim");
      paper.lineWidth = 1;
      paper.beginPath();
      paper.moveTo(left + (hover - view.from + 0.5) * step, top);
      paper.lineTo(left + (hover - view.from + 0.5) * step, high - foot);
      paper.stroke();
    }
  }
  canvas.addEventListener("mousemove", (event) => {
    const part = (event.offsetX - 44) / (chart.clientWidth - 52), columns = view.to - view.from;
    hover = view.from + Math.floor(Math.min(Math.max(part, 0), 0.999999) * columns);
    draw();
    const words = series.map(({ label, values }) => `${label}: ${percent(values[hover])}`);
    tip.show([seconds(edges[hover]), ...words].join("\n"), event.clientX, event.clientY);
  });
  canvas.addEventListener("mouseleave", () => { hover = null; tip.hide(); draw(); });
  view.listeners.push(draw);
  return draw;
}
