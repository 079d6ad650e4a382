/* Draws the figures of a simspec page and follows its selectors.
 *
 * Every number was computed in Python. A figure is a base plus layers of patches; a layer's patch
 * is looked up by the selected options and merged in (see simspec/reports/spec.py). The selection
 * is shared: a selector that stands in two figures changes both.
 */
(() => {
  "use strict";
  const page = JSON.parse(document.getElementById("dashboard-data").textContent);
  const state = {};
  for (const selector of page.selectors) state[selector.id] = selector.default;

  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  let printing = false;
  const palette = () => page.palettes[dark.matches && !printing ? "dark" : "light"];
  const NARROW = 560;
  const config = { displayModeBar: false, responsive: false, showTips: false, doubleClick: false };

  const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);

  function merge(base, patch) {
    if (!isObject(patch)) return patch;
    const merged = Array.isArray(base) ? base.slice() : isObject(base) ? { ...base } : {};
    for (const key of Object.keys(patch)) merged[key] = merge(merged[key], patch[key]);
    return merged;
  }

  function paint(value, colours) {
    if (typeof value === "string") {
      return value[0] === "@" && value.slice(1) in colours ? colours[value.slice(1)] : value;
    }
    if (Array.isArray(value)) return value.map((item) => paint(item, colours));
    if (!isObject(value)) return value;
    return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, paint(v, colours)]));
  }

  /* A list of values belongs to the layer's paths; see Layer in simspec/reports/spec.py. */
  function expand(paths, view) {
    if (!Array.isArray(view)) return view;
    const patch = {};
    paths.forEach((path, i) => {
      const names = path.split(".");
      const last = names.pop();
      let place = patch;
      for (const name of names) place = place[name] ??= {};
      place[last] = view[i];
    });
    return patch;
  }

  function resolve(spec) {
    let figure = { ...spec.base, caption: "" };
    for (const layer of spec.layers) {
      const view = layer.views[layer.uses.map((id) => state[id]).join(",")];
      if (view === undefined) return null;
      figure = merge(figure, expand(layer.paths, view));
    }
    return figure;
  }

  function channels(colour) {
    return [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16));
  }

  /* Relative luminance of WCAG 2. */
  function luminance(rgb) {
    const [r, g, b] = rgb.map((c) => {
      const share = c / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  }

  function fill(trace, value) {
    let share = (value - trace.zmin) / (trace.zmax - trace.zmin);
    share = Math.min(1, Math.max(0, trace.reversescale ? 1 - share : share));
    const scale = trace.colorscale;
    const right = Math.max(1, scale.findIndex(([at]) => at >= share));
    const [[x0, c0], [x1, c1]] = [scale[right - 1], scale[right]];
    const [low, high] = [channels(c0), channels(c1)];
    return low.map((c, i) => c + ((share - x0) / (x1 - x0)) * (high[i] - c));
  }

  /* The same formats as simspec.reports.labels.number_text. */
  function numberText(value, kind) {
    if (kind === "share") return `${(100 * value).toFixed(1)}%`;
    if (kind === "ratio" || kind === "decimal") return value.toFixed(2);
    if (kind === "integer") return Math.round(value).toLocaleString("en-US");
    const decimals = value === 0 ? 2 : 2 - Math.floor(Math.log10(Math.abs(Number(value.toPrecision(3)))));
    const digits = Math.min(8, Math.max(0, decimals));
    return Number(value.toPrecision(3)).toLocaleString("en-US", {
      minimumFractionDigits: digits,
      maximumFractionDigits: digits,
    });
  }

  /* Hover text of each cell: the names of its row and column, then its own words. */
  function cellNames(trace) {
    return trace.z.map((row, j) =>
      row.map((_, i) => [trace.meta.y[j], trace.meta.x[i], trace.text?.[j][i]].filter(Boolean).join("<br>")),
    );
  }

  /* Cell values as a text trace, black or white by contrast with the cell. */
  function cellTexts(trace, size) {
    const texts = { x: [], y: [], text: [], colours: [] };
    trace.z.forEach((row, j) =>
      row.forEach((value, i) => {
        if (value === null) return;
        const light = luminance(fill(trace, value));
        texts.x.push(trace.x[i]);
        texts.y.push(trace.y[j]);
        texts.text.push(numberText(value, trace.meta.number));
        texts.colours.push((light + 0.05) / 0.06 > 1.05 / (light + 0.05) ? "#10141c" : "#ffffff");
      }),
    );
    return {
      type: "scatter",
      mode: "text",
      x: texts.x,
      y: texts.y,
      text: texts.text,
      textfont: { color: texts.colours, size },
      hoverinfo: "skip",
      showlegend: false,
    };
  }

  function fit(figure, width) {
    const layout = { ...figure.layout, width };
    if (printing) layout.height = Math.min(layout.height, 310);
    let data = figure.data.slice();
    for (const trace of figure.data) {
      if (trace.type !== "heatmap") continue;
      trace.text = cellNames(trace);
      const cell = (width - 150) / trace.x.length;
      if (cell > 26) data.push(cellTexts(trace, cell > 60 ? 14 : 12));
    }
    if (width < NARROW && !printing) {
      layout.margin = { ...layout.margin, l: 44, r: 8 };
      layout.font = { ...layout.font, size: 12 };
      data = data.map((trace) => (trace.type === "heatmap" ? { ...trace, showscale: false } : trace));
    }
    return { data, layout };
  }

  /* Paper has its own width, which the window does not know. */
  function drawnWidth(node) {
    if (printing) return node.closest(".panels").childElementCount > 1 ? 290 : 630;
    return node.clientWidth || 640;
  }

  function draw(node) {
    const spec = page.figures[node.dataset.figure];
    const caption = document.querySelector(`[data-caption="${node.dataset.figure}"]`);
    const figure = resolve(spec);
    if (figure === null) {
      if (node.data) Plotly.purge(node);
      const words = document.createElement("p");
      words.className = "empty";
      words.textContent = "This combination is not part of the sweep.";
      node.replaceChildren(words);
      caption.textContent = "";
      return;
    }
    if (!node.data) node.replaceChildren();
    const { data, layout } = fit(paint(figure, palette()), drawnWidth(node));
    const first = !node.data;
    Plotly.react(node, data, layout, config);
    if (first) bindPicks(node, spec);
    caption.textContent = figure.caption.replaceAll(" = ", "\u00a0=\u00a0");
  }

  function bindPicks(node, spec) {
    const picks = Object.entries(spec.picks);
    if (picks.length === 0) return;
    node.on("plotly_click", (event) => {
      const point = event.points[0];
      choose(Object.fromEntries(picks.map(([id, direction]) => [id, Math.round(point[direction])])));
    });
  }

  const figures = [...document.querySelectorAll("[data-figure]")];
  const controls = [...document.querySelectorAll("[data-selector]")];

  function choose(changes) {
    Object.assign(state, changes);
    for (const control of controls) control.value = String(state[control.dataset.selector]);
    for (const node of figures) {
      const uses = page.figures[node.dataset.figure].layers.flatMap((layer) => layer.uses);
      if (uses.some((id) => id in changes)) draw(node);
    }
  }

  for (const control of controls) {
    control.addEventListener("change", () => {
      choose({ [control.dataset.selector]: Number(control.value) });
    });
  }
  for (const button of document.querySelectorAll("[data-reset]")) {
    button.addEventListener("click", () => {
      choose(Object.fromEntries(page.selectors.map((s) => [s.id, s.default])));
    });
  }
  for (const button of document.querySelectorAll("[data-save]")) {
    button.addEventListener("click", () => {
      const name = button.dataset.save;
      const node = document.querySelector(`[data-figure="${name}"]`);
      Plotly.downloadImage(node, { format: "svg", filename: `simspec_${name}` });
    });
  }
  for (const tools of document.querySelectorAll("[data-tools]")) tools.hidden = false;
  for (const button of document.querySelectorAll("[data-copy]")) {
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(button.dataset.copy);
        button.textContent = "Copied";
      } catch {
        getSelection().selectAllChildren(button.parentElement.querySelector("code"));
        button.textContent = "Press Ctrl-C";
      }
    });
  }

  function cellValue(row, index) {
    const cell = row.cells[index];
    const text = cell.firstChild?.textContent ?? "";
    if (cell.classList.contains("t")) return text;
    const number = Number.parseFloat(text.replaceAll(",", ""));
    return Number.isNaN(number) ? "" : number;
  }

  /* Numbers before text, empty cells last in either direction. */
  function compare(a, b, sign) {
    if (a === b) return 0;
    if (a === "" || b === "") return a === "" ? 1 : -1;
    if (typeof a !== typeof b) return typeof a === "number" ? -1 : 1;
    return sign * (typeof a === "number" ? a - b : a.localeCompare(b));
  }

  for (const table of document.querySelectorAll("[data-sortable]")) {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, index) => {
      head.firstElementChild.addEventListener("click", () => {
        const up = head.getAttribute("aria-sort") !== "ascending";
        for (const other of heads) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        const rows = [...table.tBodies[0].rows].map((row) => [cellValue(row, index), row]);
        rows.sort((a, b) => compare(a[0], b[0], up ? 1 : -1));
        table.tBodies[0].append(...rows.map(([, row]) => row));
      });
    });
  }

  const drawAll = () => figures.forEach(draw);
  let pending = 0;
  const later = () => {
    cancelAnimationFrame(pending);
    pending = requestAnimationFrame(drawAll);
  };
  dark.addEventListener("change", drawAll);
  window.addEventListener("resize", later);
  const setPrinting = (value) => {
    printing = value;
    drawAll();
  };
  window.addEventListener("beforeprint", () => setPrinting(true));
  window.addEventListener("afterprint", () => setPrinting(false));
  drawAll();
})();
