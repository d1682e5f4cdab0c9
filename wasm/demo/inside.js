// What happens inside a net, for people who want to see it: outputs of layers as pictures, one value as the sum it is, and
// which part of the picture spoke for a class. Layouts and formulas: runtime_c/FORMAT.md.

const PANEL = 16; // outputs that lie together in a panel of weights; the last panel is rounded up to a multiple of 4

const ACTIVATIONS = {
  none: ["h", (h) => h],
  relu: ["max(h, 0)", (h) => Math.max(h, 0)],
  relu6: ["min(max(h, 0), 6)", (h) => Math.min(Math.max(h, 0), 6)],
  sigmoid: ["1 / (1 + e^-h)", (h) => 1 / (1 + Math.exp(-h))],
  tanh: ["tanh h", Math.tanh],
  silu: ["h / (1 + e^-h)", (h) => h / (1 + Math.exp(-h))],
  hard_swish: ["h min(max(h + 3, 0), 6) / 6", (h) => (h * Math.min(Math.max(h + 3, 0), 6)) / 6],
};

const FORMULAS = {
  linear: "y[o] = act(b[o] + Σ x[i] · w[o,i])",
  conv2d: "y[i,j,o] = act(b[o] + Σ x[i·s+u−top, j·s+v−left, c] · w[o,u,v,c])",
  depthwise_conv2d: "y[i,j,c] = act(b[c] + Σ x[i·s+u−top, j·s+v−left, c] · w[u,v,c])",
  maxpool2d: "y[i,j,c] = the largest x of the window",
  avgpool2d: "y[i,j,c] = the mean of the window's x",
  global_avg_pool: "y[c] = mean over i, j of x[i,j,c]",
  flatten: "y = x as one row",
  add: "y = act(x + x₂)",
  batchnorm: "y[..,c] = act(x[..,c] · scale[c] + shift[c])",
  layernorm: "y[..,c] = γ[c] · (x[..,c] − mean) / √(var + ε) + β[c]",
  softmax: "y[c] = e^x[c] / Σ e^x",
  embed_projection: "y[e] = act(Σ x[p] · w[p,e])",
  activation: "y = act(x)",
};

// Kernel, stride, padding and dilation of a windowed operator; null for others.
function windowOf(op, attributes) {
  if (!/conv2d|pool2d/.test(op)) return null;
  const [kh, kw, sh, sw, top, left] = Array.from({ length: 6 }, (_, i) => attributes.getUint8(i));
  const dilated = /conv2d/.test(op);
  const [dh, dw] = dilated ? [attributes.getUint8(8), attributes.getUint8(9)] : [1, 1];
  return { kh, kw, sh, sw, top, left, dh, dw, groups: op === "conv2d" ? attributes.getUint16(10, true) : 1 };
}

// Bias and weights of output `o`, K weights in the order of the file.
function weightsOf(packed, outputs, K, o) {
  const panel = Math.floor(o / PANEL);
  const width = Math.min(PANEL, Math.ceil((outputs - panel * PANEL) / 4) * 4);
  const start = panel * PANEL * (K + 1) + (o % PANEL);
  return { bias: packed[start], weight: (k) => packed[start + width * (k + 1)] };
}

// The values that a pool looks at for value `at` of its output.
function pooled(layer, attributes, at, x) {
  const [H, W, C] = x.shape;
  const whole = layer.op === "global_avg_pool";
  const { kh, kw, sh, sw, top, left } = whole ? { kh: H, kw: W, sh: 1, sw: 1, top: 0, left: 0 } : windowOf(layer.op, attributes);
  const columns = whole ? 1 : layer.shape[1];
  const [c, j, i] = [at % C, Math.floor(at / C) % columns, Math.floor(at / C / columns)];
  const seen = [];
  for (let h = i * sh - top; h < i * sh - top + kh; h++)
    for (let w = j * sw - left; w < j * sw - left + kw; w++)
      if (h >= 0 && h < H && w >= 0 && w < W) seen.push({ where: [h, w, c], x: x.values[(h * W + w) * C + c] });
  return seen;
}

/**
 * One value of an operator's output as its sum: {bias, terms: [{where, x, w}], sum, act, y}, or of a pool {largest, terms};
 * null where an operator is neither (or its weights are halves, or in groups). at: index into the output; x: {shape, values}
 * it reads.
 */
function neuron(model, index, at, x) {
  const layer = model.layers[index];
  if (/^maxpool2d|^global_avg_pool/.test(layer.op)) {
    const terms = pooled(layer, model.record(index).attributes, at, x);
    if (layer.op === "maxpool2d") return { largest: true, terms };
    const each = terms.map((term) => ({ ...term, w: 1 / terms.length }));
    const y = each.reduce((total, t) => total + t.x * t.w, 0);
    return { bias: 0, terms: each, sum: y, act: "h", y };
  }
  const { weights, attributes } = model.record(index);
  const act = ACTIVATIONS[layer.activation];
  if (!weights || !act) return null;
  const terms = [];
  let bias = 0;
  if (layer.op === "linear" && layer.shape.length === 1) {
    const K = x.values.length;
    const row = weightsOf(weights, layer.shape[0], K, at);
    bias = row.bias;
    for (let k = 0; k < K; k++) terms.push({ where: place(k, x.shape), x: x.values[k], w: row.weight(k) });
  } else if (layer.op === "conv2d" || layer.op === "depthwise_conv2d") {
    const win = windowOf(layer.op, attributes);
    if (win.groups !== 1) return null;
    const [H, W, C] = x.shape;
    const [, Wo, O] = layer.shape;
    const o = at % O;
    const j = Math.floor(at / O) % Wo;
    const i = Math.floor(at / O / Wo);
    const deep = layer.op === "depthwise_conv2d";
    const row = weightsOf(weights, O, win.kh * win.kw * (deep ? 1 : C), o);
    bias = row.bias;
    let k = 0;
    for (let u = 0; u < win.kh; u++)
      for (let v = 0; v < win.kw; v++)
        for (let c = deep ? o : 0; c < (deep ? o + 1 : C); c++, k++) {
          const h = i * win.sh + u * win.dh - win.top;
          const w = j * win.sw + v * win.dw - win.left;
          const inside = h >= 0 && h < H && w >= 0 && w < W;
          terms.push({ where: [h, w, c], x: inside ? x.values[(h * W + w) * C + c] : 0, w: row.weight(k) });
        }
  } else return null;
  const sum = terms.reduce((total, t) => total + t.x * t.w, bias);
  return { bias, terms, sum, act: act[0], y: act[1](sum) };
}

function place(k, shape) {
  const out = [];
  for (const dim of [...shape].reverse()) {
    out.unshift(k % dim);
    k = Math.floor(k / dim);
  }
  return out;
}

/**
 * Class activation map: for a net that ends with global average pooling and a linear layer, how much each place of the
 * last feature map spoke for a class (Zhou et al., 2016). {height, width, values}, or null for other nets.
 */
export function classMap(model, traced, index) {
  const layers = model.layers;
  let last = layers.length - 1;
  if (layers[last].op === "softmax") last--;
  if (layers[last].op !== "linear") return null;
  let pool = layers[last].inputs[0];
  while (pool >= 0 && layers[pool].op === "flatten") pool = layers[pool].inputs[0];
  if (pool < 0 || layers[pool].op !== "global_avg_pool") return null;
  const features = traced[layers[pool].inputs[0]];
  const { weights } = model.record(last);
  if (!features || !weights) return null;
  const [height, width, C] = features.shape;
  const row = weightsOf(weights, layers[last].shape[0], C, index);
  const values = new Float32Array(height * width);
  for (let p = 0; p < values.length; p++)
    for (let c = 0; c < C; c++) values[p] += features.values[p * C + c] * row.weight(c);
  return { height, width, values };
}

// ---- Outputs of layers as small pictures: orange positive, blue negative, by the largest magnitude of the layer.

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

// ---- Step by step: a layer's formula and shapes, and one of its values as the sum it is.

const SHOWN = 12; // terms of a sum, the largest

/** What a layer does, into `place`. input: {shape, values} of the net; at: which value of the layer's output. */
export function show(place, model, traced, input, index, at) {
  const layer = model.layers[index];
  const x = layer.inputs[0] < 0 ? input : traced[layer.inputs[0]];
  const value = traced[index].values[at];
  const parts = [
    line(`Layer ${index + 1} of ${model.layers.length}: ${layer.name} (${layer.op})`, "h3"),
    line(FORMULAS[layer.op] ?? layer.op, "code"),
    line(`${x.shape.join(" × ")} → ${layer.shape.join(" × ")}; ${layer.macs.toLocaleString()} multiplications and additions, ` +
      `${layer.weightsBytes.toLocaleString()} bytes of weights`),
    line(`Value ${at}${position(at, layer.shape)} is ${number(value)}.`),
  ];
  const found = neuron(model, index, at, x);
  if (found) parts.push(line(sentence(found)), table(found));
  place.replaceChildren(...parts);
}

function sentence({ largest, bias, terms, sum, act, y }) {
  if (largest) return `It is the largest of these ${terms.length}:`;
  const rest = act === "h" ? "" : `; ${act} makes it ${number(y)}`;
  return `It is the bias ${number(bias)} and ${terms.length} products; together h = ${number(sum)}${rest}. The largest of them:`;
}

function table({ largest, terms }) {
  const size = largest ? ({ x }) => x : ({ x, w }) => Math.abs(x * w);
  const rows = [...terms].sort((a, b) => size(b) - size(a)).slice(0, SHOWN);
  const box = document.createElement("div");
  box.className = "table";
  const made = document.createElement("table");
  const head = made.createTHead().insertRow();
  for (const text of largest ? ["x at", "x"] : ["x at", "x", "w", "x · w"]) head.append(Object.assign(document.createElement("th"), { textContent: text, scope: "col" }));
  const body = made.createTBody();
  for (const { where, x, w } of rows) {
    const row = body.insertRow();
    for (const text of [where.join(", "), number(x), ...(largest ? [] : [number(w), number(x * w)])]) row.insertCell().textContent = text;
  }
  box.append(made);
  return box;
}

function position(at, shape) {
  if (shape.length !== 3) return "";
  const [, W, C] = shape;
  return ` (row ${Math.floor(at / C / W)}, column ${Math.floor(at / C) % W}, channel ${at % C})`;
}

function line(text, tag = "p") {
  return Object.assign(document.createElement(tag), { textContent: text });
}

function number(v) {
  return Number(v.toPrecision(4)).toString();
}
