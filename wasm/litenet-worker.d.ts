import type { Answer, Info, Input, Layer, LoadOptions, Source, Traced } from "./litenet.js";

/** As LiteNet, in a worker of its own: every call gives a promise. */
export class WorkerModel {
  private constructor();
  static load(source: Source, options?: Pick<LoadOptions, "onProgress">): Promise<WorkerModel>;
  readonly labels: string[] | null;
  readonly metadata: Record<string, unknown>;
  readonly layers: Layer[];
  readonly info: Info;
  predict(input: Input, options?: { top?: number }): Promise<Answer>;
  trace(input: Input): Promise<Traced[]>;
  selfTest(): Promise<void>;
  dispose(): void;
}
