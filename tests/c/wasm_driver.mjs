// Runs models in a module made of wasm_driver.c:  node wasm_driver.mjs MODULE JOBS RESULTS [KERNELS CHOICE]
//
// JOBS and RESULTS as in ops_driver.c. Memory that nothing has written is NaN. A model that has a golden section also
// runs its self-test, and a prepared one runs operator by operator: the output must not change.
import { readFileSync, writeFileSync } from "node:fs";

const [, , module, jobs, results, kernels, choice] = process.argv;
const { instance } = await WebAssembly.instantiate(readFileSync(module));
const c = instance.exports;
let top;

function take(bytes) { // the next block, at a multiple of 64, full of NaN
  const at = (top + 63) & ~63;
  top = at + bytes;
  const missing = top - c.memory.buffer.byteLength;
  if (missing > 0) c.memory.grow(Math.ceil(missing / 65536));
  new Uint8Array(c.memory.buffer, at, bytes).fill(0xff);
  return at;
}

function put(bytes, offset = 0) { // a block with these contents, at a multiple of 4 and no more if offset is 4
  const at = take(bytes.length + offset) + offset;
  new Uint8Array(c.memory.buffer).set(bytes, at);
  return at;
}

const given = readFileSync(jobs);
const found = [];
const word = (v) => found.push(Buffer.from(new Int32Array([v]).buffer));
for (let at = 0; at < given.length; ) {
  top = c.heap();
  const bytes = given.readUInt32LE(at);
  const bin = put(given.subarray(at + 4, at + 4 + bytes));
  at += 4 + bytes;
  const n = given.readUInt32LE(at);
  const x = put(given.subarray(at + 4, at + 4 + n), 4);
  at += 4 + n;
  let status = c.open_model(bin, bytes), y = Buffer.alloc(0), operators = 0;
  if (status === 0) {
    if (c.inputs() !== n) throw new Error("the input has another size");
    if (kernels !== undefined) {
      const size = c.plan_bytes(Number(kernels), Number(choice));
      if (size === 0 || c.prepare(Number(kernels), Number(choice), take(size), size)) throw new Error("not prepared");
    }
    operators = c.operators();
    const size = c.outputs();
    const once = (how) => {
      const arena = take(c.arena_bytes()), out = take(size + 4) + 4;
      status = how(arena, x, out);
      return Buffer.from(new Uint8Array(c.memory.buffer, out, size));
    };
    y = once(c.run);
    if (!once(c.run_each).equals(y)) throw new Error("operators one by one give other values");
    const test = c.selftest(take(c.arena_bytes()), take(n), take(size));
    if (test) throw new Error(`the self-test ends with status ${test}`);
  }
  word(status);
  word(c.record());
  word(operators);
  for (let i = 0; i < operators; i++) found.push(Buffer.from(new BigUint64Array([BigInt(c.macs(i))]).buffer));
  word(y.length);
  found.push(y);
}
writeFileSync(results, Buffer.concat(found));
