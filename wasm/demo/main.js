// The page: a model, something it looks at, and what it says.
import { LiteNet } from "../litenet.js";
import { Paper } from "./paper.js";

const at = (id) => document.getElementById(id);
performance.mark("code");
// The page is laid out once, with its first answer in it; without it where that takes long.
const PATIENCE = 100; // milliseconds
document.body.hidden = true;
const show = () => (document.body.hidden = false);
setTimeout(show, PATIENCE);
const wanted = new URLSearchParams(location.search).get("model") ?? "digits.bin";
const first = LiteNet.load(new URL(wanted, location.href), { onProgress }); // begins before all else
let model = null;
let inside = null; // the module that comes after the first answer
let source = null; // a picture or video other than the paper
let traced = null;
let step = 0;
let due = false;
let filming = null; // the camera's stream

const paper = new Paper(at("paper"), () => {
  source = null;
  soon();
});
paper.showExample();

// The answer follows a change once for each frame.
function soon() {
  if (due) return;
  due = true;
  requestAnimationFrame(() => {
    due = false;
    look();
  });
}

function look() {
  if (!model) return;
  if (!source && paper.empty && model.info.picture) return rest();
  try {
    const given = model.info.picture ? source ?? paper.pixels : new Float32Array(model.info.inputElements);
    const answer = model.predict(given, { top: 10 });
    tell(answer);
    trouble("");
    if (inside) within(given, answer);
  } catch (error) {
    trouble(error.message);
  }
}

// The layers of the last answer: at once where that is quick, else when there is time, so that a pen never waits.
const QUICK = 12; // milliseconds
let took = 0;
let latest = null; // what is to be shown
let waiting = 0;

function within(given, answer) {
  latest = { given, answer };
  if (took <= QUICK) return showWithin();
  at("maps").setAttribute("aria-busy", "true");
  waiting ||= setTimeout(showWithin, Math.min(2 * took, 300));
}

function showWithin() {
  stopWaiting();
  const start = performance.now();
  traced = model.trace(latest.given);
  inside.draw(at("maps"), traced);
  if (took < 100 || !filming) walk();
  heat(latest.answer);
  took = performance.now() - start;
}

function stopWaiting() {
  clearTimeout(waiting);
  waiting = 0;
  at("maps").setAttribute("aria-busy", "false");
}

function rest() {
  stopWaiting();
  [at("answer").textContent, at("timing").textContent] = ["Draw something.", ""];
  at("scores").replaceChildren();
  at("maps").replaceChildren();
  at("step").replaceChildren();
  at("heat").getContext("2d").clearRect(0, 0, 280, 280);
  traced = null;
}

function tell(answer) {
  const text = answer.top
    ? `${answer.label}, ${(100 * answer.probability).toFixed(1)} %`
    : answer.values
      ? Array.from(answer.values.slice(0, 4), (v) => v.toPrecision(4)).join("  ")
      : Object.keys(answer.outputs).join(", ");
  if (at("answer").textContent !== text) at("answer").textContent = text;
  performance.mark("answer");
  at("timing").textContent = `${answer.milliseconds.toFixed(2)} ms from picture to answer, ${model.info.kernels} kernels`;
  const rows = (answer.top ?? []).map(({ label, probability }) => {
    const row = document.createElement("li");
    const bar = Object.assign(document.createElement("span"), { className: "bar" });
    bar.style.width = `${100 * probability}%`;
    row.append(
      Object.assign(document.createElement("span"), { textContent: label, title: label }),
      bar,
      Object.assign(document.createElement("span"), { className: "number", textContent: `${(100 * probability).toFixed(1)} %` })
    );
    return row;
  });
  at("scores").replaceChildren(...rows);
}

function walk() {
  if (!traced || !inside) return;
  step = Math.min(step, traced.length - 1);
  const which = at("which");
  which.max = traced[step].values.length - 1;
  const value = Math.min(Math.max(Math.trunc(which.valueAsNumber) || 0, 0), which.max);
  const input = { shape: model.info.inputShape, values: model.info.picture ? model.prepare(source ?? paper.pixels) : new Float32Array(model.info.inputElements) };
  inside.show(at("step"), model, traced, input, step, value);
  at("back").disabled = step === 0;
  at("next").disabled = step === traced.length - 1;
}

function heat(answer) {
  const canvas = at("heat");
  const context = canvas.getContext("2d");
  context.clearRect(0, 0, canvas.width, canvas.height);
  if (!at("show-heat").checked || answer.index === undefined) return;
  const found = inside.classMap(model, traced, answer.index);
  if (!found) return trouble("This net keeps no map of where: it needs global average pooling before its last layer.");
  const image = new ImageData(found.width, found.height);
  const largest = found.values.reduce((most, v) => Math.max(most, Math.abs(v)), 0);
  found.values.forEach((v, p) => image.data.set([...inside.color(v, largest).slice(0, 3), (140 * Math.abs(v)) / largest], 4 * p));
  const small = new OffscreenCanvas(found.width, found.height);
  small.getContext("2d").putImageData(image, 0, 0);
  context.drawImage(small, 0, 0, canvas.width, canvas.height);
}

function onProgress({ loaded, total }) {
  const progress = at("progress");
  if (total) progress.value = loaded / total;
  else progress.removeAttribute("value");
}

let turns = 0;

/** Take a model when it is there: a promise of one. The last that was asked for stays. */
async function open(coming, name) {
  const turn = ++turns;
  at("progress").hidden = false;
  try {
    const loaded = await coming;
    if (turn !== turns) return loaded.dispose();
    performance.mark("model");
    stopWaiting();
    model?.dispose();
    model = loaded;
    traced = null;
    step = 0;
    trouble("");
    look();
    about(name);
  } catch (error) {
    trouble(error.message);
    if (!model) [at("answer").textContent, at("timing").textContent] = ["No model yet.", ""];
  }
  if (turn === turns) at("progress").hidden = true;
}

function about(name) {
  const { info } = model;
  at("about").textContent =
    `${info.name ?? name}: ${info.inputShape.join(" × ")} in, ${info.outputs.map((o) => o.shape.join(" × ")).join(" and ")} out, ` +
    `${info.operators} layers, ${(info.macs / 1e6).toFixed(2)} million multiplications, ${(info.weightsBytes / 1024).toFixed(0)} KB of weights`;
  at("in-title").textContent = name.startsWith("digits") || /mnist/.test(info.name ?? "") ? "Draw a digit" : "Show it something";
}

async function showPicture(file) {
  try {
    const bitmap = await createImageBitmap(file);
    await film(false);
    paper.show(bitmap, bitmap.width, bitmap.height);
    source = bitmap; // the net sees it whole, the paper shows it small
    soon();
  } catch {
    trouble(`${file.name} is no picture that this browser can read.`);
  }
}

async function film(on) {
  const video = at("camera");
  if (!on) {
    filming?.getTracks().forEach((track) => track.stop());
    filming = null;
  } else
    try {
      filming = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment" } });
      video.srcObject = filming;
      await video.play();
      source = video;
      frame();
    } catch (error) {
      filming = null;
      trouble(`There is no picture from a camera (${error.message}); allow it, or open a picture.`);
    }
  video.hidden = !filming;
  at("film").setAttribute("aria-pressed", String(Boolean(filming)));
}

function frame() {
  if (!filming) return;
  source = at("camera");
  look();
  requestAnimationFrame(frame);
}

function trouble(text) {
  at("trouble").textContent = text;
}

async function take(file) {
  if (file.type.startsWith("image/")) return showPicture(file);
  return open(LiteNet.load(file, { onProgress }), file.name);
}

at("clear").addEventListener("click", () => film(false).then(() => paper.clear()));
at("film").addEventListener("click", () => film(!filming));
at("picture").addEventListener("change", ({ target }) => target.files[0] && showPicture(target.files[0]));
at("bin").addEventListener("change", ({ target }) => target.files[0] && take(target.files[0]));
at("show-heat").addEventListener("change", look);
at("which").addEventListener("input", walk);
at("back").addEventListener("click", () => {
  step--;
  at("which").value = 0;
  walk();
});
at("next").addEventListener("click", () => {
  step++;
  at("which").value = 0;
  walk();
});
at("maps").addEventListener("click", (event) => {
  const found = inside?.clicked(event);
  if (!found) return;
  step = found.layer;
  at("which").value = found.at;
  walk();
  at("steps").scrollIntoView({ block: "nearest" });
});
at("selftest").addEventListener("click", async () => {
  try {
    await model.selfTest();
    trouble("The self-test passes: this browser computes what the exporter did.");
  } catch (error) {
    trouble(error.message);
  }
});
addEventListener("dragover", (event) => event.preventDefault());
addEventListener("drop", (event) => {
  event.preventDefault();
  const file = event.dataTransfer.files[0];
  if (file) take(file);
});

async function fetchTheRest() {
  inside = await import("./inside.js");
  performance.mark("whole");
  look();
}

open(first, wanted).then(() => {
  show();
  requestAnimationFrame(() => setTimeout(fetchTheRest)); // when that has been painted
});
