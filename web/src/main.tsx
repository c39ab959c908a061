/** The page: one tab for each applet that some model of the site can serve. */

import { render } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { ComponentChildren } from "preact";
import { Fake, canSpot } from "./applets/fake";
import { Generate, canGenerate } from "./applets/generate";
import { Masks, canFill } from "./applets/masks";
import { Spans, canInfill } from "./applets/spans";
import { Unmask, canUnmask } from "./applets/unmask";
import { useAnnouncements } from "./hooks";
import { loads } from "./model";
import type { Manifest } from "./types";

interface Applet {
  route: string;
  title: string;
  serves: (model: Manifest) => boolean;
  show: (models: Manifest[], all: Manifest[]) => ComponentChildren;
}

const APPLETS: Applet[] = [
  {
    route: "generate",
    title: "Generation",
    serves: canGenerate,
    show: (models) => <Generate models={models} />,
  },
  {
    route: "masks",
    title: "Mask explorer",
    serves: canFill,
    show: (models, all) => <Masks models={models} all={all} />,
  },
  {
    route: "fake",
    title: "Spot the fake",
    serves: canSpot,
    show: (models) => <Fake models={models} />,
  },
  {
    route: "spans",
    title: "Span infill",
    serves: canInfill,
    show: (models) => <Spans models={models} />,
  },
  {
    route: "unmask",
    title: "Unmasking",
    serves: canUnmask,
    show: (models) => <Unmask models={models} />,
  },
];

function readRoute(served: Applet[]): string {
  const wanted = location.hash.replace(/^#\//, "");
  return served.find((applet) => applet.route === wanted)?.route ?? served[0]?.route;
}

function useRoute(served: Applet[]): string {
  const [route, setRoute] = useState(() => readRoute(served));
  useEffect(() => {
    const follow = () => setRoute(readRoute(served));
    addEventListener("hashchange", follow);
    return () => removeEventListener("hashchange", follow);
  }, []);
  return route;
}

function App({ models }: { models: Manifest[] }) {
  const served = APPLETS.filter((applet) => models.some(applet.serves));
  const route = useRoute(served);
  // An applet that was seen keeps its state, hidden, when another is chosen.
  const seen = useRef(new Set<string>());
  if (route) seen.current.add(route);
  const said = useAnnouncements();
  return (
    <>
      <header>
        <h1>Language models at work</h1>
        <p>
          Small models that run in this page, on your own computer, without a network.
        </p>
      </header>
      <main>
        {served.length ? (
          <Tabs served={served} route={route} />
        ) : (
          <div class="fault" role="alert">
            This site holds no model that the page can show. Write it again with{" "}
            <code>jaxpt applet</code>.
          </div>
        )}
        {served.map((applet) => (
          <div
            key={applet.route}
            id={`panel-${applet.route}`}
            role="tabpanel"
            aria-labelledby={`tab-${applet.route}`}
            hidden={applet.route !== route}
          >
            {seen.current.has(applet.route) &&
              applet.show(models.filter(applet.serves), models)}
          </div>
        ))}
      </main>
      <Foot models={models} />
      <div class="unseen" role="status" aria-live="polite" id="announcements">
        {said}
      </div>
    </>
  );
}

const KEYS: Record<string, (place: number, number: number) => number> = {
  ArrowRight: (place, number) => (place + 1) % number,
  ArrowLeft: (place, number) => (place + number - 1) % number,
  Home: () => 0,
  End: (_, number) => number - 1,
};

function Tabs({ served, route }: { served: Applet[]; route: string }) {
  const list = useRef<HTMLDivElement>(null);
  const move = (event: KeyboardEvent) => {
    const place = served.findIndex((applet) => applet.route === route);
    const next = KEYS[event.key]?.(place, served.length);
    if (next === undefined) return;
    event.preventDefault();
    location.hash = `#/${served[next].route}`;
    list.current?.querySelectorAll<HTMLElement>("[role=tab]")[next].focus();
  };
  return (
    <div class="tabs" role="tablist" aria-label="What to try" ref={list} onKeyDown={move}>
      {served.map((applet) => (
        <button
          key={applet.route}
          type="button"
          role="tab"
          id={`tab-${applet.route}`}
          aria-controls={`panel-${applet.route}`}
          aria-selected={applet.route === route}
          tabIndex={applet.route === route ? 0 : -1}
          onClick={() => (location.hash = `#/${applet.route}`)}
        >
          {applet.title}
        </button>
      ))}
    </div>
  );
}

/** The models of the site, and what was loaded of it. */
function Foot({ models }: { models: Manifest[] }) {
  const [, refresh] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => refresh(loads.megabytes), 500);
    return () => clearInterval(timer);
  }, []);
  return (
    <footer>
      <p id="loaded" data-megabytes={loads.megabytes} data-seconds={loads.seconds}>
        {loads.megabytes > 0 &&
          `Loaded so far: ${loads.megabytes.toFixed(1)} MB in ${loads.seconds.toFixed(1)} seconds.`}
      </p>
      <details>
        <summary>The models of this page</summary>
        <div class="scroll" tabIndex={0} role="region" aria-label="Models">
          <table>
            <thead>
              <tr>
                <th scope="col">Name</th>
                <th scope="col">Objective</th>
                <th scope="col">Parameters</th>
                <th scope="col">Training steps</th>
                <th scope="col">Numbers</th>
                <th scope="col">
                  Greatest difference of a probability from the original model's
                </th>
              </tr>
            </thead>
            <tbody>
              {models.map((model) => (
                <tr key={model.name}>
                  <th scope="row">{model.name}</th>
                  <td>{model.objective}</td>
                  <td>{model.parameters.toLocaleString("en")}</td>
                  <td>{model.step.toLocaleString("en")}</td>
                  <td>{model.precision}</td>
                  <td>
                    {(model.probability_difference ?? model.difference).toExponential(1)}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      </details>
      <p>
        <a href="LICENSES.txt">Licenses of the software in this page</a>
      </p>
    </footer>
  );
}

render(<App models={window.jaxptModels ?? []} />, document.getElementById("app")!);
