/** A picture of any size, with 1 (grey), 2 (grey, alpha), 3 (RGB) or 4 (RGBA) bytes for each pixel. */
export interface Pixels {
  data: Uint8Array | Uint8ClampedArray;
  width: number;
  height: number;
}

export type Picture = ImageData | CanvasImageSource | Pixels;
/** Normalised values in the order of the input's shape, or a picture. */
export type Input = Float32Array | number[] | Picture;
/** Where a model lies, or its bytes. */
export type Source = string | URL | ArrayBuffer | ArrayBufferView | Blob | Response;

export interface Class {
  label: string;
  index: number;
  probability: number;
}

/** Classes have label to top; several outputs have outputs instead of values. */
export interface Answer extends Partial<Class> {
  top?: Class[];
  values?: Float32Array;
  outputs?: Record<string, { shape: number[]; values: Float32Array }>;
  milliseconds: number;
}

export interface Layer {
  name: string;
  op: string;
  activation: string;
  /** Of the output: (height, width, channels) or (values). */
  shape: number[];
  /** Index of the operator each input comes from; -1: the net's input. */
  inputs: number[];
  weightsBytes: number;
  macs: number;
  algorithm: string;
}

export interface Traced {
  name: string;
  op: string;
  activation: string;
  shape: number[];
  values: Float32Array;
}

export interface Info {
  name: string | null;
  format: string;
  inputShape: number[];
  inputElements: number;
  outputs: { name: string; shape: number[] }[];
  /** Whether the input is a picture. */
  picture: boolean;
  weightsBytes: number;
  arenaBytes: number;
  memoryBytes: number;
  operators: number;
  macs: number;
  kernels: string;
}

export interface LoadOptions {
  /** Bytes so far, and in all; total is 0 where the server does not say. */
  onProgress?: (progress: { loaded: number; total: number }) => void;
  signal?: AbortSignal;
}

/** What goes wrong, in one sentence: where, what was found, what was expected, what to do. */
export class LiteNetError extends Error {
  constructor(sentence: string, status?: number | null);
  /** The runtime's ln_status, where it refused. */
  readonly status: number | null;
}

export class LiteNet {
  private constructor();
  static load(source: Source, options?: LoadOptions): Promise<LiteNet>;
  /** Compute with another module than the one beside litenet.js. */
  static useModule(module: WebAssembly.Module | Source): Promise<WebAssembly.Module>;
  readonly labels: string[] | null;
  readonly metadata: Record<string, unknown>;
  readonly layers: Layer[];
  readonly info: Info;
  predict(input: Input, options?: { top?: number }): Answer;
  /** An operator's packed weights (null: halves, or none) and its attributes, as FORMAT.md has them. */
  record(index: number): { weights: Float32Array | null; attributes: DataView };
  /** The values of all outputs, one after another. */
  run(input: Input): Float32Array;
  /** A picture as the net sees it. */
  prepare(picture: Picture): Float32Array;
  setInput(input: Input): void;
  trace(input: Input): Traced[];
  /** Fails if this machine computes something else than the exporter did. */
  selfTest(): Promise<void>;
  dispose(): void;
}
