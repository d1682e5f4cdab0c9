// One net in every WebAssembly runtime, interleaved; started by web_peers.py:
//     node web_peers.mjs PEERS FOLDER NET ROUNDS wall|processor
import { existsSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { LiteNet } from "../wasm/litenet.js";

const [, , peers, folder, net, rounds, clock] = process.argv;
const SECONDS = 0.08; // of one runtime in a round
const require = createRequire(`${peers}/index.js`);
const inside = (path) => `${peers}/node_modules/${path}`;
const file = (extension) => `${folder}/${net}.${extension}`;
const floats = (extension) => new Float32Array(new Uint8Array(readFileSync(file(extension))).buffer);
const graph = JSON.parse(readFileSync(file("json")));
const x = floats("x"); // height, width, channels
const say = console.log;
for (const kind of ["log", "info", "warn", "error", "debug"]) console[kind] = () => {};
const now = () => {
  if (clock === "wall") return performance.now() * 1000;
  const { user, system } = process.cpuUsage();
  return user + system;
};

async function litenet(module) {
  await LiteNet.useModule(readFileSync(new URL(`../wasm/${module}`, import.meta.url)));
  const bytes = readFileSync(file("bin"));
  const start = performance.now();
  const model = await LiteNet.load(bytes);
  return { load: performance.now() - start, run: () => model.run(x) };
}

async function onnx() {
  const loaded = await import(pathToFileURL(inside("onnxruntime-web/dist/ort.wasm.bundle.min.mjs")));
  const ort = loaded.InferenceSession ? loaded : loaded.default;
  ort.env.wasm.numThreads = 1;
  ort.env.wasm.wasmBinary = readFileSync(inside("onnxruntime-web/dist/ort-wasm-simd-threaded.wasm"));
  const start = performance.now();
  const session = await ort.InferenceSession.create(readFileSync(file("onnx")), { executionProviders: ["wasm"] });
  const [h, w, c] = graph.shape.slice(1);
  const given = new ort.Tensor("float32", floats("chw"), graph.shape.length === 4 ? [1, c, h, w] : graph.shape);
  const run = async () => (await session.run({ [session.inputNames[0]]: given }))[session.outputNames[0]].data;
  return { load: performance.now() - start, run };
}

async function tensorflow() {
  const tf = require("@tensorflow/tfjs");
  const backend = require("@tensorflow/tfjs-backend-wasm");
  backend.setThreadsCount(1);
  backend.setWasmPaths(inside("@tensorflow/tfjs-backend-wasm/dist/"));
  await tf.setBackend("wasm");
  await tf.ready();
  if (tf.getBackend() !== "wasm") throw new Error("no wasm backend");
  const start = performance.now();
  const stored = floats("weights");
  const tensor = ({ at, shape }) => tf.tensor(stored.slice(at / 4, at / 4 + shape.reduce((a, b) => a * b, 1)), shape);
  const calls = graph.calls.map((call) => ({ ...call, w: call.w && tensor(call.w), b: call.b && tensor(call.b) }));
  const convolution = ({ w, b, strides, pad, activation }, v) =>
    ({ x: v, filter: w, bias: b, strides, pad, activation, dimRoundingMode: pad === "valid" ? undefined : "floor" });
  const how = {
    conv2d: (c, v) => tf.fused.conv2d(convolution(c, v)),
    depthwise_conv2d: (c, v) => tf.fused.depthwiseConv2d(convolution(c, v)),
    linear: (c, v) => tf.fused.matMul({ a: v.reshape([1, -1]), b: c.w, bias: c.b, activation: c.activation }),
    maxpool2d: (c, v) => tf.maxPool(v, c.kernel, c.strides, c.pad),
    global_avg_pool: (c, v) => tf.mean(v, [1, 2]),
    flatten: (c, v) => v.reshape([1, -1]),
    add: (c, v, w) => (c.activation === "relu" ? tf.relu(tf.add(v, w)) : tf.add(v, w)),
  };
  const run = () => {
    const last = tf.tidy(() => {
      const made = { [graph.x]: tf.tensor(x, graph.shape) };
      for (const call of calls) made[call.y] = how[call.op](call, ...call.x.map((name) => made[name]));
      return made[graph.y];
    });
    const values = last.dataSync();
    last.dispose();
    return values;
  };
  return { load: performance.now() - start, run };
}

// LiteRT.js expects a browser: files by fetch, and a script that leaves a factory behind.
async function litert() {
  if (!existsSync(file("tflite"))) throw new Error("no such file");
  const folder = inside("@litertjs/core/wasm/");
  const path = (address) => String(address.url ?? address).replace(/^file:\/\//, "");
  const far = globalThis.fetch;
  Object.assign(globalThis, { self: globalThis, require, __dirname: folder, __filename: `${folder}litert_wasm_internal.js` });
  globalThis.fetch = async (address, options) => {
    if (!existsSync(path(address))) return far(address, options);
    const type = path(address).endsWith(".wasm") ? "application/wasm" : "application/octet-stream";
    return new Response(readFileSync(path(address)), { headers: { "content-type": type } });
  };
  globalThis.importScripts = (address) =>
    (0, eval)(`${readFileSync(path(address), "utf8")}\n;globalThis.ModuleFactory = ModuleFactory;`);
  const lite = await import(pathToFileURL(inside("@litertjs/core/dist/index.js")));
  await lite.loadLiteRt(folder, { threads: false });
  const start = performance.now();
  const model = await lite.loadAndCompile(new Uint8Array(readFileSync(file("tflite"))), { accelerator: "wasm" });
  const run = async () => {
    const given = new lite.Tensor(x, graph.shape);
    const outputs = await model.run(given);
    const values = Float32Array.from(await outputs[0].data());
    given.delete();
    outputs.forEach((output) => output.delete());
    return values;
  };
  return { load: performance.now() - start, run };
}

const makers = {
  "LiteNet, relaxed": () => litenet("litenet-relaxed.wasm"),
  "LiteNet": () => litenet("litenet-simd.wasm"),
  "ONNX Runtime Web": onnx,
  "TensorFlow.js": tensorflow,
  "LiteRT.js": litert,
};
const runtimes = [];
for (const [name, make] of Object.entries(makers)) {
  try {
    const made = await make();
    const answer = Float32Array.from(await made.run());
    const first = runtimes[0]?.answer ?? answer;
    const largest = first.reduce((most, v) => Math.max(most, Math.abs(v)), 0);
    const off = answer.length === first.length ? answer.reduce((most, v, i) => Math.max(most, Math.abs(v - first[i])), 0) / largest : NaN;
    runtimes.push({ name, ...made, answer, off, times: [] });
  } catch (error) {
    say(`${net.padEnd(16)} ${name.padEnd(18)} not measured: ${String(error.message ?? error).slice(0, 100)}`);
  }
}
async function timed(run, count) {
  await run();
  const start = now();
  for (let i = 0; i < count; i++) await run();
  return (now() - start) / count;
}
for (const one of runtimes) {
  for (let start = now(); now() - start < SECONDS * 3e6; ) await one.run(); // until all is compiled
  one.count = Math.max(2, Math.ceil((SECONDS * 1e6) / (await timed(one.run, 5))));
}
for (let round = 0; round < rounds; round++)
  for (const { run, count, times } of runtimes) times.push(await timed(run, count));
for (const { name, load, off, times } of runtimes) {
  times.sort((a, b) => a - b);
  const [best, median] = [times[0], times[times.length >> 1]].map((t) => t.toFixed(1).padStart(9));
  say(`${net.padEnd(16)} ${name.padEnd(18)} ${best} ${median} us  load ${load.toFixed(1).padStart(6)} ms  off ${off.toExponential(0)}`);
}
process.exit(0);
