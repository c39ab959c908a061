// Copies and servers of a site.

import {
  cpSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { extname, join, normalize } from "node:path";
import { runInNewContext } from "node:vm";

const TYPES = { ".html": "text/html", ".js": "text/javascript", ".css": "text/css" };

/** A plain server of files on this machine, without any special header. */
export async function serve(folder) {
  const server = createServer((request, response) => {
    const path = new URL(request.url, "http://site").pathname;
    const file = join(folder, normalize(path === "/" ? "/index.html" : path));
    try {
      const data = readFileSync(file);
      response.writeHead(200, { "Content-Type": TYPES[extname(file)] ?? "text/plain" });
      response.end(data);
    } catch {
      response.writeHead(404).end();
    }
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  return {
    base: `http://127.0.0.1:${server.address().port}/`,
    close: () => server.close(),
  };
}

/** The size of the file behind an address of the site. */
export function sizeOf(folder, base, url) {
  const path = new URL(url).href.slice(base.length).replace(/[?#].*$/, "");
  return statSync(join(folder, decodeURIComponent(path) || "index.html")).size;
}

export function readManifests(folder) {
  const window = {};
  runInNewContext(readFileSync(join(folder, "models.js"), "utf8"), { window });
  return window.jaxptModels;
}

const ROUTES = [
  [
    "generate",
    (m) => ["causal", "prefix"].includes(m.kind) && m.writes === "left_to_right",
  ],
  ["masks", (m) => m.fills],
  ["fake", (m) => m.kind === "electra"],
  ["spans", (m) => m.kind === "seq2seq"],
  ["unmask", (m) => m.writes === "unmasking"],
];

/** A copy of the site with one damaged file, by default of a model beside others. */
export function damagedCopy(site, path = "", isMissing = false) {
  const folder = mkdtempSync(join(tmpdir(), "damaged-site-"));
  cpSync(site, folder, { recursive: true });
  const models = readManifests(site);
  const served = ROUTES.map(([route, serves]) => ({
    route,
    models: models.filter(serves),
  }));
  const place =
    served.find((each) => each.models.length > 1) ??
    served.find((each) => each.models.length);
  const model = place.models[place.models.length - 1];
  const file = join(folder, path || Object.values(model.graphs)[0].parts[0]);
  const text = readFileSync(file, "utf8");
  if (isMissing) rmSync(file);
  else damage(file, text);
  const rest = place.models.find((each) => each.name !== model.name);
  return {
    folder,
    route: place.route,
    model: model.name,
    other: rest?.name,
    remove: () => rmSync(folder, { recursive: true, force: true }),
  };
}

function damage(file, text) {
  // One letter of the text in the middle is another one.
  const middle = Math.floor(text.length / 2);
  const other = text[middle] === "A" ? "B" : "A";
  writeFileSync(file, text.slice(0, middle) + other + text.slice(middle + 1));
}
