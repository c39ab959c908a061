// Pages of a site, and waiting for what they compute.

export const VIEWS = [
  { width: 1280, height: 900 },
  { width: 390, height: 844 },
];

/** A page of the site that can reach nothing else. */
export async function openPage(browser, base, options = {}) {
  const context = await browser.newContext({ viewport: VIEWS[0], ...options });
  const [errors, blocked, requested] = [[], [], []];
  await context.route("**/*", (route) => {
    const url = route.request().url();
    if (url.startsWith("data:") || url.startsWith("blob:")) return route.continue();
    if (!url.startsWith(base)) {
      blocked.push(url);
      return route.abort();
    }
    requested.push(url);
    return route.continue();
  });
  if (base.startsWith("file:")) await context.setOffline(true);
  const page = await context.newPage();
  page.on("console", (message) => {
    if (message.type() === "error" || message.type() === "warning")
      errors.push(message.text());
  });
  page.on("pageerror", (error) => errors.push(String(error)));
  await page.goto(`${base}index.html`);
  await page.waitForSelector("h1");
  return { page, errors, blocked, requested, close: () => context.close() };
}

/** The applets that the page shows. */
export async function routesOf(page) {
  const tabs = await page
    .locator("[role=tab]")
    .evaluateAll((all) => all.map((tab) => tab.id));
  return tabs.map((id) => id.replace("tab-", ""));
}

/** Goes to an applet and waits until it has computed what it shows. */
export async function readyApplet(page, route) {
  await page.locator(`#tab-${route}`).click();
  await settled(page, route);
}

/** Waits until an applet has computed what it shows. */
export async function settled(page, route) {
  await page.waitForTimeout(60); // for the page to take notice of what was done
  const section = `[data-applet=${route}]`;
  await page.waitForSelector(
    `${section}[data-state=ready], ${section}[data-state=error]`,
    {
      timeout: 120000,
    },
  );
  const state = await page.getAttribute(section, "data-state");
  if (state !== "ready") {
    throw new Error(
      `${route}: ${await page.locator(`${section} [role=alert]`).innerText()}`,
    );
  }
}

/** Ids of an attribute that has them separated by spaces. */
export async function idsOf(page, selector, name = "data-ids") {
  const text = (await page.getAttribute(selector, name)) ?? "";
  return text.split(" ").filter(Boolean).map(Number);
}

/** The probabilities below an element, each with its token and its place. */
export function probabilitiesOf(page, selector, when) {
  return page.locator(`${selector} [data-when="${when}"]`).evaluateAll((all) =>
    all.map((each) => ({
      position:
        each.dataset.position === undefined ? null : Number(each.dataset.position),
      token_id: Number(each.dataset.tokenId),
      probability: Number(each.dataset.probability),
    })),
  );
}

export function optionsOf(page, selector) {
  return page
    .locator(`${selector} option`)
    .evaluateAll((all) => all.map((option) => option.value).filter(Boolean));
}

export function expect(holds, what) {
  if (!holds) throw new Error(what);
}
