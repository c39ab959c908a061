// What is done in each applet, and what it then shows.

import {
  expect,
  idsOf,
  optionsOf,
  probabilitiesOf,
  readyApplet,
  settled,
} from "./pages.mjs";

const section = (route) => `[data-applet=${route}]`;

async function fill(page, selector, value, route) {
  await page.fill(selector, String(value));
  await page.locator(selector).press("Tab"); // numbers are taken when they are left
  await settled(page, route);
}

async function press(page, selector, route) {
  await page.click(selector);
  await settled(page, route);
}

// Generation

async function setSliders(page, { temperature, top_k, top_p }) {
  await fill(page, "#generate-temperature-number", temperature, "generate");
  await fill(page, "#generate-top-k-number", top_k, "generate");
  await fill(page, "#generate-top-p-number", top_p, "generate");
}

async function observeNext(page, root, bars, model, settings) {
  const ids = await idsOf(page, root);
  const placed = async (when) =>
    (await probabilitiesOf(page, bars, when)).map((each) => ({
      ...each,
      position: ids.length,
    }));
  return {
    ...{ model, ids, settings },
    prompt_length: Number(await page.getAttribute(root, "data-prompt-length")),
    probabilities: await placed("after"),
    before: await placed("before"),
    text: (await page.getAttribute("#generate-text", "data-text")) ?? "",
  };
}

const SETTINGS = [
  { temperature: 1, top_k: 0, top_p: 1 },
  { temperature: 0.7, top_k: 10, top_p: 0.9 },
  { temperature: 1.5, top_k: 0, top_p: 0.6 },
  { temperature: 0, top_k: 5, top_p: 1 },
];

async function generate(page) {
  const found = [];
  const root = section("generate");
  for (const model of await optionsOf(page, "#generate-model")) {
    await page.selectOption("#generate-model", model);
    await settled(page, "generate");
    for (const settings of SETTINGS) {
      await setSliders(page, settings);
      found.push(await observeNext(page, root, "#generate-next-bars", model, settings));
    }
    await setSliders(page, { temperature: 0.9, top_k: 20, top_p: 0.95 });
    await useButtons(page, root);
    const settings = { temperature: 0.9, top_k: 20, top_p: 0.95 };
    found.push(await observeNext(page, root, "#generate-next-bars", model, settings));
    const others = (await optionsOf(page, "#generate-model")).length > 1;
    if (others) found.push(await observeBeside(page, settings));
    await writeToTheEnd(page);
  }
  await useSlider(page);
  return found;
}

async function useButtons(page, root) {
  const length = async () => (await idsOf(page, root)).length;
  const begin = await length();
  await press(page, "#generate-sample", "generate");
  await press(page, "#generate-likeliest", "generate");
  expect((await length()) <= begin + 2, "two tokens at most were added");
  await press(page, "#generate-undo", "generate");
  await press(page, "#generate-undo", "generate");
  expect((await length()) === begin, "undo takes tokens back");
  const row = page.locator("#generate-next-bars .row").nth(2);
  const token = Number(await row.getAttribute("data-take"));
  await row.click();
  await settled(page, "generate");
  const ids = await idsOf(page, root);
  expect(ids[ids.length - 1] === token, "a bar takes its token");
}

async function observeBeside(page, settings) {
  const [other] = await optionsOf(page, "#generate-beside");
  await page.selectOption("#generate-beside", other);
  await page.waitForSelector(
    "[data-beside][data-state=ready] #generate-beside-next-bars",
    {
      timeout: 60000,
    },
  );
  const bars = "#generate-beside-next-bars";
  const seen = await observeNext(page, "[data-beside]", bars, other, settings);
  await page.selectOption("#generate-beside", "");
  return { ...seen, is_beside: true };
}

async function writeToTheEnd(page) {
  for (let i = 0; i < 60; i++) {
    if (await page.locator("#generate-stop").count()) break;
    await press(page, "#generate-more", "generate");
  }
  const said = await page.locator("#generate-stop").innerText();
  expect(/ended|at most/.test(said), "the page says why the text ends");
  await press(page, "#generate-restart", "generate");
}

async function useSlider(page) {
  const slider = page.locator("#generate-temperature");
  await setSliders(page, { temperature: 1, top_k: 0, top_p: 1 });
  await slider.focus();
  await slider.press("ArrowRight");
  const value = Number(await page.inputValue("#generate-temperature-number"));
  expect(Math.abs(value - 1.05) < 1e-9, `the slider moves by keys: ${value}`);
  await page.fill("#generate-prompt", "It is");
  await settled(page, "generate");
}

// Hidden words

async function masks(page) {
  const found = [];
  for (const model of await optionsOf(page, "#masks-model")) {
    await page.selectOption("#masks-model", model);
    await settled(page, "masks");
    await page.selectOption("#masks-text-example", "1");
    await settled(page, "masks");
    found.push(await observeFills(page, model));
    await press(page, "#masks-words button >> nth=0", "masks");
    found.push(await observeFills(page, model));
    for (const beside of await optionsOf(page, "#masks-beside")) {
      found.push(...(await observeLeft(page, beside)));
    }
    await useAttention(page, "masks-attention");
    await press(page, "#masks-clear", "masks");
    await page.fill("#masks-text", "The state of the union is good.");
    await settled(page, "masks");
    found.push(await observeFills(page, model));
  }
  return found;
}

async function observeFills(page, model) {
  const ids = await idsOf(page, section("masks"));
  return {
    model,
    ids,
    settings: { prefix_length: ids.length },
    probabilities: await probabilitiesOf(page, "#masks-guesses > li", "fill"),
    true_tokens: await probabilitiesOf(page, "#masks-guesses > li", "true"),
    text: await page.inputValue("#masks-text"),
  };
}

/** The predictions of a left-to-right model in the places of the hidden tokens. */
async function observeLeft(page, model) {
  await page.selectOption("#masks-beside", model);
  await page.waitForSelector("#masks-guesses[data-beside-state=ready]", {
    timeout: 60000,
  });
  const left = `#masks-guesses [data-from-left="${model}"]`;
  const seen = {
    ...{ model, is_beside: true, settings: { prefix_length: 0 } },
    ids: await idsOf(page, "#masks-guesses", "data-beside-ids"),
    probabilities: await probabilitiesOf(page, left, "fill"),
    true_tokens: await probabilitiesOf(page, left, "true"),
    text: await page.inputValue("#masks-text"),
  };
  await page.selectOption("#masks-beside", "");
  await settled(page, "masks");
  return [seen];
}

async function useAttention(page, id) {
  for (const name of ["layer", "head"]) {
    const options = await optionsOf(page, `#${id}-${name}`);
    await page.selectOption(`#${id}-${name}`, options[options.length - 1]);
    await page.selectOption(`#${id}-${name}`, options[0]);
  }
  const strip = page.locator(`#${id}-strip button, #${id}-written button`);
  await strip.first().focus();
  const number = await strip.count();
  await page.keyboard.press("End");
  const looking = await strip.nth(number - 1).getAttribute("class");
  expect(looking.includes("looking"), "the last token is reached by a key");
  expect(
    await page.locator(".attention:visible .looks").innerText(),
    "it looks somewhere",
  );
  const box = await page.locator(`#${id}-map`).boundingBox();
  expect(box.width > 90 && box.height > 90, "there is a heat map");
}

// Spot the fake

async function fake(page) {
  const found = [];
  for (const model of await optionsOf(page, "#fake-model")) {
    await page.selectOption("#fake-model", model);
    await settled(page, "fake");
    for (const seed of [7, 8]) {
      await fill(page, "#fake-seed", seed, "fake");
      found.push(await playRound(page, model, seed));
    }
    await page.selectOption("#fake-text-example", "2");
    await settled(page, "fake");
    await page.locator("#fake-own summary").click();
    await page.fill("#fake-text", "The state of the union is good.");
    await settled(page, "fake");
    await press(page, "#fake-new", "fake");
    await page.locator("#fake-own summary").click();
    await page.locator("#fake-score").waitFor();
    await page.click("#fake-forget");
    await page.locator("#fake-score").waitFor({ state: "detached" });
  }
  return found;
}

async function playRound(page, model, seed) {
  const tokens = page.locator("#fake-tokens button");
  await tokens.nth(0).focus();
  await page.keyboard.press("ArrowRight");
  await page.keyboard.press("Space");
  expect(
    (await tokens.nth(1).getAttribute("aria-pressed")) === "true",
    "a token is marked",
  );
  await press(page, "#fake-show", "fake");
  const fakes = await page
    .locator("#fake-verdict > li")
    .evaluateAll((all) => all.map((each) => each.dataset.fake === "true"));
  return {
    model,
    ids: await idsOf(page, section("fake")),
    generator_ids: await idsOf(page, section("fake"), "data-generator-ids"),
    settings: { seed },
    fakes,
    probabilities: await probabilitiesOf(page, "#fake-verdict", "fake"),
    text: await page.inputValue("#fake-text"),
  };
}

// Gaps

async function spans(page) {
  const found = [];
  for (const model of await optionsOf(page, "#spans-model")) {
    await page.selectOption("#spans-model", model);
    await settled(page, "spans");
    await page.selectOption("#spans-text-example", "1");
    await settled(page, "spans");
    await press(page, "#spans-words button >> nth=0", "spans");
    await press(page, "#spans-next", "spans");
    expect(
      (await page.locator("#spans-steps > li").count()) === 1,
      "one token is written",
    );
    await press(page, "#spans-run", "spans");
    found.push(await observeSpans(page, model));
    await useAttention(page, "spans-attention");
    await press(page, "#spans-restart", "spans");
    await page.fill("#spans-text", "The state of the union is good.");
    await settled(page, "spans");
    await press(page, "#spans-run", "spans");
    found.push(await observeSpans(page, model));
  }
  return found;
}

async function observeSpans(page, model) {
  return {
    model,
    ids: await idsOf(page, section("spans")),
    decoder_ids: await idsOf(page, section("spans"), "data-decoder-ids"),
    settings: {},
    probabilities: await probabilitiesOf(page, "#spans-steps", "step"),
    text: await page.getAttribute("#spans-result", "data-text"),
  };
}

// Any order

async function unmask(page) {
  const found = [];
  for (const model of await optionsOf(page, "#unmask-model")) {
    await page.selectOption("#unmask-model", model);
    await settled(page, "unmask");
    for (const [tokens, steps] of [
      [12, 5],
      [8, 8],
    ]) {
      await fill(page, "#unmask-temperature-number", 0, "unmask");
      await fill(page, "#unmask-tokens", tokens, "unmask");
      await fill(page, "#unmask-steps", steps, "unmask");
      await press(page, "#unmask-step", "unmask");
      await press(page, "#unmask-run", "unmask");
      found.push(await observeUnmask(page, model, { temperature: 0, tokens, steps }));
      await press(page, "#unmask-restart", "unmask");
    }
    await fill(page, "#unmask-temperature-number", 1, "unmask");
    await page.fill("#unmask-prompt", "It is");
    await settled(page, "unmask");
    await press(page, "#unmask-run", "unmask");
    await press(page, "#unmask-restart", "unmask");
  }
  return found;
}

async function observeUnmask(page, model, settings) {
  return {
    ...{ model, settings },
    ids: await idsOf(page, section("unmask")),
    prompt_ids: await idsOf(page, section("unmask"), "data-prompt-ids"),
    probabilities: await probabilitiesOf(page, "#unmask-text", "settled"),
    text: await page.getAttribute("#unmask-result", "data-text"),
  };
}

/** Brings an applet to where there is most to see. */
async function prepare(page, route) {
  if (route === "generate") {
    await setSliders(page, { temperature: 0.8, top_k: 12, top_p: 0.85 });
    await press(page, "#generate-more", route);
    if (await page.locator("#generate-stop").count())
      await press(page, "#generate-undo", route);
    if (await page.locator("#generate-beside").count()) {
      await page.selectOption("#generate-beside", { index: 1 });
      await page.waitForSelector("[data-beside][data-state=ready]", { timeout: 60000 });
    }
  }
  if (route === "fake") {
    await page.locator("#fake-tokens button").nth(3).click();
    await press(page, "#fake-show", route);
  }
  if (route === "spans") await press(page, "#spans-run", route);
  if (route === "unmask") {
    for (let i = 0; i < 6; i++) await press(page, "#unmask-step", route);
  }
  if (route === "masks") await readyApplet(page, route);
}

export const WALKS = { generate, masks, fake, spans, unmask, prepare };
