// Outputs of layers as small pictures: orange positive, blue negative, by the largest magnitude of the layer.

const MOST = 64; // channels of a layer that are drawn
const SIDE = 48; // pixels of a picture on the page, about

/** One <div class="layer"> for each operator of a trace. */
export function draw(place, traced) {
  const layers = traced.map((step, index) => ({ ...step, index })).filter((step) => step.op !== "flatten");
  place.replaceChildren(...layers.map(layer));
}

/** Which layer's value lies under a click, and where in its output; null beside the pictures. */
export function clicked({ target, offsetX, offsetY }) {
  if (!target.dataset.layer) return null;
  const part = (offset, shown, pixels) => Math.min(Math.max(Math.floor((offset / shown) * pixels), 0), pixels - 1);
  const row = part(offsetY, target.clientHeight, target.height);
  const column = part(offsetX, target.clientWidth, target.width);
  const { layer, channel, count } = Object.fromEntries(Object.entries(target.dataset).map(([key, text]) => [key, Number(text)]));
  return { layer, at: (row * target.width + column) * count + channel };
}

function layer(step) {
  const box = document.createElement("div");
  box.className = "layer";
  const title = document.createElement("h3");
  title.textContent = `${step.name}: ${step.op}${step.activation === "none" ? "" : " + " + step.activation}, ${step.shape.join(" × ")}`;
  const channels = document.createElement("div");
  channels.className = "channels";
  let largest = 0;
  for (const v of step.values) largest = Math.max(largest, Math.abs(v));
  const [height, width, count] = step.shape.length === 3 ? step.shape : [1, step.values.length, 1];
  for (let c = 0; c < Math.min(count, MOST); c++) {
    const canvas = picture(step.values, height, width, count, c, largest);
    Object.assign(canvas.dataset, { layer: step.index, channel: c, count });
    channels.append(canvas);
  }
  box.append(title, channels);
  if (count > MOST) box.append(`and ${count - MOST} more`);
  return box;
}

function picture(values, height, width, count, channel, largest) {
  const canvas = document.createElement("canvas");
  canvas.width = width;
  canvas.height = height;
  const row = height === 1;
  const scale = row ? Math.max(1, Math.min(24, Math.floor(640 / width))) : Math.max(1, Math.round(SIDE / width));
  canvas.style.width = `min(100%, ${width * scale}px)`;
  canvas.style.height = row ? "20px" : "auto";
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", row ? `${width} values` : `channel ${channel}`);
  const context = canvas.getContext("2d");
  const image = context.createImageData(width, height);
  for (let p = 0; p < width * height; p++) image.data.set(color(values[p * count + channel], largest), 4 * p);
  context.putImageData(image, 0, 0);
  return canvas;
}

/** RGBA of a value: white at 0. */
export function color(value, largest) {
  const share = largest > 0 ? Math.min(Math.abs(value) / largest, 1) : 0;
  const [r, g, b] = value >= 0 ? [214, 96, 10] : [20, 90, 190];
  return [255 + (r - 255) * share, 255 + (g - 255) * share, 255 + (b - 255) * share, 255];
}
