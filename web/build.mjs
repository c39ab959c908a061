// Bundles web/src into jaxpt/applets/static: what a site written by `jaxpt applet` needs
// besides the models. The output depends on nothing but the sources and the lock file.

import { createHash } from "node:crypto";
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import * as zlib from "node:zlib";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const out = join(here, "..", "jaxpt", "applets", "static");
const wasm = readFileSync(
  join(here, "node_modules/onnxruntime-web/dist/ort-wasm-simd-threaded.wasm"),
);

// Each package in the bundle, with its license.
const LICENSES = {
  preact: "node_modules/preact/LICENSE",
  "@huggingface/tokenizers": "node_modules/@huggingface/tokenizers/LICENSE",
  "onnxruntime-web": "src/onnxruntime-license.txt",
};

/** The paths of all files below a folder, in a fixed order. */
function listFiles(folder) {
  return readdirSync(folder, { withFileTypes: true })
    .flatMap((entry) => {
      const path = join(folder, entry.name);
      return entry.isDirectory() ? listFiles(path) : [path];
    })
    .sort();
}

/** The size of the runtime as a browser loads it: gzipped, as base64. */
function downloadMegabytes() {
  const size = (zlib.gzipSync(wasm, { level: 9 }).length * 4) / 3;
  return (size / 1e6).toFixed(1);
}

/** Fails when the bundle holds a package whose license is not written out. */
function checkPackages(metafile) {
  const names = Object.keys(metafile.inputs)
    .map((path) => /node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(path)?.[1])
    .filter(Boolean);
  for (const name of new Set(names)) {
    if (!(name in LICENSES)) throw new Error(`no license listed for ${name}`);
  }
}

function writeLicenses() {
  const parts = Object.entries(LICENSES).map(([name, path]) => {
    const { version } = JSON.parse(
      readFileSync(join(here, "node_modules", name, "package.json"), "utf8"),
    );
    const text = readFileSync(join(here, path), "utf8").trim();
    return `${name} ${version}\n${"=".repeat(72)}\n\n${text}\n`;
  });
  const intro =
    "app.js and ort.wasm hold the packages below, each under its own license.\n";
  writeFileSync(join(out, "LICENSES.txt"), [intro, ...parts].join("\n\n"));
}

function writeSources() {
  const own = ["build.mjs", "package-lock.json", "package.json"];
  const paths = [...own.map((name) => join(here, name)), ...listFiles(join(here, "src"))];
  const files = Object.fromEntries(
    paths.map((path) => [
      relative(here, path).replaceAll("\\", "/"),
      createHash("sha256").update(readFileSync(path)).digest("hex"),
    ]),
  );
  writeFileSync(join(out, "sources.json"), JSON.stringify({ files }, null, 1) + "\n");
}

async function bundle() {
  const result = await build({
    absWorkingDir: here,
    entryPoints: ["src/main.tsx"],
    outfile: join(out, "app.js"),
    bundle: true,
    minify: true,
    format: "iife",
    target: "es2022",
    charset: "utf8",
    legalComments: "none",
    metafile: true,
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
  });
  checkPackages(result.metafile);
  await build({
    absWorkingDir: here,
    entryPoints: ["src/style.css"],
    outfile: join(out, "style.css"),
    minify: true,
    legalComments: "none",
  });
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

mkdirSync(out, { recursive: true });
await bundle();
writeFileSync(join(out, "ort.wasm"), wasm);
writeFileSync(join(out, "index.html"), readFileSync(join(here, "src/index.html")));
writeLicenses();
writeSources();
