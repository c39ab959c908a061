// How TypeScript of this folder becomes one classic script, for the page and its
// benchmark.

import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import * as zlib from "node:zlib";

export const here = dirname(fileURLToPath(import.meta.url));
// The file that the page runs models with: its npm package, and its path there.
export const runtime = {
  package: "onnxruntime-web",
  path: "dist/ort-wasm-simd-threaded.wasm",
};
export const wasm = readFileSync(
  join(here, "node_modules", runtime.package, runtime.path),
);

/** The size of the runtime as a browser loads it: gzipped, as base64. */
function downloadMegabytes() {
  const size = (zlib.gzipSync(wasm, { level: 9 }).length * 4) / 3;
  return (size / 1e6).toFixed(1);
}

/** esbuild's options for a script that runs from any place, a disk too. */
export function bundleOptions(entry, outfile) {
  return {
    absWorkingDir: here,
    entryPoints: [entry],
    outfile,
    bundle: true,
    format: "iife",
    target: "es2022",
    charset: "utf8",
    legalComments: "none",
    // Given here, so that the output does not depend on tsconfig.json.
    tsconfigRaw: { compilerOptions: { jsx: "react-jsx", jsxImportSource: "preact" } },
    define: {
      // The runtime's glue asks where its module lies; a classic script has no such
      // place, and nothing is loaded from there, as the wasm's bytes are given to it.
      "import.meta.url": '"about:blank"',
      RUNTIME_BYTES: String(wasm.length),
      RUNTIME_CRC32: String(zlib.crc32 ? zlib.crc32(wasm) : slowCrc32(wasm)),
      RUNTIME_MEGABYTES: JSON.stringify(downloadMegabytes()),
    },
  };
}

/** The CRC-32 of bytes, for a Node whose zlib lacks it. */
function slowCrc32(bytes) {
  let crc = ~0;
  for (const byte of bytes) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit++) crc = (crc >>> 1) ^ (crc & 1 ? 0xedb88320 : 0);
  }
  return ~crc >>> 0;
}
