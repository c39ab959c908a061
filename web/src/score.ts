/** The score of player and model, kept in the browser where it lets a page keep things. */

export interface Tally {
  hits: number; // fakes that were marked
  alarms: number; // originals that were marked
  right: number; // tokens that were judged rightly
}

export interface Score {
  rounds: number;
  tokens: number;
  fakes: number;
  player: Tally;
  model: Tally;
}

const KEY = "jaxpt-applet-score";
const none: Tally = { hits: 0, alarms: 0, right: 0 };
export const NO_SCORE: Score = {
  rounds: 0,
  tokens: 0,
  fakes: 0,
  player: none,
  model: none,
};

/** How well marks tell fakes from originals. */
export function judge(isFake: readonly boolean[], isMarked: readonly boolean[]): Tally {
  const tally = { ...none };
  isFake.forEach((fake, i) => {
    if (fake && isMarked[i]) tally.hits++;
    if (!fake && isMarked[i]) tally.alarms++;
    if (fake === isMarked[i]) tally.right++;
  });
  return tally;
}

export function addRound(
  score: Score,
  isFake: readonly boolean[],
  player: readonly boolean[],
  model: readonly boolean[],
): Score {
  return {
    rounds: score.rounds + 1,
    tokens: score.tokens + isFake.length,
    fakes: score.fakes + isFake.filter(Boolean).length,
    player: add(score.player, judge(isFake, player)),
    model: add(score.model, judge(isFake, model)),
  };
}

function add(one: Tally, other: Tally): Tally {
  return {
    hits: one.hits + other.hits,
    alarms: one.alarms + other.alarms,
    right: one.right + other.right,
  };
}

// A browser may refuse to keep anything, above all for a page opened from a disk.
export function readScore(): Score {
  try {
    const text = localStorage.getItem(KEY);
    const found = text ? JSON.parse(text) : null;
    return found?.player && found?.model ? found : NO_SCORE;
  } catch {
    return NO_SCORE;
  }
}

export function keepScore(score: Score): void {
  try {
    localStorage.setItem(KEY, JSON.stringify(score));
  } catch {
    // It is still shown until the page is closed.
  }
}
