// Step by step: a layer's formula and shapes, and one of its values as the sum it is.
import { FORMULAS, neuron } from "./inside.js";

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
