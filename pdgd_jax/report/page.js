"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  // Okabe and Ito's colours, and dashes for who sees them in grey.
  const COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "ink"];
  const DASHES = ["solid", "dash", "dashdot", "dot"];
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const CONFIG = {
    responsive: true,
    displaylogo: false,
    modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"],
  };

  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const colour = (i) => {
    const chosen = COLOURS[i % COLOURS.length];
    return chosen === "ink" ? css("--ink") : chosen;
  };
  const faint = (i) => {
    const six = colour(i).slice(1);
    const parts = [0, 2, 4].map((k) => parseInt(six.slice(k, k + 2), 16));
    return `rgba(${parts.join(",")},0.18)`;
  };
  // Plotly takes names for a kind of HTML: what a person wrote is shown letter by letter.
  const plain = (text) =>
    String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

  function element(tag, attributes = {}, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...children);
    return made;
  }

  // Rows of a legend above the figure, by the width of its longest name.
  function legendRows(place, traces) {
    const shown = traces.filter((trace) => trace.showlegend !== false);
    const widest = Math.max(0, ...shown.map((trace) => trace.name.length * 6.2 + 55));
    const width = (place.clientWidth || 400) - 70;
    return Math.ceil(shown.length / Math.max(1, Math.floor(width / widest)));
  }

  function draw(place, traces, look) {
    const rows = legendRows(place, traces);
    look.height = 310 + 19 * rows;
    look.margin.t = 12 + 19 * rows;
    look.showlegend = rows > 0;
    Plotly.react(place, traces, look, CONFIG);
  }

  // Below a figure, whose lines are missing there: a learner may have no multipliers at all.
  function noteMissing(place, name, cells, label) {
    const missing = cells.filter((cell) => !cell.bands[name]).map((cell) => label(cell) || "all runs");
    const words = missing.length ? `Zero or unknown throughout, so not drawn: ${missing.join("; ")}.` : "";
    place.parentElement.querySelector("p")?.remove();
    if (words) place.after(element("p", {}, words));
  }

  function layout(axis, log, horizontal = "episodes") {
    const grid = { gridcolor: css("--line"), zerolinecolor: css("--soft"), automargin: true };
    return {
      margin: { l: 56, r: 12, b: 44 },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { color: css("--ink"), size: 12 },
      hovermode: "closest",
      hoverlabel: { namelength: -1 },
      legend: { orientation: "h", x: 0, y: 1.01, yanchor: "bottom", bgcolor: "rgba(0,0,0,0)" },
      xaxis: { ...grid, title: { text: horizontal }, type: log ? "log" : "linear" },
      yaxis: { ...grid, title: { text: axis }, type: log ? "log" : "linear" },
    };
  }

  // A band and its median, which a legend shows and hides together.
  function curve(episode, band, name, i, dash, group) {
    const [median, low, high] = band;
    const kept = episode.map((_, k) => k).filter((k) => low[k] !== null && high[k] !== null);
    const back = [...kept].reverse();
    const traces = [];
    if (data.seeds > 1) {
      traces.push({
        x: [...kept, ...back].map((k) => episode[k]),
        y: [...kept.map((k) => low[k]), ...back.map((k) => high[k])],
        fill: "toself",
        fillcolor: faint(i),
        line: { width: 0 },
        mode: "lines",
        hoverinfo: "skip",
        showlegend: false,
        legendgroup: group,
      });
    }
    traces.push({
      x: episode,
      y: median,
      name: plain(name || "all runs"),
      mode: "lines",
      line: { color: colour(i), width: 2, dash },
      legendgroup: group,
      showlegend: name !== "",
    });
    return traces;
  }

  function traces(name, cells, label) {
    const found = [];
    cells.forEach((cell, i) => {
      const bands = cell.bands[name];
      if (!bands) return;
      const several = bands.length > 1;
      bands.forEach((band, c) => {
        const words = [label(cell, i), several ? `λ ${c + 1}` : ""].filter((word) => word);
        const dash = DASHES[(several ? c : i + Math.floor(i / 7)) % DASHES.length];
        const group = `${i}/${c}`;
        found.push(...curve(cell.episode, band, words.join(", "), i, dash, group));
      });
    });
    return found;
  }

  function figure(parent, name, title) {
    const existing = parent.querySelector(`[data-name="${name}"] > div`);
    if (existing) return existing;
    const place = element("div");
    const caption = element("figcaption", {}, title);
    parent.append(element("figure", { "data-name": name }, caption, place));
    return place;
  }

  // What is chosen: an instance and a horizon, where there are several.

  const FACETS = ["instance", "horizon"].filter((dim) => (data.choices[dim] || []).length > 1);
  const chosen = {};
  let log = false;

  function select(title, options, value, onChange) {
    const list = element("select", { "aria-label": title });
    options.forEach(([key, text]) => {
      const option = element("option", { value: key }, text);
      option.selected = key === value;
      list.append(option);
    });
    list.addEventListener("change", () => onChange(list.value));
    return element("label", {}, element("span", {}, title), list);
  }

  function visible() {
    return data.cells.filter((cell) =>
      FACETS.every((dim) => chosen[dim] === "" || String(cell.place[dim]) === chosen[dim]),
    );
  }

  function labelled(cell) {
    const fixed = FACETS.filter((dim) => chosen[dim] !== "");
    const words = Object.entries(cell.names).filter(([dim]) => !fixed.includes(dim));
    return words.map(([, word]) => word).join(", ");
  }

  function drawFigures() {
    const parent = document.getElementById("plots");
    const cells = visible();
    for (const [name, quantity] of Object.entries(data.quantities)) {
      const found = traces(name, cells, labelled);
      if (name === "reward") found.push(...optima(cells));
      const place = figure(parent, name, quantity.label);
      const logarithmic = log || quantity.logarithmic;
      const look = layout(quantity.axis, log);
      look.yaxis.type = logarithmic ? "log" : "linear";
      if (quantity.logarithmic) look.yaxis.exponentformat = "power";
      draw(place, found, look);
      noteMissing(place, name, cells, labelled);
    }
    drawHorizons(parent);
  }

  function optima(cells) {
    const seen = new Set();
    return cells
      .filter((cell) => {
        const key = JSON.stringify(cell.opt);
        return !seen.has(key) && seen.add(key);
      })
      .map((cell, i) => ({
        x: cell.episode,
        y: cell.opt,
        name: "OPT",
        mode: "lines",
        line: { color: css("--soft"), width: 1.5 },
        legendgroup: "OPT",
        showlegend: i === 0,
      }));
  }

  function drawHorizons(parent) {
    if (!data.horizons.length) return;
    const wanted = data.choices.instance ? data.choices.instance[Number(chosen.instance)] : null;
    const all = !FACETS.includes("instance") || chosen.instance === "";
    const shown = data.horizons.filter((line) => all || line.instance === wanted);
    const groups = [...new Set(shown.map((line) => line.group))];
    const drawn = shown.map((line) => {
      const i = groups.indexOf(line.group);
      const slope = line.slope === null ? "no slope" : `slope ${line.slope.toFixed(2)}`;
      return {
        x: line.horizon,
        y: line.median,
        error_y: {
          type: "data", symmetric: false, thickness: 1,
          array: line.median.map((m, k) => (m === null ? 0 : line.high[k] - m)),
          arrayminus: line.median.map((m, k) => (m === null ? 0 : m - line.low[k])),
        },
        mode: "lines+markers",
        name: plain([...(all ? line.everywhere : line.words), line.quantity, slope].join(", ")),
        marker: { symbol: line.quantity === "regret" ? "circle" : "square", size: 8 },
        line: { color: colour(i), dash: line.quantity === "regret" ? "solid" : "dash", width: 1.5 },
      };
    });
    const look = layout("after the last episode", true, "horizon T (episodes)");
    const known = shown.flatMap((line) => line.median).filter((value) => value !== null);
    if (known.length) {  // bars may reach below zero: medians decide what is in the picture
      const logs = [Math.min(...known) / 2, 2 * Math.max(...known)].map(Math.log10);
      look.yaxis.range = logs;
    }
    const place = figure(parent, "horizons", "Against the horizon, in logarithms");
    draw(place, drawn, look);
  }

  function setUpFigures() {
    const form = document.getElementById("choices");
    for (const dim of FACETS) {
      const options = data.choices[dim].map((text, i) => [String(i), text]);
      chosen[dim] = dim === "horizon" ? options[options.length - 1][0] : options[0][0];
      const choose = (value) => { chosen[dim] = value; drawFigures(); };
      form.append(select(dim, [...options, ["", "all"]], chosen[dim], choose));
    }
    const box = element("input", { type: "checkbox", id: "logarithmic" });
    box.addEventListener("change", () => { log = box.checked; drawFigures(); });
    form.append(element("label", {}, box, "logarithmic axes"));
    form.addEventListener("submit", (event) => event.preventDefault());
  }

  // Two cells, side by side.

  const pair = firstPair();

  // The longest runs of the first instance, by two learners or two settings.
  function firstPair() {
    const last = (data.choices.horizon || [""]).length - 1;
    const alike = data.cells
      .map((cell, i) => i)
      .filter((i) => !data.cells[i].place.instance && (data.cells[i].place.horizon ?? last) === last);
    return alike.length > 1 ? alike.slice(0, 2) : [0, Math.min(1, data.cells.length - 1)];
  }

  function drawPair() {
    const two = pair.map((i) => data.cells[i]);
    const letters = ["A", "B"];
    const body = element("tbody");
    for (const [i, measure] of data.measures.entries()) {
      const [a, b] = two.map((cell) => cell.ends[i]);
      const known = a.value !== null && b.value !== null;
      const gap = known ? Number((b.value - a.value).toPrecision(4)) : null;
      const row = element("tr", { "data-measure": measure }, element("td", {}, measure));
      for (const end of [a, b]) {
        row.append(element("td", { class: "number" }, end.text, element("small", {}, end.band)));
      }
      const digits = Math.abs(gap) < 1e-3 ? String(gap) : gap?.toLocaleString("en");  // or 1e-9 is 0
      const words = gap === null ? "–" : `${gap > 0 ? "+" : ""}${digits}`;
      row.append(element("td", { class: "number" }, words));
      body.append(row);
    }
    const heads = ["", "A", "B", "B − A"].map((text, i) =>
      element("th", i ? { class: "number", scope: "col" } : { scope: "col" }, text),
    );
    const table = element("table", {}, element("thead", {}, element("tr", {}, ...heads)), body);
    document.getElementById("difference").replaceChildren(element("div", { class: "scroll" }, table));
    const parent = document.getElementById("overlays");
    for (const name of ["regret", "violation", "multipliers", "reward"]) {
      const quantity = data.quantities[name];
      if (!quantity) continue;
      const found = traces(name, two, (cell, i) => `${letters[i]}: ${cell.label || "all runs"}`);
      const place = figure(parent, `pair-${name}`, quantity.label);
      draw(place, found, layout(quantity.axis, false));
      noteMissing(place, name, two, (cell) => letters[two.indexOf(cell)]);
    }
  }

  function setUpPair() {
    const form = document.getElementById("pair");
    if (data.cells.length < 2) {
      form.replaceWith(element("p", {}, "There is nothing to compare: one learner, one setting."));
      return;
    }
    const options = data.cells.map((cell, i) => [String(i), cell.label]);
    ["A", "B"].forEach((letter, k) => {
      const choose = (value) => { pair[k] = Number(value); drawPair(); };
      form.append(select(letter, options, String(pair[k]), choose));
    });
    form.addEventListener("submit", (event) => event.preventDefault());
    drawPair();
  }

  // Tables that sort; what has no number stays at the end.

  function sort(table, column, heading) {
    const down = heading.getAttribute("aria-sort") === "ascending";
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", down ? "descending" : "ascending");
    const key = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent;
    const rows = [...table.tBodies[0].rows].sort((one, two) => {
      const [a, b] = [key(one), key(two)];
      if (a === "" || b === "") return (a === "") - (b === "");
      const numbers = Number(a) - Number(b);
      const order = Number.isNaN(numbers) ? a.localeCompare(b, "en") : numbers;
      return down ? -order : order;
    });
    table.tBodies[0].append(...rows);
  }

  document.querySelectorAll("table.sortable").forEach((table) => {
    [...table.tHead.rows[0].cells].forEach((heading, column) => {
      const button = element("button", { type: "button" }, ...heading.childNodes);
      heading.replaceChildren(button);
      button.addEventListener("click", () => sort(table, column, heading));
    });
  });

  setUpFigures();
  drawFigures();
  setUpPair();
  dark.addEventListener("change", () => {
    drawFigures();
    if (data.cells.length > 1) drawPair();
  });
  document.documentElement.dataset.ready = "yes";
})();
