// The page: data as text, tables and pictures. All strings are inserted as text, not as markup.

function fact(list, term, words) {
  if (words === null || words === undefined || words === "") return;
  const item = make("div");
  item.append(make("dt", term), make("dd", String(words)));
  list.append(item);
}

function header(data) {
  const id = (name) => document.getElementById(name);
  id("command").textContent = data.command || "(no command)";
  const began = data.began_s === null ? "" : `${new Date(data.began_s * 1000).toISOString().replace("T", " ").slice(0, 19)} UTC`;
  id("about").textContent = `Policy ${data.policy}: ${data.about}.`;
  const facts = id("facts");
  fact(facts, "Machine", `${data.machine_name} (${data.machine})`);
  fact(facts, "Began", began);
  fact(facts, "Watched", `${data.watched_s.toFixed(2)} s in ${data.steps} samples, every ${data.interval_ms} ms`);
  fact(facts, "Threads", data.threads.length + data.omitted);
  fact(facts, "Decisions", data.decided);
  fact(facts, "Seed", data.seed);
  fact(facts, "Speed is", data.metric === "run-wait" ? "CPU time over wanted CPU time" : "CPU time over elapsed time");
  fact(facts, "Ended", data.end === null ? null : data.end + (data.status === null ? "" : ` (status ${data.status})`));
  const warnings = [];
  if (data.end === null) warnings.push("The trace is incomplete: the run was killed, or still runs.");
  if (!data.steps) warnings.push("It contains no sample: the program ended before the first one, or the trace was cut off.");
  if (data.cut) warnings.push("Its last line is incomplete; all complete steps before it are shown.");
  if (data.omitted) warnings.push(`The ${data.omitted} threads with least CPU time are not drawn.`);
  if (data.jumps) warnings.push(`The clock jumped ${data.jumps} times; rates across the jumps are left out.`);
  id("warning").textContent = warnings.join(" ");
  id("warning").hidden = !warnings.length;
}

function figure(box, words, value, judge) {
  const item = make("div", undefined, `figure ${judge ?? ""}`);
  item.append(make("b", value), make("span", words));
  box.append(item);
}

const judge = (value) => (value === null ? "" : value >= 0.95 ? "good" : value < 0.8 ? "bad" : "");

function programs(data) {
  const box = document.getElementById("programs");
  for (const program of data.programs) {
    const card = make("div", undefined, "program"), figures = make("div", undefined, "figures");
    card.append(make("h3", `${program.name ?? "program " + program.id}${program.pid ? ` (pid ${program.pid})` : ""}`), figures);
    figure(figures, "expected end balance: slowest over mean progress", percent(program.expected), judge(program.expected));
    figure(figures, "balance: lowest/highest CPU time of its cores", percent(program.balance), judge(program.balance));
    figure(figures, "of its runnable time it waited for a CPU", percent(program.waited));
    figure(figures, "CPU time", `${(program.run_ns / 1e9).toFixed(2)} s`);
    figure(figures, "threads alive + ended", `${program.threads} + ${program.ended}`);
    figure(figures, `changes of core, ${program.node_migrations} to another node`, program.migrations);
    figure(figures, "moves by trimtab", program.moves);
    box.append(card);
  }
}

function timeline(data) {
  const id = (name) => document.getElementById(name), last = data.edges.length - 1;
  const colour = id("colour"), order = id("order"), rows = id("rows"), find = id("find"), legend = id("legend");
  const threads = data.threads.map((thread) => ({ ...thread, label: `${thread.tid} ${thread.name}` }));
  const cpuAt = (thread, column) => {
    let at = 0;
    for (let k = 0; k < data.wide; k++) {
      const value = VALUE.get(thread.cpus[column * data.wide + k]);
      if (value === undefined) return null;
      at = at * 64 + value;
    }
    return data.cpus[at] ?? null;
  };
  let shown = threads;
  const by = {
    id: (a, b) => a.id - b.id,
    speed: (a, b) => (a.speed ?? 2) - (b.speed ?? 2),
    migrations: (a, b) => b.migrations - a.migrations,
    run: (a, b) => b.run_s - a.run_s,
    name: (a, b) => a.name.localeCompare(b.name),
  };
  function select() {
    const word = find.value.trim().toLowerCase();
    const text = (thread) => `${thread.tid} ${thread.pid} ${thread.name}`.toLowerCase();
    shown = threads.filter((thread) => text(thread).includes(word)).sort((a, b) => by[order.value](a, b) || a.id - b.id);
    id("shown").textContent = `${shown.length} of ${threads.length + data.omitted} threads`;
  }
  const colours = {
    speed: (thread, column) => { const value = share(thread.speeds, column); return value === null ? null : speedColour(value); },
    run: (thread, column) => { const value = share(thread.runs, column); return value === null ? null : speedColour(value); },
    core: (thread, column) => { const cpu = cpuAt(thread, column); return cpu === null ? null : hueColour(cpu.core ?? cpu.cpu); },
    node: (thread, column) => { const cpu = cpuAt(thread, column); return cpu === null ? null : hueColour(cpu.node ?? 0); },
  };
  const draw = lanes(id("threads"), data.edges, {
    name: "Threads over time; arrow keys describe each cell",
    rows: () => shown,
    height: () => Number(rows.value),
    cell: (thread, column) => {
      const fill = colours[colour.value](thread, column);
      const tick = VALUE.get(thread.marks[column]) > 0, mark = VALUE.get(thread.decisions[column]) > 0;
      return fill === null && !mark ? null : { colour: fill, tick, mark };
    },
    describe: (thread, column) => {
      const cpu = cpuAt(thread, column), words = [`${thread.label} at ${seconds(data.edges[column])}`];
      if (cpu) words.push(`CPU ${cpu.cpu}, core ${cpu.core ?? "?"}${cpu.node === null ? "" : `, node ${cpu.node}`}`);
      const run = share(thread.runs, column), speed = share(thread.speeds, column);
      words.push(run === null ? "not read" : `speed ${speed === null ? "– (slept)" : percent(speed)}, on a CPU ${percent(run)}`);
      const marks = VALUE.get(thread.marks[column]), decisions = VALUE.get(thread.decisions[column]);
      if (marks) words.push(`${marks}${marks === 63 ? " or more" : ""} changes of core`);
      if (decisions) words.push(`${decisions} decisions`);
      return words.join("\n");
    },
  });
  function explain() {
    legend.replaceChildren();
    if (colour.value === "speed" || colour.value === "run") {
      const ramp = make("i", undefined, "ramp");
      ramp.style.background = `linear-gradient(90deg, ${[0, 0.25, 0.5, 0.75, 1].map(speedColour)})`;
      legend.append(make("span", "0 %"), ramp, make("span", "100 %"));
    } else {
      const kind = colour.value, numbers = [...new Set(data.cpus.map((cpu) => cpu[kind] ?? cpu.cpu))].sort((a, b) => a - b);
      for (const number of numbers.slice(0, 40)) {
        const item = make("span"), swatch = make("i");
        swatch.style.background = hueColour(number);
        item.append(swatch, `${kind} ${number}`);
        legend.append(item);
      }
      if (numbers.length > 40) legend.append(`and ${numbers.length - 40} more`);
    }
    const empty = make("span"), swatch = make("i");
    swatch.style.background = "var(--empty)";
    empty.append(swatch, "asleep, or not read");
    legend.append(empty);
  }
  const again = () => { select(); explain(); draw(); };
  for (const control of [colour, order, rows]) control.addEventListener("change", again);
  find.addEventListener("input", again);
  const whole = id("whole"), all = () => look(0, last);
  whole.addEventListener("click", all);
  addEventListener("keydown", (event) => {
    if (event.key === "Escape") all();
    const typing = event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT)$/.test(event.target.tagName);
    if (event.key.toLowerCase() === "t" && !typing) theme(dark ? "light" : "dark");
  });
  view.listeners.push(() => { whole.hidden = view.from === 0 && view.to === last; });
  if (threads.length > 60) rows.value = threads.length > 300 ? "2" : "6";
  select();
  explain();
}

function cores(data) {
  const lanesOf = data.cpus.map((cpu) => ({ ...cpu, label: `CPU ${cpu.cpu}${cpu.node === null ? "" : `  node ${cpu.node}`}` }));
  const legend = document.getElementById("core-legend");
  for (const [colour, words] of [[mixed(1, 0), "runs the watched threads"], [mixed(0, 1), "runs other programs"], ["var(--idle)", "idle"], ["var(--empty)", "not read"]]) {
    const item = make("span"), swatch = make("i");
    swatch.style.background = colour;
    item.append(swatch, words);
    legend.append(item);
  }
  const parts = (cpu, column) => {
    const ours = share(cpu.ours, column) ?? 0, busy = share(cpu.busy, column);
    return { ours, busy, others: busy === null ? 0 : Math.max(0, busy - ours) };
  };
  lanes(document.getElementById("cores"), data.edges, {
    name: "CPUs over time; arrow keys describe each cell",
    rows: () => lanesOf,
    height: () => (lanesOf.length > 40 ? 6 : 14),
    cell: (cpu, column) => {
      const { ours, busy, others } = parts(cpu, column);
      return busy === null && ours === 0 ? null : { colour: mixed(ours, others) };
    },
    describe: (cpu, column) => {
      const { ours, busy, others } = parts(cpu, column);
      const what = busy === null ? `watched threads ${percent(ours)}, total load not read` : `watched threads ${percent(ours)}, others ${percent(others)}`;
      return `CPU ${cpu.cpu}, core ${cpu.core ?? "?"} at ${seconds(data.edges[column])}\n${what}`;
    },
  });
}

/** Blue for ours, orange for others, grey for idle. */
function mixed(ours, others) {
  const idle = dark ? [62, 73, 89] : [205, 213, 224]; // as --idle
  const part = (k) => Math.round(idle[k] * (1 - Math.min(1, ours + others)) + [42, 111, 219][k] * ours + [222, 120, 46][k] * others);
  return `rgb(${[0, 1, 2].map((k) => Math.min(255, part(k)))})`;
}

function charts(data) {
  const box = document.getElementById("charts");
  for (const program of data.programs) {
    lines(box, program.name ?? `program ${program.id}`, data.edges, [
      { label: "mean speed", values: program.speeds, colour: "--accent" },
      { label: "slowest thread", values: program.slowests, colour: "--warm" },
      { label: "expected end balance", values: program.expecteds, colour: "--good" },
      { label: "balance of cores so far", values: program.balances, colour: "--dim" },
    ]);
  }
  if (!data.programs.length) box.append(make("p", "The trace has no program in it.", "dim"));
}

function findings(data) {
  const box = document.getElementById("findings"), list = make("ol");
  for (const { at_ms, words } of data.findings) {
    for (const word of words) {
      const item = make("li");
      item.append(make("time", seconds(at_ms)), make("span", word));
      list.append(item);
    }
  }
  box.append(data.findings.length ? list : make("p", "None: the policy only sampled, or found nothing.", "dim"));
}

/** Names each cell of a row by its column, for narrow screens, where the head of the table is hidden. */
function named(line, names) {
  [...line.cells].forEach((cell, at) => { cell.dataset.column = names[at]; });
  return line;
}

function moves(data) {
  const names = [...document.querySelectorAll("#moves th")].map((head) => head.textContent);
  const body = document.querySelector("#moves tbody"), seek = document.getElementById("seek"), more = document.getElementById("more");
  const text = (row) => `${row.tid ?? ""} ${row.name} ${row.act} ${row.why} ${row.end}`.toLowerCase();
  const rows = data.moves.map((row) => ({ ...row, text: text(row) }));
  let most = 200;
  function fill() {
    const word = seek.value.trim().toLowerCase(), hits = rows.filter((row) => row.text.includes(word));
    body.replaceChildren();
    for (const row of hits.slice(0, most)) {
      const line = make("tr");
      line.append(make("td", seconds(row.at_ms), "n"), make("td", row.tid ?? "?", "n"), make("td", row.name), make("td", row.from ?? "–", "n"),
        make("td", row.act), make("td", row.why), make("td", percent(row.gain), "n"), make("td", row.end));
      body.append(named(line, names));
    }
    const earlier = data.decided - rows.length;
    document.getElementById("found").textContent = `${hits.length} of ${data.decided} decisions${earlier > 0 ? `; the first ${earlier} are not on this page` : ""}`;
    more.hidden = hits.length <= most;
  }
  seek.addEventListener("input", () => { most = 200; fill(); });
  more.addEventListener("click", () => { most += 1000; fill(); });
  fill();
}

function table(data) {
  const columns = [["tid", "Thread", 1], ["pid", "Process", 1], ["name", "Name"], ["run_s", "CPU time (s)", 1, (v) => v.toFixed(2)],
    ["speed", "Speed", 1, percent], ["waited", "Waited", 1, percent], ["migrations", "Migrations", 1], ["moves", "Moves", 1],
    ["born_ms", "Started", 1, seconds], ["ended_ms", "Ended", 1, (v) => (v === null ? "–" : seconds(v))], ["left", "Not moved because", 0, (v) => v ?? ""]];
  const head = make("tr"), body = document.querySelector("#table tbody");
  let by = null, up = true;
  function fill() {
    const rows = [...data.threads];
    const key = (row) => row[by] ?? -1;
    if (by) rows.sort((a, b) => (typeof key(a) === "string" && typeof key(b) === "string" ? key(a).localeCompare(key(b)) : key(a) - key(b)) * (up ? 1 : -1));
    body.replaceChildren();
    for (const row of rows) {
      const line = make("tr");
      for (const [field, , right, words] of columns) line.append(make("td", words ? words(row[field]) : row[field], right ? "n" : ""));
      body.append(named(line, columns.map((column) => column[1])));
    }
  }
  for (const [field, words, right] of columns) {
    const cell = make("th", undefined, right ? "n" : ""), button = make("button", words);
    button.type = "button";
    button.addEventListener("click", () => { up = by === field ? !up : true; by = field; fill(); });
    cell.append(button);
    head.append(cell);
  }
  document.querySelector("#table thead").append(head);
  fill();
}

/** What the system wants, unless somebody chose; the style sheet says the same where no script runs. */
const wished = matchMedia("(prefers-color-scheme: dark)");
let dark = false;
function theme(chosen) {
  const root = document.documentElement;
  if (chosen === "dark" || chosen === "light") root.dataset.theme = chosen;
  dark = root.dataset.theme ? root.dataset.theme === "dark" : wished.matches;
  root.dataset.shade = dark ? "dark" : "light";
  view.listeners.forEach((redraw) => redraw());
}

function start() {
  const root = document.documentElement;
  theme(new URLSearchParams(location.search).get("theme"));
  const data = JSON.parse(document.getElementById("data").textContent);
  view.to = data.edges.length - 1;
  header(data);
  programs(data);
  timeline(data);
  cores(data);
  charts(data);
  findings(data);
  moves(data);
  table(data);
  document.getElementById("theme").addEventListener("click", () => theme(dark ? "light" : "dark"));
  wished.addEventListener("change", () => theme());
  addEventListener("resize", () => view.listeners.forEach((redraw) => redraw()));
  view.listeners.forEach((redraw) => redraw());
  // For tests of narrow screens: pixels that the page is too wide.
  root.dataset.over = Math.max(0, root.scrollWidth - root.clientWidth);
  root.dataset.requests = performance.getEntriesByType("resource").length;
  root.dataset.drawn = `threads ${data.threads.length} columns ${data.edges.length - 1} cpus ${data.cpus.length} moves ${data.moves.length}`;
}

// Errors are shown on the page, for readers and tests.
addEventListener("error", (event) => { document.documentElement.dataset.error = event.message; });
start();
