/** The page of the benchmark: `bench(name, lengths, runs)` gives milliseconds. */

import { loadModel, type Model } from "../src/model";

declare global {
  interface Window {
    bench(name: string, lengths: number[], runs: number): Promise<number[]>;
  }
}

/** Reads a text of a length once, by all graphs of a model. */
async function readOnce(model: Model, length: number): Promise<void> {
  const ids = Array.from({ length }, (_, i) => i % model.manifest.vocab_size);
  const { kind } = model.manifest;
  if (kind === "seq2seq") {
    const { states } = await model.encode(ids);
    await model.decode(ids, states);
    return;
  }
  await model.read(ids, 0);
  if (kind === "electra") await model.discriminate(ids);
}

/** The median milliseconds of reading a text of each length. */
window.bench = async (name, lengths, runs) => {
  const manifest = window.jaxptModels.find((each) => each.name === name)!;
  const model = await loadModel(manifest, () => {});
  const found: number[] = [];
  for (const length of lengths) {
    await readOnce(model, length); // the first run of a length takes longer
    const times: number[] = [];
    for (let i = 0; i < runs; i++) {
      const begin = performance.now();
      await readOnce(model, length);
      times.push(performance.now() - begin);
    }
    times.sort((a, b) => a - b);
    found.push(times[Math.floor(runs / 2)]);
  }
  return found;
};
