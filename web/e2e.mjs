// Tries a written site in Chromium: `node e2e.mjs SITE OUT.json`. Every control of every
// applet is used, from the disk and from a server of files, with all else of the network
// blocked. OUT.json holds what the page computed, for comparison with Python's numbers;
// screenshots lie beside it. The exit code is 1 if a check fails.

import { mkdirSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { chromium } from "playwright-core";
import { WALKS } from "./e2e/walks.mjs";
import { damagedCopy, serve, sizeOf } from "./e2e/sites.mjs";
import { VIEWS, openPage, readyApplet, routesOf } from "./e2e/pages.mjs";

const AXE = createRequire(import.meta.url).resolve("axe-core/axe.min.js");
const [site, out] = process.argv.slice(2);
if (!site || !out) {
  console.error("usage: node e2e.mjs SITE OUT.json");
  process.exit(2);
}
const report = { first_load: {}, observations: [], console_errors: [], checks: [] };
const folder = dirname(resolve(out));
mkdirSync(folder, { recursive: true });

function check(name, ok, detail = "") {
  report.checks.push({ name, ok: Boolean(ok), detail: String(detail) });
  if (!ok) console.error(`FAILED ${name}: ${detail}`);
}

/** Runs part of the test; what it throws is a failed check, and the rest still runs. */
async function attempt(name, task) {
  try {
    await task();
    check(name, true);
  } catch (error) {
    check(name, false, error.stack ?? error);
  }
}

/** How much a first look at the first applet loads, and how long it takes. */
async function measureFirstLoad(browser, base, via) {
  const begin = Date.now();
  const view = await openPage(browser, base);
  const route = (await routesOf(view.page))[0];
  await readyApplet(view.page, route);
  const seconds = (Date.now() - begin) / 1000;
  const shown = await view.page.locator("#loaded").getAttribute("data-seconds");
  const bytes = view.requested.reduce((sum, url) => sum + sizeOf(site, base, url), 0);
  report.first_load[via] = {
    megabytes: bytes / 1e6,
    seconds,
    seconds_of_loading_models: Number(shown),
    files: view.requested.map((url) => url.slice(base.length)),
  };
  await view.close();
}

async function walkAll(browser, base, via) {
  const view = await openPage(browser, base);
  const routes = await routesOf(view.page);
  check(`${via}: some applet is shown`, routes.length > 0, routes.join(" "));
  await attempt(`${via}: tabs by keyboard`, () => walkTabs(view.page, routes));
  for (const route of routes) {
    await attempt(`${via}: ${route}`, async () => {
      await readyApplet(view.page, route);
      const found = await WALKS[route](view.page);
      for (const each of found) report.observations.push({ via, applet: route, ...each });
      if (!found.length) throw new Error("nothing was observed");
    });
  }
  report.console_errors.push(...view.errors.map((text) => `${via}: ${text}`));
  check(
    `${via}: no request leaves the site`,
    !view.blocked.length,
    view.blocked.join(" "),
  );
  await view.close();
}

/** The arrow keys go through all tabs and around. */
async function walkTabs(page, routes) {
  await page.locator("[role=tab][aria-selected=true]").focus();
  for (let i = 1; i <= routes.length; i++) {
    await page.keyboard.press("ArrowRight");
    const route = routes[i % routes.length];
    await page.waitForSelector(`#tab-${route}[aria-selected=true]:focus`, {
      timeout: 5000,
    });
    await page.waitForSelector(`#panel-${route}:not([hidden])`, { timeout: 5000 });
  }
}

async function photograph(browser, base) {
  for (const { width, height } of VIEWS) {
    for (const colorScheme of ["light", "dark"]) {
      const look = { viewport: { width, height }, colorScheme, reducedMotion: "reduce" };
      look.bypassCSP = true; // axe is a script of its own
      const view = await openPage(browser, base, look);
      for (const route of await routesOf(view.page)) {
        await readyApplet(view.page, route);
        await WALKS.prepare(view.page, route);
        const name = `${route}-${width}-${colorScheme}`;
        await view.page.screenshot({ path: `${folder}/${name}.png`, fullPage: true });
        const excess = await view.page.evaluate(
          () => document.documentElement.scrollWidth - window.innerWidth,
        );
        check(`${name}: no horizontal scroll`, excess <= 0, `${excess} px too wide`);
      }
      await audit(view.page, `${width} ${colorScheme}`);
      report.console_errors.push(...view.errors);
      await view.close();
    }
  }
}

/** What axe-core finds wrong for those who see or use a page otherwise. */
async function audit(page, look) {
  for (const route of await routesOf(page)) {
    await readyApplet(page, route);
    if (!(await page.evaluate(() => "axe" in window)))
      await page.addScriptTag({ path: AXE });
    const { violations } = await page.evaluate(() => window.axe.run(document, { preload: false }));
    const told = violations.map(
      ({ id, nodes }) => `${id}: ${nodes.map((node) => node.target).join(", ")}`,
    );
    check(`${route} ${look}: axe finds nothing`, !told.length, told.join("\n"));
  }
}

/** A damaged model is told of, and the others work on. */
async function tryDamaged(browser, what, isMissing) {
  const copy = damagedCopy(site, "", isMissing);
  const base = `${pathToFileURL(copy.folder).href}/`;
  const view = await openPage(browser, base);
  await view.page.goto(`${base}index.html#/${copy.route}`);
  await view.page.locator(`#${copy.route}-model`).selectOption(copy.model);
  const alert = view.page.locator(`#panel-${copy.route} [role=alert]`);
  await alert.waitFor({ timeout: 60000 });
  const text = await alert.innerText();
  check(`${what}: the alert names it`, text.includes(copy.model), text);
  check(`${what}: the alert says what to do`, /again/.test(text), text);
  const state = await view.page.getAttribute(`[data-applet=${copy.route}]`, "data-state");
  check(`${what}: the state is error`, state === "error", state);
  if (copy.other) {
    await view.page.locator(`#${copy.route}-model`).selectOption(copy.other);
    await readyApplet(view.page, copy.route);
    check(`${what}: another one still works`, true);
  }
  await view.close();
  copy.remove();
}

/** Without the runtime nothing runs, but the page says so. */
async function tryWithoutRuntime(browser) {
  const copy = damagedCopy(site, "runtime.js");
  const view = await openPage(browser, `${pathToFileURL(copy.folder).href}/`);
  const alert = view.page.locator("main [role=alert]").first();
  await alert.waitFor({ timeout: 60000 });
  check("a damaged runtime: an alert", /runtime\.js/.test(await alert.innerText()));
  await view.close();
  copy.remove();
}

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM || "/usr/bin/chromium",
  args: ["--no-sandbox"],
});
const server = await serve(site);
const fromDisk = `${pathToFileURL(resolve(site)).href}/`;
try {
  for (const [via, base] of [
    ["file", fromDisk],
    ["http", server.base],
  ]) {
    await attempt(`${via}: first load`, () => measureFirstLoad(browser, base, via));
    await attempt(`${via}: walk`, () => walkAll(browser, base, via));
  }
  await attempt("screenshots", () => photograph(browser, fromDisk));
  await attempt("a damaged model", () => tryDamaged(browser, "a damaged model", false));
  await attempt("a missing model", () => tryDamaged(browser, "a missing model", true));
  await attempt("a damaged runtime", () => tryWithoutRuntime(browser));
} finally {
  await browser.close();
  server.close();
}
check(
  "no console error",
  !report.console_errors.length,
  report.console_errors.join("\n"),
);
writeFileSync(out, JSON.stringify(report, null, 1));
const failed = report.checks.filter((each) => !each.ok);
console.log(`${report.checks.length - failed.length} checks hold, ${failed.length} fail`);
process.exit(failed.length ? 1 : 0);
