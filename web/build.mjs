// Bundles web/src into jaxpt/hub/applets/static: what a site written by `jaxpt applet` needs
// besides the models. The output depends on nothing but the sources and the lock file.

import { createHash } from "node:crypto";
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join, relative } from "node:path";
import { build } from "esbuild";
import { bundleOptions, here, runtime, wasm } from "./bundle.mjs";

const out = join(here, "..", "jaxpt", "hub", "applets", "static");

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
    "app.js and runtime.js hold the packages below, each under its own license.\n";
  writeFileSync(join(out, "LICENSES.txt"), [intro, ...parts].join("\n\n"));
}

/** What `jaxpt applet` downloads, and the checksums that it must have. */
function writeRuntime() {
  const lock = JSON.parse(readFileSync(join(here, "package-lock.json"), "utf8"));
  const { version, integrity } = lock.packages[`node_modules/${runtime.package}`];
  const sha256 = createHash("sha256").update(wasm).digest("hex");
  const member = `package/${runtime.path}`;
  const facts = { package: runtime.package, version, integrity, member, sha256 };
  writeFileSync(join(out, "runtime.json"), JSON.stringify(facts, null, 1) + "\n");
}

function writeSources() {
  const own = ["build.mjs", "bundle.mjs", "package-lock.json", "package.json"];
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
    ...bundleOptions("src/main.tsx", join(out, "app.js")),
    minify: true,
    metafile: true,
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

mkdirSync(out, { recursive: true });
await bundle();
writeRuntime();
writeFileSync(join(out, "index.html"), readFileSync(join(here, "src/index.html")));
writeLicenses();
writeSources();
