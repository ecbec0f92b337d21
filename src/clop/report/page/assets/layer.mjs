// The live layer: an image, its map of positions, and what a draw does to them.

import { draw, travels } from "./sampler.mjs";

const LONGEST = 9; // the last bar of the histogram holds this distance and all beyond

export function startLayer(root) {
  const at = (id) => root.querySelector(`#layer-${id}`);
  const form = at("form");
  let source = null; // ImageData, square

  const settings = () => ({
    alpha: Number(at("alpha").value),
    size: Number(form.elements.size.value),
    variant: form.elements.variant.value,
    local: at("local").checked,
    consistent: at("consistent").checked,
    seed: seedOf(at("seed").value),
  });

  function redraw() {
    if (source === null) return;
    const begin = performance.now();
    const { alpha, size, variant, local, consistent, seed } = settings();
    const permutations = draw(seed, [size, size], consistent ? 1 : 3, alpha, variant, local);
    paint(at("after"), permute(source, permutations, size));
    const counts = permutations.map((each) => travels(each, [size, size]));
    const total = counts[0].map((_, distance) => counts.reduce((sum, each) => sum + each[distance], 0));
    const positions = size * size * permutations.length;
    at("moved").textContent = `${(100 * (1 - total[0] / positions)).toFixed(1)} %`;
    drawBars(at("travel"), total, positions);
    at("alpha-text").textContent = alpha.toFixed(2);
    at("time").textContent = (performance.now() - begin).toFixed(1);
  }

  function show(image) {
    source = image;
    paint(at("before"), image);
    redraw();
  }

  form.addEventListener("input", redraw);
  form.addEventListener("submit", (event) => event.preventDefault());
  at("new-seed").addEventListener("click", () => {
    at("seed").value = Math.floor(Math.random() * 2 ** 31);
    redraw();
  });
  at("image").addEventListener("change", () => {
    const chosen = at("image").value;
    at("file").hidden = chosen !== "own";
    if (chosen === "frame") show(pixelsOf(at("frame"), 64));
    else if (chosen === "wheel") show(colourWheel(64));
    else at("file").click();
  });
  at("file").addEventListener("change", async () => {
    const [file] = at("file").files;
    if (file) show(pixelsOf(await createImageBitmap(file), 256));
  });
  const frame = at("frame");
  frame.decode().then(() => show(pixelsOf(frame, 64)));
}

function seedOf(text) {
  return /^\d+$/.test(text) ? BigInt(text) : 0n;
}

// The middle of an image as a square.
function pixelsOf(image, side) {
  const width = image.naturalWidth || image.width, height = image.naturalHeight || image.height;
  const crop = Math.min(width, height);
  const canvas = new OffscreenCanvas(side, side);
  const pen = canvas.getContext("2d");
  pen.drawImage(image, (width - crop) / 2, (height - crop) / 2, crop, crop, 0, 0, side, side);
  return pen.getImageData(0, 0, side, side);
}

// Hue by the angle, lightness by the distance from the middle: each place has a colour of its own.
function colourWheel(side) {
  const canvas = new OffscreenCanvas(side, side);
  const pen = canvas.getContext("2d");
  const middle = (side - 1) / 2;
  for (let y = 0; y < side; y++) {
    for (let x = 0; x < side; x++) {
      const angle = (Math.atan2(y - middle, x - middle) * 180) / Math.PI;
      const far = Math.hypot(y - middle, x - middle) / middle;
      pen.fillStyle = `hsl(${angle} 75% ${85 - 45 * far}%)`;
      pen.fillRect(x, y, 1, 1);
    }
  }
  return pen.getImageData(0, 0, side, side);
}

// Tiles of the image change places: y[k] = x[p[k]]; with three permutations each colour has its own.
export function permute(image, permutations, size) {
  const side = image.width, tile = side / size;
  const result = new ImageData(side, side);
  const from = image.data, to = result.data;
  for (let row = 0; row < side; row++) {
    for (let column = 0; column < side; column++) {
      const position = Math.floor(row / tile) * size + Math.floor(column / tile);
      const target = 4 * (row * side + column);
      for (let channel = 0; channel < 3; channel++) {
        const origin = permutations[permutations.length === 1 ? 0 : channel][position];
        const y = Math.floor(origin / size) * tile + (row % tile), x = (origin % size) * tile + (column % tile);
        to[target + channel] = from[4 * (y * side + x) + channel];
      }
      to[target + 3] = 255;
    }
  }
  return result;
}

function paint(canvas, image) {
  canvas.width = canvas.height = image.width;
  canvas.getContext("2d").putImageData(image, 0, 0);
}

function drawBars(svg, counts, positions) {
  const shares = counts.slice(0, LONGEST).map((count) => count / positions);
  shares.push(counts.slice(LONGEST).reduce((sum, count) => sum + count, 0) / positions);
  const step = 300 / shares.length;
  const most = Math.max(...shares, 1e-9);
  svg.replaceChildren(
    ...shares.flatMap((share, distance) => {
      const height = (100 * share) / most, x = distance * step;
      const label = distance === LONGEST ? `${distance}+` : `${distance}`;
      const percent = share === 0 ? "" : `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)}`;
      return [
        element("rect", { x: x + 3, y: 124 - height, width: step - 6, height, class: "bar", rx: 2 }),
        element("text", { x: x + step / 2, y: 119 - height, class: "value" }, percent),
        element("text", { x: x + step / 2, y: 142, class: "tick" }, label),
      ];
    }),
  );
}

export function element(name, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}
