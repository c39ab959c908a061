// How long a site's models take in Chromium: node bench.mjs SITE LENGTHS [RUNS] prints
// JSON, the median milliseconds of reading a text of each length, by model.

import { build } from "esbuild";
import { chromium } from "playwright-core";
import { bundleOptions } from "./bundle.mjs";
import { readManifests, serve } from "./e2e/sites.mjs";

const [site, given, runs] = process.argv.slice(2);
const lengths = given.split(",").map(Number);
const made = await build({ ...bundleOptions("bench/page.ts", "app.js"), write: false });
const { base, close } = await serve(site);
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox"],
});
const found = {};
for (const { name } of readManifests(site)) {
  const page = await browser.newPage(); // its own, so that no model waits for another
  await page.route("**/app.js", (route) =>
    route.fulfill({ body: made.outputFiles[0].text, contentType: "text/javascript" }),
  );
  await page.goto(base);
  found[name] = await page.evaluate(
    ([name, lengths, runs]) => window.bench(name, lengths, runs),
    [name, lengths, Number(runs ?? 20)],
  );
  await page.close();
}
console.log(JSON.stringify(found));
await browser.close();
close();
