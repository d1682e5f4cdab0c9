// What test_web_module.py asks of litenet.js, under Node: a list of jobs on standard input, a list of findings on standard output.
//
//     {model, do: "predict" | "run" | "prepare" | "trace" | "selfTest" | "info" | "lives", input | picture, module, times}
// Bytes and numbers travel in base64; an error is found as {error, status}.
import { LiteNet } from "../wasm/litenet.js";

const bytes = (text) => Uint8Array.from(Buffer.from(text, "base64"));
const floats = (text) => new Float32Array(bytes(text).buffer);
const plain = (value) =>
  value instanceof Float32Array
    ? Buffer.from(value.buffer, value.byteOffset, value.byteLength).toString("base64")
    : Array.isArray(value)
      ? value.map(plain)
      : value && typeof value === "object"
        ? Object.fromEntries(Object.entries(value).map(([key, one]) => [key, plain(one)]))
        : value;

async function perform(job) {
  if (job.module) await LiteNet.useModule(new URL(`../wasm/${job.module}`, import.meta.url));
  const source = job.address ?? bytes(job.model);
  const input = job.picture ? { ...job.picture, data: bytes(job.picture.data) } : job.input && floats(job.input);
  if (job.do === "lives") {
    let most = 0;
    for (let i = 0; i < job.times; i++) {
      const model = await LiteNet.load(source);
      most = Math.max(most, model.info.memoryBytes);
      model.run(input);
      model.dispose();
    }
    return { most, resident: process.memoryUsage().rss };
  }
  const model = await LiteNet.load(source);
  try {
    if (job.do === "info") return { info: model.info, layers: model.layers, labels: model.labels };
    if (job.do === "disposed") {
      model.dispose();
      return model.run(input);
    }
    return await model[job.do](input, job.options);
  } finally {
    model.dispose();
  }
}

let text = "";
for await (const part of process.stdin) text += part;
const found = [];
for (const job of JSON.parse(text)) {
  try {
    found.push(plain(await perform(job)) ?? null);
  } catch (error) {
    found.push({ error: error.message, status: error.status ?? null, kind: error.name });
  }
}
process.stdout.write(JSON.stringify(found));
