// Models in a worker, so that the page stays smooth. This file is both sides: the page imports WorkerModel from it, and
// the worker that WorkerModel starts runs it.
//
//     import { WorkerModel } from "./litenet-worker.js";
//     const model = await WorkerModel.load("mnist_cnn.bin");
//     const answer = await model.predict(canvas);
import { LiteNet, LiteNetError } from "./litenet.js";

const inWorker = typeof WorkerGlobalScope === "function" && globalThis instanceof WorkerGlobalScope;

/** As LiteNet, but every call gives a promise. Each model has a worker of its own. */
export class WorkerModel {
  #worker;
  #waiting = new Map();
  #calls = 0;
  #onProgress;

  static async load(source, { onProgress } = {}) {
    const model = new WorkerModel();
    model.#onProgress = onProgress;
    const given = typeof source === "string" || source instanceof URL ? String(new URL(source, globalThis.location?.href)) : source;
    try {
      Object.assign(model, await model.#call("load", given, Boolean(onProgress)));
    } catch (error) {
      model.dispose();
      throw error;
    }
    return model;
  }

  /** @private use WorkerModel.load */
  constructor() {
    this.#worker = new Worker(import.meta.url, { type: "module" });
    this.#worker.onmessage = ({ data }) => {
      if (data.progress) return this.#onProgress(data.progress);
      const { resolve, reject } = this.#waiting.get(data.call);
      this.#waiting.delete(data.call);
      if (data.error) reject(new LiteNetError(data.error.message, data.error.status));
      else resolve(data.found);
    };
    this.#worker.onerror = (event) => {
      for (const { reject } of this.#waiting.values())
        reject(new LiteNetError(`The worker of this model failed (${event.message ?? "it could not be started"}).`));
      this.#waiting.clear();
    };
  }

  /** As LiteNet.predict. A picture from the page is copied to the worker; an ImageBitmap is handed over, and gone here. */
  async predict(input, options) {
    return this.#call("predict", await portable(input), options);
  }

  async trace(input) {
    return this.#call("trace", await portable(input));
  }

  async selfTest() {
    return this.#call("selfTest");
  }

  /** Ends the worker; calls that still run are refused. */
  dispose() {
    this.#worker?.terminate();
    this.#worker = null;
    for (const { reject } of this.#waiting.values()) reject(new LiteNetError("This model has been disposed of; load it again."));
    this.#waiting.clear();
  }

  #call(method, ...args) {
    if (!this.#worker) return Promise.reject(new LiteNetError("This model has been disposed of; load it again."));
    const call = this.#calls++;
    const transfer = args.filter((a) => typeof ImageBitmap === "function" && a instanceof ImageBitmap);
    return new Promise((resolve, reject) => {
      this.#waiting.set(call, { resolve, reject });
      this.#worker.postMessage({ call, method, args }, transfer);
    });
  }
}

// What can be sent to a worker: elements of the page cannot.
async function portable(input) {
  const element = typeof HTMLElement === "function" && input instanceof HTMLElement;
  if (!element) return input;
  try {
    return await createImageBitmap(input);
  } catch {
    return input.getContext ? input.getContext("2d").getImageData(0, 0, input.width, input.height) : Promise.reject(
      new LiteNetError("The picture is not loaded yet, or is none; wait for its load event.")
    );
  }
}

let model = null;

async function answer({ data: { call, method, args } }) {
  try {
    let found;
    if (method === "load") {
      const [source, progress] = args;
      const onProgress = progress ? (seen) => postMessage({ progress: seen }) : undefined;
      model = await LiteNet.load(source, { onProgress });
      const { labels, metadata, layers, info } = model;
      found = { labels, metadata, layers, info };
    } else found = await model[method](...args);
    postMessage({ call, found });
  } catch (error) {
    postMessage({ call, error: { message: error.message, status: error.status ?? null } });
  }
}

if (inWorker) globalThis.onmessage = answer;
