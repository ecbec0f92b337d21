// Charts: methods and parts to switch on and off, and the numbers under the pointer or the arrow keys.

export function startCurves(root) {
  const hidden = new Set();
  let rewrite = [];
  const boxes = [...root.querySelectorAll("[data-toggle-method]")];
  const all = root.querySelector("[data-toggle-all]");

  function update() {
    for (const box of boxes) {
      if (box.checked) hidden.delete(box.dataset.toggleMethod);
      else hidden.add(box.dataset.toggleMethod);
    }
    root.querySelectorAll("g[data-method]").forEach((line) => {
      line.classList.toggle("off", hidden.has(line.dataset.method));
    });
    rewrite.forEach((write) => write());
    if (all !== null) all.textContent = hidden.size > 0 ? "all" : "none";
  }

  for (const box of boxes) box.addEventListener("change", update);
  all?.addEventListener("click", () => {
    const checked = hidden.size > 0;
    for (const box of boxes) box.checked = checked;
    update();
  });
  update();
  root.querySelectorAll("[data-toggle-part]").forEach((box) =>
    box.addEventListener("change", () => root.classList.toggle(`no-${box.dataset.togglePart}`, !box.checked)),
  );
  rewrite = [...root.querySelectorAll("figure.curves")].map((figure) => startChart(figure, hidden));
}

function startChart(figure, hidden) {
  const svg = figure.querySelector("svg"), readout = figure.querySelector(".readout");
  const cursor = svg.querySelector(".cursor");
  const data = JSON.parse(figure.querySelector("script").textContent);
  const all = Object.values(data.methods).flatMap((method) => [...method.train, ...method.test]);
  const stops = [...new Set(all.map(([steps]) => steps))].sort((a, b) => a - b);
  if (stops.length === 0) return () => {};
  let index = stops.length - 1;

  function show(next) {
    index = Math.max(0, Math.min(stops.length - 1, next));
    const x = data.left + (stops[index] / data.steps) * (data.right - data.left);
    cursor.setAttribute("x1", x);
    cursor.setAttribute("x2", x);
    cursor.classList.add("on");
    write();
  }

  function write() {
    readout.replaceChildren(heading(`at ${text(stops[index])} steps`), ...rows(stops[index]));
  }

  function rows(steps) {
    return Object.entries(data.methods)
      .filter(([name]) => !hidden.has(name))
      .map(([name, method]) => {
        const row = document.createElement("p");
        row.className = `m${method.colour}`;
        row.append(mark(method.mark), strong(name), ` unseen ${at(method.test, steps)}, training ${at(method.train, steps)}`);
        return row;
      });
  }

  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * svg.viewBox.baseVal.width;
    const steps = ((x - data.left) / (data.right - data.left)) * data.steps;
    show(nearest(stops, steps));
  });
  svg.addEventListener("focus", () => show(index));
  svg.addEventListener("keydown", (event) => {
    const moves = { ArrowLeft: index - 1, ArrowRight: index + 1, Home: 0, End: stops.length - 1 };
    if (!(event.key in moves)) return;
    event.preventDefault();
    show(moves[event.key]);
  });
  write(); // the end of training, until somebody points
  return write;
}

function nearest(stops, steps) {
  let best = 0;
  stops.forEach((stop, index) => {
    if (Math.abs(stop - steps) < Math.abs(stops[best] - steps)) best = index;
  });
  return best;
}

// The point at these steps, or the last one before them, which is named.
function at(points, steps) {
  const before = points.filter(([when]) => when <= steps);
  if (before.length === 0) return "–";
  const [when, value, low, high, count] = before[before.length - 1];
  const interval = low === null ? "" : ` [${low.toFixed(2)}, ${high.toFixed(2)}]`;
  const seeds = count === 1 ? "one seed" : `${count} seeds`;
  return `${value.toFixed(2)}${interval} (${seeds}${when === steps ? "" : `, at ${text(when)}`})`;
}

function text(steps) {
  return steps.toString().replace(/\B(?=(\d{3})+$)/g, "\u202f");
}

function heading(words) {
  const line = document.createElement("p");
  line.className = "faint";
  line.textContent = words;
  return line;
}

function strong(words) {
  const made = document.createElement("strong");
  made.textContent = words;
  return made;
}

function mark(sign) {
  const made = document.createElement("i");
  made.textContent = sign;
  return made;
}
