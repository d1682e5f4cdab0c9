// LiteNet in a browser, a worker, Node or Deno: run a .bin model.
//
//     import { LiteNet } from "./litenet.js";
//     const model = await LiteNet.load("mnist_cnn.bin");
//     const answer = model.predict(canvas);           // {label: "7", index: 7, probability: 0.998, top: [...], ...}
//
// One module beside this file is fetched once: a core with the vectors that the machine has, or, where it has none,
// litenet.wasm. What the core refuses, for an operator that it lacks or for good reason, goes to litenet-full.wasm. Each
// model has an instance of its module, with a memory of its own: dispose() lets go of all it took.

const LAYOUT = { 1: 1, 2: 2, 3: 3, 4: 4 }; // channels of a picture: LN_GRAY, LN_GRAY_ALPHA, LN_RGB, LN_RGBA
const MOST_SIDE = 65535; // of a picture
const SPARE = 2; // instances of disposed models that are kept for the next ones

// Modules of one function, which makes a vector: valid where WebAssembly has the instruction.
const makes = (...code) =>
  WebAssembly.validate(
    Uint8Array.of(0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0, 10, code.length + 4, 1, code.length + 2, 0, ...code, 11)
  );
const splat = [65, 0, 253, 17]; // of i32.const 0
const best = () =>
  makes(...splat, ...splat, ...splat, 253, 133, 2) ? "litenet-relaxed.wasm" : makes(...splat) ? "litenet-simd.wasm" : "litenet.wasm";

const beside = (name) => compile(new URL(name, import.meta.url));
let compiled = null; // promises of modules
let full = null;
const spare = new Map(); // instances by module

/** What goes wrong, in one sentence: where, what was found, what was expected, what to do. */
export class LiteNetError extends Error {
  constructor(sentence, status = null) {
    super(sentence);
    this.name = "LiteNetError";
    this.status = status; // the runtime's ln_status, where it refused
  }
}

export class LiteNet {
  #wasm;
  #module;
  #bytes; // of the file, in the instance's memory: [at, size]
  #name;
  #metadata;
  #layers;

  /** Use new modules: a WebAssembly.Module, or the bytes or address of one. Models that are loaded keep theirs. */
  static useModule(module) {
    spare.clear();
    return (compiled = Promise.resolve(module).then((m) => (m instanceof WebAssembly.Module ? m : compile(m))));
  }

  /**
   * Load a model.
   * @param source  address of a .bin, or its bytes (ArrayBuffer, typed array, Blob, Response)
   * @param onProgress  called with {loaded, total} in bytes; total is 0 where the server does not say
   * @param signal  an AbortSignal that ends the download
   */
  static async load(source, { onProgress, signal } = {}) {
    compiled ??= beside(best());
    const name = nameOf(source);
    const begun = compiled.then(async (module) => [module, await instance(module)]);
    const [[module, wasm], bytes] = await Promise.all([begun, read(source, name, onProgress, signal)]);
    try {
      return new LiteNet(module, wasm, bytes, name);
    } catch (error) {
      if (wasm.explain || error.status === null) throw error;
      return LiteNet.#inFull(bytes, name, error);
    }
  }

  // The model in the full module, or the error that has the runtime's sentence.
  static async #inFull(bytes, name, error) {
    const module = await (full ??= beside("litenet-full.wasm")).catch(() => ((full = null), Promise.reject(error)));
    return new LiteNet(module, await instance(module), bytes, name);
  }

  /** @private use LiteNet.load */
  constructor(module, wasm, bytes, name) {
    const at = wasm.place(bytes.byteLength) >>> 0;
    if (!at) throw new LiteNetError(`${name}: ${bytes.byteLength} bytes of memory are not to be had here.`);
    new Uint8Array(wasm.memory.buffer, at, bytes.byteLength).set(bytes);
    this.#wasm = wasm;
    this.#module = module;
    this.#bytes = [at, bytes.byteLength];
    this.#name = name;
    try {
      this.#check(wasm.open_model(bytes.byteLength));
    } catch (error) {
      this.dispose();
      throw error;
    }
  }

  /**
   * The answer for one input: a Float32Array of model.info.inputElements normalised values, or a picture of any size
   * (ImageData, image, video, canvas, ImageBitmap, VideoFrame, or {data, width, height} with 1 to 4 bytes a pixel).
   * Classes: {label, index, probability, top: [{label, index, probability}, ...], values, milliseconds}.
   * Values: {values, milliseconds}; several outputs: {outputs: {name: {shape, values}}, milliseconds}.
   */
  predict(input, { top = 5 } = {}) {
    const start = performance.now();
    this.setInput(input);
    this.#ran(this.#alive().run());
    return this.#answer(top, performance.now() - start);
  }

  /** Only the values of all outputs, one after another: predict without what makes them an answer. */
  run(input) {
    this.setInput(input);
    this.#ran(this.#alive().run());
    return this.#floats(this.#wasm.output(), this.#wasm.output_elements());
  }

  /** The picture as the net sees it: normalised values, as training and `edge-infer` make them. */
  prepare(picture) {
    this.setInput(picture);
    return this.#floats(this.#wasm.input(), this.#wasm.input_elements());
  }

  /** Run one input and keep what every operator gives: [{name, op, activation, shape, values}, ...], in their order. */
  trace(input) {
    this.setInput(input);
    const wasm = this.#wasm;
    this.#ran(wasm.trace());
    let at = wasm.traced() >>> 0;
    return this.layers.map(({ name, op, activation, shape }) => {
      const count = product(shape);
      const values = this.#floats(at, count);
      at += 4 * count;
      return { name, op, activation, shape, values };
    });
  }

  /** Run the inputs stored in the file; a LiteNetError names the first operator that gives something else. */
  async selfTest() {
    const wasm = this.#alive();
    const status = wasm.selftest();
    if (wasm.explain || status <= 0) return this.#check(status);
    const error = this.#refusal(status);
    const again = await LiteNet.#inFull(new Uint8Array(wasm.memory.buffer, ...this.#bytes).slice(), this.#name, error);
    try {
      await again.selfTest();
    } finally {
      again.dispose();
    }
    throw error; // the full module computes what the core does not
  }

  /** Let go of the model. Nothing works afterwards. */
  dispose() {
    if (!this.#wasm) return;
    const others = spare.get(this.#module) ?? [];
    if (others.length < SPARE) spare.set(this.#module, [...others, this.#wasm]);
    this.#wasm = null;
  }

  /** Names of the classes in the order of the outputs; null where the model has none. */
  get labels() {
    return this.metadata.labels ?? null;
  }

  /** The file's metadata, as the exporter wrote it. */
  get metadata() {
    if (!this.#metadata) {
      const wasm = this.#alive();
      const size = wasm.metadata_bytes();
      const text = new TextDecoder().decode(new Uint8Array(wasm.memory.buffer, wasm.metadata() >>> 0, size));
      try {
        this.#metadata = size ? JSON.parse(text) : {};
      } catch {
        throw new LiteNetError(`${this.#name}: the metadata is no JSON object; export the model again.`);
      }
    }
    return this.#metadata;
  }

  /** The operators, in the order they run: [{name, op, activation, shape, inputs, weightsBytes, macs, algorithm}, ...].
   * inputs: which operators' outputs each one reads, -1 being the net's input. */
  get layers() {
    if (!this.#layers) {
      const wasm = this.#alive();
      const names = this.metadata.layers ?? [];
      const writer = new Map([[0, -1]]); // of each tensor
      this.#layers = Array.from({ length: wasm.operators() }, (_, i) => {
        const op = this.#string(wasm.operator_name(i));
        const inputs = Array.from({ length: wasm.operator_inputs(i) }, (_, k) => writer.get(wasm.operator_input(i, k)));
        writer.set(wasm.operator_output(i), i);
        return {
          name: names[i] ?? `${op}${i}`,
          op,
          activation: this.#string(wasm.operator_activation(i)),
          shape: this.#shape(wasm.operator_output(i)),
          inputs,
          weightsBytes: wasm.operator_weights_bytes(i),
          macs: wasm.operator_macs(i),
          algorithm: this.#string(wasm.operator_algorithm(i)),
        };
      });
    }
    return this.#layers;
  }

  /** An operator as the file has it (FORMAT.md): its packed weights as Float32Array, or null where they are halves or
   * there are none, and its 32 bytes of attributes as a DataView. */
  record(index) {
    const wasm = this.#alive();
    const size = wasm.operator_weights_bytes(index);
    const bytes = new Uint8Array(wasm.memory.buffer, wasm.operator_attributes(index) >>> 0, 32).slice();
    const weights = size && wasm.operator_weight_dtype(index) === 0 ? this.#floats(wasm.operator_weights(index), size / 4) : null;
    return { weights, attributes: new DataView(bytes.buffer) };
  }

  /** Sizes and counts. inputShape is (height, width, channels) for pictures. */
  get info() {
    const wasm = this.#alive();
    return {
      name: this.metadata.name ?? null,
      format: `${wasm.format_major()}.${wasm.format_minor()}`,
      inputShape: this.#shape(0),
      inputElements: wasm.input_elements(),
      outputs: this.#outputs(),
      picture: wasm.picture_color() !== 0,
      weightsBytes: wasm.weights_bytes(),
      arenaBytes: wasm.arena_bytes(),
      memoryBytes: wasm.memory.buffer.byteLength,
      operators: wasm.operators(),
      macs: this.layers.reduce((sum, layer) => sum + layer.macs, 0),
      kernels: this.#string(wasm.kernels()),
    };
  }

  /** Put an input in its place; run, predict and trace do it themselves. */
  setInput(input) {
    const wasm = this.#alive();
    const want = wasm.input_elements();
    if (input instanceof Float32Array || Array.isArray(input)) {
      if (input.length !== want)
        throw new LiteNetError(
          `${this.#name}: the input has ${input.length} values; expected ${want} (${this.#shape(0).join(" x ")}), normalised.`
        );
      new Float32Array(wasm.memory.buffer, wasm.input() >>> 0, want).set(input);
      return;
    }
    if (wasm.picture_color() === 0)
      throw new LiteNetError(`${this.#name} takes ${want} values, not a picture; give a Float32Array.`);
    const { data, width, height } = pixelsOf(input, this.#name);
    const channels = data.length / (width * height);
    if (width > MOST_SIDE || height > MOST_SIDE)
      throw new LiteNetError(`${this.#name}: a picture of ${width} x ${height}; expected at most ${MOST_SIDE} rows and columns. Shrink it.`);
    if (!LAYOUT[channels])
      throw new LiteNetError(
        `${this.#name}: a picture of ${width} x ${height} with ${data.length} bytes; expected 1 to 4 bytes for each pixel.`
      );
    const at = wasm.picture(data.length) >>> 0;
    if (!at) throw new LiteNetError(`${this.#name}: no memory is left for a picture of ${width} x ${height}.`);
    new Uint8Array(wasm.memory.buffer, at, data.length).set(data);
    this.#check(wasm.preprocess(height, width, LAYOUT[channels]));
  }

  #alive() {
    if (!this.#wasm) throw new LiteNetError(`${this.#name}: this model has been disposed of; load it again.`);
    return this.#wasm;
  }

  #check(status) {
    if (status !== 0) throw this.#refusal(status);
  }

  // The runtime refuses values that are no numbers; which one it was is looked for only then.
  #ran(status) {
    if (status === 0) return;
    const x = this.#floats(this.#wasm.input(), this.#wasm.input_elements());
    const wrong = x.findIndex((v) => !Number.isFinite(v));
    if (wrong < 0) throw this.#refusal(status);
    throw new LiteNetError(`${this.#name}: value ${wrong} of the input is ${x[wrong]}; give finite numbers.`, status);
  }

  #refusal(status) {
    if (status < 0) return new LiteNetError(`${this.#name}: there is not enough memory here to run this model.`);
    const wasm = this.#wasm;
    if (!wasm.explain)
      return new LiteNetError(
        `${this.#name}: refused with status ${status} of litenet.h; litenet-full.wasm, beside litenet.js, could say more.`,
        status
      );
    const size = wasm.explain();
    const sentence = new TextDecoder().decode(new Uint8Array(wasm.memory.buffer, wasm.text() >>> 0, size));
    return new LiteNetError(`${this.#name}: ${size ? sentence : this.#string(wasm.status_text(status))}`, status);
  }

  #floats(at, count) {
    return new Float32Array(this.#wasm.memory.buffer, at >>> 0, count).slice();
  }

  #string(at) {
    const bytes = new Uint8Array(this.#wasm.memory.buffer);
    const start = at >>> 0;
    return new TextDecoder().decode(bytes.subarray(start, bytes.indexOf(0, start)));
  }

  #shape(tensor) {
    return Array.from({ length: this.#wasm.tensor_rank(tensor) }, (_, axis) => this.#wasm.tensor_dim(tensor, axis));
  }

  #outputs() {
    const wasm = this.#wasm;
    const shapes = Array.from({ length: wasm.tensors() }, (_, i) => i).filter((i) => wasm.tensor_is_output(i)).map((i) => this.#shape(i));
    const names = this.metadata.outputs ?? [];
    return shapes.map((shape, i) => ({ name: names.length === shapes.length ? names[i] : `output${i}`, shape }));
  }

  #answer(top, milliseconds) {
    const wasm = this.#wasm;
    const values = this.#floats(wasm.output(), wasm.output_elements());
    if (!values.every(Number.isFinite))
      throw new LiteNetError(`${this.#name}: the net's answer is not a finite number; model.selfTest() tells more.`);
    const outputs = this.#outputs();
    if (outputs.length > 1) {
      let at = 0;
      const named = {};
      for (const { name, shape } of outputs) named[name] = { shape, values: values.slice(at, (at += product(shape))) };
      return { outputs: named, milliseconds };
    }
    const p = probabilities(values, outputs[0].shape, this.metadata, this.layers.at(-1));
    if (!p) return { values, milliseconds };
    const label = (index) => String(this.labels?.[index] ?? index);
    const best = Array.from(p, (probability, index) => ({ label: label(index), index, probability }))
      .sort((a, b) => b.probability - a.probability || a.index - b.index)
      .slice(0, top);
    return { ...best[0], top: best, values, milliseconds };
  }
}

// The values as class probabilities; null if the net gives values. The rules are those of `edge-infer`.
function probabilities(y, shape, metadata, last) {
  if (metadata.answer === "values" || metadata.loss === "mse" || shape.length !== 1) return null;
  const sigmoid = last.op === "sigmoid" || last.activation === "sigmoid";
  if (metadata.loss === "bce") {
    const p = sigmoid ? Float64Array.from(y) : Float64Array.from(y, (v) => 1 / (1 + Math.exp(-v)));
    return p.length > 1 ? p : Float64Array.of(1 - p[0], p[0]);
  }
  if (y.length === 1) return null;
  if (last.op === "softmax" || sigmoid) return Float64Array.from(y);
  const most = Math.max(...y);
  const e = Float64Array.from(y, (v) => Math.exp(v - most));
  const sum = e.reduce((a, b) => a + b);
  return e.map((v) => v / sum);
}

// Bytes of a picture, its width and its height. A picture from the page is drawn once, at its own size.
function pixelsOf(picture, name) {
  if (picture?.data?.length !== undefined) return picture; // ImageData, and what looks like it
  const width = picture?.naturalWidth || picture?.videoWidth || picture?.displayWidth || picture?.width;
  const height = picture?.naturalHeight || picture?.videoHeight || picture?.displayHeight || picture?.height;
  if (!width || !height)
    throw new LiteNetError(
      `${name}: ${picture === null ? "null" : picture?.constructor?.name ?? typeof picture} is no picture, or not loaded yet; ` +
        "expected values, ImageData, an image, a video, a canvas or {data, width, height}."
    );
  const canvas = typeof OffscreenCanvas === "function" ? new OffscreenCanvas(width, height) : Object.assign(document.createElement("canvas"), { width, height });
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.drawImage(picture, 0, 0, width, height);
  return context.getImageData(0, 0, width, height);
}

function product(shape) {
  return shape.reduce((a, b) => a * b, 1);
}

function nameOf(source) {
  if (typeof source === "string" || source instanceof URL) return String(source).split(/[?#]/)[0].split("/").at(-1) || "model";
  return source?.name || (source?.url ? nameOf(source.url) : "model");
}

async function instance(module) {
  return spare.get(module)?.pop() ?? (await WebAssembly.instantiate(module)).exports;
}

async function compile(source) {
  if (!/^https?:/.test(source)) return WebAssembly.compile(await read(source, nameOf(source)));
  const response = await fetched(source);
  if (response.headers.get("content-type") === "application/wasm") return WebAssembly.compileStreaming(response);
  return WebAssembly.compile(await response.arrayBuffer());
}

// The bytes of an address, a response, a blob or a buffer.
// The answer of a server: of an address, or one that is there.
async function fetched(source, signal) {
  let response = source;
  if (!(source instanceof Response))
    try {
      response = await fetch(source, { signal });
    } catch (error) {
      if (signal?.aborted) throw error;
      throw new LiteNetError(`${source} cannot be fetched (${error.message}); check the address, and that its server allows it.`);
    }
  if (response.ok) return response;
  throw new LiteNetError(`${response.url || source}: the server answers ${response.status} ${response.statusText}; check the address.`);
}

async function read(source, name, onProgress, signal) {
  if (source instanceof ArrayBuffer) return new Uint8Array(source);
  if (ArrayBuffer.isView(source)) return new Uint8Array(source.buffer, source.byteOffset, source.byteLength);
  if (typeof Blob === "function" && source instanceof Blob) return new Uint8Array(await source.arrayBuffer());
  if (typeof source !== "string" && !(source instanceof URL) && !(source instanceof Response))
    throw new LiteNetError(`${name}: a model is an address or bytes; found ${source === null ? "null" : typeof source}.`);
  const address = source instanceof Response ? null : String(source);
  if (address !== null && typeof process === "object" && process.versions?.node && !/^(https?|data|blob):/.test(address)) {
    const { readFile } = await import("node:fs/promises");
    try {
      return new Uint8Array(await readFile(address.startsWith("file:") ? new URL(address) : address));
    } catch (error) {
      throw new LiteNetError(`${address} cannot be read (${error.code ?? error.message}); check the path.`);
    }
  }
  const response = await fetched(source, signal);
  if (!onProgress || !response.body) return new Uint8Array(await response.arrayBuffer());
  const total = Number(response.headers.get("content-length")) || 0;
  const parts = [];
  let loaded = 0;
  for (const reader = response.body.getReader(); ; ) {
    const { done, value } = await reader.read();
    if (done) break;
    parts.push(value);
    onProgress({ loaded: (loaded += value.length), total });
  }
  const bytes = new Uint8Array(loaded);
  let at = 0;
  for (const part of parts) {
    bytes.set(part, at);
    at += part.length;
  }
  return bytes;
}
