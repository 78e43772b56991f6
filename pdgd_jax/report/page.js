"use strict";
// One file, since it is written into the page: a report opens offline, and loads nothing.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  // Okabe and Ito's colours, and dashes for black and white.
  const COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "ink"];
  const DASHES = ["solid", "dash", "dashdot", "dot"];
  const SYMBOLS = ["circle", "square", "triangle-up", "diamond"];
  const BAR = 26;  // pixels of Plotly's tool bar
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const CONFIG = {
    responsive: true,
    displaylogo: false,
    // Nothing leaves this file: no button uploads a figure, and there is no address to upload to.
    showSendToCloud: false,
    plotlyServerURL: "",
    modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d", "sendDataToCloud", "sendChartToCloud"],
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
  // Plotly treats names as a kind of HTML: escape them, so that they are shown literally.
  const plain = (text) =>
    String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

  // The colour shows the learner, and dashes distinguish the lines of one learner. If there are too
  // few dashes, both follow the order of the lines: up to 28 lines are distinguishable.
  function looks(owners) {
    const counts = new Map();
    owners.forEach((who) => counts.set(who, (counts.get(who) || 0) + 1));
    if (counts.has(null) || Math.max(0, ...counts.values()) > DASHES.length) {
      return owners.map((_, i) => {
        const place = i % COLOURS.length;
        return { colour: place, dash: (place + Math.floor(i / COLOURS.length)) % DASHES.length };
      });
    }
    const seen = new Map();
    return owners.map((who) => {
      seen.set(who, (seen.get(who) ?? -1) + 1);
      return { colour: who, dash: (who + seen.get(who)) % DASHES.length };
    });
  }

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
    look.height = 310 + BAR + 19 * rows;
    look.margin.t = 12 + BAR + 19 * rows;  // the tool bar, and below it the legend
    look.showlegend = rows > 0;
    Plotly.react(place, traces, look, CONFIG).then(() => {
      // Measure what was estimated: a higher legend gets more space.
      const legend = place.querySelector(".legend .bg");
      const more = legend ? Math.ceil(legend.getBBox().height) + BAR + 12 - look.margin.t : 0;
      if (more <= 0) return;
      Plotly.relayout(place, { "margin.t": look.margin.t + more, height: look.height + more });
    });
  }

  // Below a figure, the learners without a line there: some have no multipliers.
  function noteMissing(place, name, cells, label) {
    const missing = cells.filter((cell) => !cell.bands[name]).map((cell) => label(cell) || "all runs");
    const words = missing.length ? `Zero or unknown throughout, so not drawn: ${missing.join("; ")}.` : "";
    note(place, "missing", words);
  }

  function note(place, kind, words) {
    place.parentElement.querySelector(`p.${kind}`)?.remove();
    if (words) place.parentElement.append(element("p", { class: kind }, words));
  }

  // A logarithmic axis for values of both signs: linear within c, logarithmic beyond, on both sides.
  // Lines bend; hovering shows the true numbers.
  function bend(drawn, look) {
    const values = drawn.flatMap((trace) => trace.y).filter((value) => value !== null);
    const largest = values.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
    if (largest === 0 || values.every((value) => value > 0)) return false;
    const top = Math.floor(Math.log10(largest));
    const c = 10 ** (top - 2);
    const to = (v) => (v === null ? null : Math.abs(v) <= c ? v / c : Math.sign(v) * (1 + Math.log10(Math.abs(v) / c)));
    for (const trace of drawn) {
      trace.customdata = trace.y;
      if (trace.hoverinfo !== "skip") trace.hovertemplate = "%{x}, %{customdata:.5g}";
      trace.y = trace.y.map(to);
    }
    const powers = [0, 1, 2, 3].map((k) => c * 10 ** k).filter((v) => v <= 10 * largest);
    const ticks = [...powers.map((v) => -v).reverse(), 0, ...powers];
    Object.assign(look.yaxis, {
      type: "linear", tickmode: "array", tickvals: ticks.map(to),
      ticktext: ticks.map((v) => String(Number(v.toPrecision(3)))),
    });
    look.shapes = [{
      type: "rect", xref: "paper", x0: 0, x1: 1, y0: -1, y1: 1, layer: "below",
      fillcolor: css("--soft"), opacity: 0.12, line: { width: 0 },
    }];
    return true;
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
      modebar: { bgcolor: "rgba(0,0,0,0)", color: css("--soft"), activecolor: css("--ink") },
      legend: {
        orientation: "h", x: 0, y: 1.01, yanchor: "bottom", bgcolor: "rgba(0,0,0,0)",
        maxheight: 5000,  // pixels; otherwise it scrolls inside half of the figure
      },
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

  function traces(name, cells, label, owner = (cell) => cell.colour) {
    const lines = cells.flatMap((cell, i) =>
      (cell.bands[name] || [null]).map((band, c, all) => ({ cell, i, band, c, several: all.length > 1 })),
    );
    const styles = looks(lines.map((line) => owner(line.cell, line.i)));
    return lines.flatMap(({ cell, i, band, c, several }, k) => {
      if (!band) return [];
      const words = [label(cell, i), several ? `λ ${c + 1}` : ""].filter((word) => word);
      const { colour, dash } = styles[k];
      return curve(cell.episode, band, words.join(", "), colour, DASHES[dash], `${i}/${c}`);
    });
  }

  function figure(parent, name, title) {
    const existing = parent.querySelector(`[data-name="${name}"] > div`);
    if (existing) return existing;
    const place = element("div");
    const caption = element("figcaption", {}, title);
    parent.append(element("figure", { "data-name": name }, caption, place));
    return place;
  }

  // The choices: an instance and a horizon, if there are several.

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

  function fixed() {
    return FACETS.filter((dim) => chosen[dim] !== "");
  }

  function labelled(cell) {
    const words = Object.entries(cell.names).filter(([dim]) => !fixed().includes(dim));
    return words.map(([, word]) => word).join(", ");
  }

  function drawFigures() {
    const parent = document.getElementById("plots");
    const cells = visible();
    const open = document.getElementById("inner").open;
    for (const [name, quantity] of Object.entries(data.quantities)) {
      // A folded part has no width yet; it is drawn when it is opened.
      if (quantity.inner && !open) continue;
      const place = figure(
        quantity.inner ? document.getElementById("inner-plots") : parent, name, quantity.label,
      );
      drawQuantity(place, name, quantity, cells);
    }
    drawTradeoff(parent, cells);
    drawHorizons(parent);
  }

  function drawQuantity(place, name, quantity, cells) {
    const found = traces(name, cells, labelled);
    if (name === "reward") found.push(...optima(cells));
    const look = layout(quantity.axis, log);
    look.yaxis.type = log || quantity.logarithmic ? "log" : "linear";
    look.yaxis.exponentformat = look.yaxis.type === "log" ? "power" : "SI";
    const bent = log && bend(found, look);
    draw(place, found, look);
    noteMissing(place, name, cells, labelled);
    note(place, "bent", bent ? "Not all values are positive: the axis is linear in the grey." : "");
    const moving = name === "reward" && cells.some((cell) => cell.moving);
    note(place, "moving", moving
      ? "Against an adversary OPT is the optimum of the episodes so far: it may go up and down." : "");
  }

  // The optimum of each instance once, named by what its cells have in common.
  function optima(cells) {
    const groups = new Map();
    for (const cell of cells) {
      const key = JSON.stringify([cell.opt, cell.episode]);
      groups.set(key, [...(groups.get(key) || []), cell]);
    }
    return [...groups.values()].map((sharing, i) => {
      const [first] = sharing;
      const common = Object.entries(first.names)
        .filter(([dim, word]) => !fixed().includes(dim) && sharing.every((cell) => cell.names[dim] === word))
        .map(([, word]) => word);
      const what = first.moving ? "OPT of the episodes so far" : "OPT";
      return {
        x: first.episode,
        y: first.opt,
        name: plain([...(groups.size > 1 ? common : []), what].join(", ")),
        mode: "lines",
        line: { color: css("--soft"), width: 1.5, dash: DASHES[i % DASHES.length] },
      };
    });
  }

  // Final regret against final violation: the lower left is good.
  function drawTradeoff(parent, cells) {
    const styles = looks(cells.map((cell) => cell.colour));
    const bar = ([median, low, high]) => ({
      type: "data", symmetric: false, thickness: 1, array: [high - median], arrayminus: [median - low],
    });
    const drawn = cells.map((cell, i) => {
      const { violation, regret } = cell.tradeoff;
      return {
        x: [violation[0]], y: [regret[0]], error_x: bar(violation), error_y: bar(regret),
        mode: "markers",
        name: plain(labelled(cell) || "all runs"),
        showlegend: labelled(cell) !== "",
        marker: { color: colour(styles[i].colour), symbol: SYMBOLS[styles[i].dash], size: 9 },
      };
    });
    const look = layout(data.axes.regret, false, data.axes.violation);
    draw(figure(parent, "tradeoff", "Regret against violation, at the end"), drawn, look);
  }

  function drawHorizons(parent) {
    if (!data.horizons.length) return;
    const wanted = data.choices.instance ? data.choices.instance[Number(chosen.instance)] : null;
    const all = !FACETS.includes("instance") || chosen.instance === "";
    const shown = data.horizons.filter((line) => all || line.instance === wanted);
    const styles = looks(shown.map((line) => line.colour));
    const drawn = shown.map((line, i) => {
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
        marker: { symbol: SYMBOLS[styles[i].dash], size: 8 },
        line: { color: colour(styles[i].colour), dash: DASHES[styles[i].dash], width: 1.5 },
      };
    });
    const look = layout("after the last episode", true, "horizon T (episodes)");
    const known = shown.flatMap((line) => line.median).filter((value) => value !== null);
    if (known.length) {  // bars may reach below zero, so the limits depend on the medians
      look.yaxis.range = [Math.min(...known) / 2, 2 * Math.max(...known)].map(Math.log10);
    }
    const place = figure(parent, "horizons", "Against the horizon, in logarithms");
    draw(place, drawn, look);
    const hidden = shown.some((line) => line.median.includes(null));
    note(place, "hidden", hidden ? "Medians that are not positive have no logarithm: not drawn." : "");
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
    document.getElementById("inner").addEventListener("toggle", drawFigures);
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

  function signed(value) {
    if (value === null) return "–";
    const digits = value !== 0 && Math.abs(value) < 1e-3 ? String(value) : value.toLocaleString("en");  // otherwise 1e-9 is shown as 0
    return `${value > 0 ? "+" : ""}${digits}`;
  }

  // Both cells played with the same random streams, so luck cancels in the difference.
  function paired(a, b) {
    const gaps = b.map((value, i) => (value === null || (a[i] ?? null) === null ? null : value - a[i]));
    const known = gaps.filter((gap) => gap !== null).sort((one, two) => one - two);
    if (known.length < 2) return element("td", { class: "number" }, "–");
    const quantile = (share) => {
      const [place, below] = [share * (known.length - 1), Math.floor(share * (known.length - 1))];
      const gap = known[below] + (known[Math.min(below + 1, known.length - 1)] - known[below]) * (place - below);
      return signed(Number(gap.toPrecision(4)));
    };
    const larger = known.filter((gap) => gap > 0).length;
    const smaller = known.filter((gap) => gap < 0).length;
    const words = larger + smaller ? `B larger in ${larger}, smaller in ${smaller} of ${known.length}` : "";
    const band = quantile(0.1) === quantile(0.9) ? "" : `${quantile(0.1)} to ${quantile(0.9)}`;
    return element("td", { class: "number" }, quantile(0.5), element("small", {}, band), element("small", {}, words));
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
      row.append(element("td", { class: "number" }, signed(gap)));
      if (data.paired) row.append(paired(a.seeds, b.seeds));
      body.append(row);
    }
    const columns = ["", "A", "B", "B − A", ...(data.paired ? ["seed by seed"] : [])];
    const heads = columns.map((text, i) =>
      element("th", i ? { class: "number", scope: "col" } : { scope: "col" }, text),
    );
    const table = element("table", {}, element("thead", {}, element("tr", {}, ...heads)), body);
    document.getElementById("difference").replaceChildren(element("div", { class: "scroll" }, table));
    const parent = document.getElementById("overlays");
    for (const name of ["regret", "violation", "multipliers", "reward"]) {
      const quantity = data.quantities[name];
      if (!quantity) continue;
      // Two lines in two colours, or else in two dashes.
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

  // Tables that sort; rows without a number stay at the end.

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

  // Names that stay in place when a table scrolls, as many as leave space for numbers.
  function pin() {
    for (const table of document.querySelectorAll(".scroll > table")) {
      let left = 0;
      const room = 0.55 * table.parentElement.clientWidth;
      [...table.tHead.rows[0].cells].forEach((heading, column) => {
        if (!heading.classList.contains("pinned")) return;
        const width = heading.getBoundingClientRect().width;
        const fits = column === 0 || left + width <= room;
        for (const row of table.rows) row.cells[column].style.left = fits ? `${left}px` : "auto";
        left += width;
      });
    }
  }

  document.querySelectorAll("details").forEach((folded) => folded.addEventListener("toggle", pin));
  window.addEventListener("resize", pin);
  pin();
  setUpFigures();
  drawFigures();
  setUpPair();
  dark.addEventListener("change", () => {
    drawFigures();
    if (data.cells.length > 1) drawPair();
  });
  document.documentElement.dataset.ready = "yes";
})();
