// Bundles the tests, which are TypeScript, and runs them with Node's test runner.

import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const out = mkdtempSync(join(tmpdir(), "applet-tests-"));
const names = readdirSync(here).filter((name) => name.endsWith(".test.ts"));
await build({
  entryPoints: names.map((name) => join(here, name)),
  outdir: out,
  outExtension: { ".js": ".mjs" },
  bundle: true,
  format: "esm",
  platform: "node",
});
const files = names.map((name) => join(out, name.replace(/ts$/, "mjs")));
const { status } = spawnSync(process.execPath, ["--test", ...files], {
  stdio: "inherit",
});
rmSync(out, { recursive: true, force: true });
process.exit(status ?? 1);
