// One net in every WebAssembly runtime, under Node or in a page; web_peers.py drives both:
//     begin(where, net)  load it in each of them: [{name, load, off}, ...], or {name, trouble}
//     round(clock)       run each for a while: [microseconds, ...] in that order; clock: "wall" or "processor"
// where: {peers, files, wasm}, addresses that end with a slash.
const SECONDS = 0.08; // of one runtime in a round
const inNode = typeof process === "object" && Boolean(process.versions?.node);
const { readFileSync, existsSync } = inNode ? await import("node:fs") : {};
const { fileURLToPath } = inNode ? await import("node:url") : {};
const require = inNode && (await import("node:module")).createRequire(import.meta.url);
let where, net, graph, x; // x: height, width, channels
let runtimes = [];

async function bytes(address) {
  if (inNode) return new Uint8Array(readFileSync(fileURLToPath(address)));
  const response = await fetch(address);
  if (!response.ok) throw new Error(`${address}: ${response.status}`);
  return new Uint8Array(await response.arrayBuffer());
}
const file = (extension) => `${where.files}${net}.${extension}`;
const floats = async (extension) => new Float32Array((await bytes(file(extension))).buffer);
const script = (address) =>
  new Promise((resolve, reject) =>
    document.head.append(Object.assign(document.createElement("script"), { src: address, onload: resolve, onerror: reject }))
  );

// Microseconds; of the processor: what all threads of the process have had.
async function now(clock) {
  if (clock === "wall") return performance.now() * 1000;
  if (!inNode) return Number(await (await fetch("/clock")).text());
  const { user, system } = process.cpuUsage();
  return user + system;
}

async function litenet(module, extension = "bin") {
  const { LiteNet } = await import(`${where.wasm}litenet.js`);
  await LiteNet.useModule(await bytes(where.wasm + module));
  const given = await bytes(file(extension));
  const start = performance.now();
  const model = await LiteNet.load(given);
  return { load: performance.now() - start, run: () => model.run(x) };
}

async function onnx() {
  const loaded = await import(`${where.peers}onnxruntime-web/dist/ort.wasm.bundle.min.mjs`);
  const ort = loaded.InferenceSession ? loaded : loaded.default;
  ort.env.wasm.numThreads = 1;
  ort.env.wasm.wasmBinary = await bytes(`${where.peers}onnxruntime-web/dist/ort-wasm-simd-threaded.wasm`);
  const model = await bytes(file("onnx"));
  const start = performance.now();
  const session = await ort.InferenceSession.create(model, { executionProviders: ["wasm"] });
  const [h, w, c] = graph.shape.slice(1);
  const given = new ort.Tensor("float32", await floats("chw"), graph.shape.length === 4 ? [1, c, h, w] : graph.shape);
  const run = async () => (await session.run({ [session.inputNames[0]]: given }))[session.outputNames[0]].data;
  return { load: performance.now() - start, run };
}

async function tensorflow() {
  const folder = `${where.peers}@tensorflow/tfjs-backend-wasm/dist/`;
  if (!inNode && !globalThis.tf)
    for (const one of [`${where.peers}@tensorflow/tfjs/dist/tf.min.js`, `${folder}tf-backend-wasm.min.js`]) await script(one);
  const path = (name) => fileURLToPath(`${where.peers}@tensorflow/${name}`);
  const tf = inNode ? require(path("tfjs")) : globalThis.tf;
  const backend = inNode ? require(path("tfjs-backend-wasm")) : tf.wasm;
  backend.setThreadsCount(1);
  if (tf.getBackend() !== "wasm") {
    backend.setWasmPaths(inNode ? fileURLToPath(folder) : folder);
    await tf.setBackend("wasm");
    await tf.ready();
  }
  if (tf.getBackend() !== "wasm") throw new Error("no wasm backend");
  const stored = await floats("weights");
  const start = performance.now();
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
  const { x: first, y: last, shape } = graph;
  const run = () => {
    const answer = tf.tidy(() => {
      const made = { [first]: tf.tensor(x, shape) };
      for (const call of calls) made[call.y] = how[call.op](call, ...call.x.map((name) => made[name]));
      return made[last];
    });
    const values = answer.dataSync();
    answer.dispose();
    return values;
  };
  return { load: performance.now() - start, run };
}

// LiteRT.js expects a browser: files by fetch, and a script that leaves a factory behind. Under Node it is given both.
function pretend() {
  const path = (address) => String(address.url ?? address).replace(/^file:\/\//, "");
  const folder = fileURLToPath(`${where.peers}@litertjs/core/wasm/`);
  const far = globalThis.fetch;
  Object.assign(globalThis, { self: globalThis, require, __dirname: folder, __filename: `${folder}litert_wasm_internal.js` });
  globalThis.fetch = async (address, options) => {
    if (!existsSync(path(address))) return far(address, options);
    const type = path(address).endsWith(".wasm") ? "application/wasm" : "application/octet-stream";
    return new Response(readFileSync(path(address)), { headers: { "content-type": type } });
  };
  globalThis.importScripts = (address) =>
    (0, eval)(`${readFileSync(path(address), "utf8")}\n;globalThis.ModuleFactory = ModuleFactory;`);
}

let loaded = null; // LiteRT.js, once

async function litert() {
  const model = await bytes(file("tflite")).catch(() => Promise.reject(new Error("no such file")));
  if (!loaded) {
    if (inNode) pretend();
    const lite = await import(`${where.peers}@litertjs/core/dist/index.js`);
    const folder = `${where.peers}@litertjs/core/wasm/`;
    await lite.loadLiteRt(inNode ? fileURLToPath(folder) : folder, { threads: false });
    loaded = lite;
  }
  const start = performance.now();
  const compiled = await loaded.loadAndCompile(model, { accelerator: "wasm" });
  const { shape } = graph;
  const run = async () => {
    const given = new loaded.Tensor(x, shape);
    const outputs = await compiled.run(given);
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
  "LiteNet, int8": () => litenet("litenet-full.wasm", "int8.bin"),
  "ONNX Runtime Web": onnx,
  "TensorFlow.js": tensorflow,
  "LiteRT.js": litert,
};

async function timed(run, count, clock) {
  await run();
  const start = await now(clock);
  for (let i = 0; i < count; i++) await run();
  return ((await now(clock)) - start) / count;
}

export async function begin(place, name) {
  [where, net, runtimes] = [place, name, []];
  graph = JSON.parse(new TextDecoder().decode(await bytes(file("json"))));
  x = await floats("x");
  const found = [];
  for (const [name, make] of Object.entries(makers)) {
    try {
      const made = await make();
      const answer = Float32Array.from(await made.run());
      const first = runtimes[0]?.answer ?? answer;
      const largest = first.reduce((most, v) => Math.max(most, Math.abs(v)), 0);
      const off = answer.length === first.length ? answer.reduce((most, v, i) => Math.max(most, Math.abs(v - first[i])), 0) / largest : NaN;
      runtimes.push({ ...made, answer });
      found.push({ name, load: made.load, off: String(off) });
    } catch (error) {
      found.push({ name, trouble: String(error.message ?? error).slice(0, 100) });
    }
  }
  for (const one of runtimes) {
    for (const seconds of [2 * SECONDS, SECONDS]) { // until all is compiled, then to count
      const start = performance.now();
      for (one.count = 0; one.count < 2 || performance.now() - start < seconds * 1e3; one.count++) await one.run();
    }
  }
  return found;
}

export async function round(clock) {
  const times = [];
  for (const { run, count } of runtimes) times.push(await timed(run, count, clock));
  return times;
}

// Under Node: a list [function, ...arguments] a line, and an answer a line.
if (inNode) {
  const say = process.stdout.write.bind(process.stdout);
  for (const kind of ["log", "info", "warn", "error", "debug"]) console[kind] = () => {};
  for await (const line of (await import("node:readline")).createInterface({ input: process.stdin })) {
    const [name, ...given] = JSON.parse(line);
    say(`${JSON.stringify(await { begin, round }[name](...given))}\n`);
  }
  process.exit(0);
}
