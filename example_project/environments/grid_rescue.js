#!/usr/bin/env node
// grid_rescue: reach a person on a grid, lift them, carry them to the exit, report.
//
// An environment that speaks maatml.rollout_env/1: one JSON request a line on stdin, one JSON
// reply a line on stdout, in the same order; logs on stderr. It needs Node.js >= 18 alone.
//
// Families: `open` has a clear floor; `rubble` has blocked cells (#); `cracked` has cells (~) too
// that bear one crossing and are rubble afterwards, so the shortest way there can cut off the
// way back.
"use strict";

const SIZE = 6;
const FAMILIES = {
  open: { rubble: 0, cracked: 0 },
  rubble: { rubble: 11, cracked: 0 },
  cracked: { rubble: 9, cracked: 9 },
};
const MOVES = { north: [-1, 0], east: [0, 1], south: [1, 0], west: [0, -1] };
const ACTIONS = [...Object.keys(MOVES), "lift", "report"];
const SPARE_STEPS = 2;
const MAX_COUNT = 10000;

class Refusal extends Error {}

// ---- random numbers -------------------------------------------------------------------------

/** A generator of numbers in [0, 1) that depends on `text` alone (FNV-1a, then mulberry32). */
function seededRandom(text) {
  let state = 2166136261;
  for (const byte of Buffer.from(text, "utf8")) state = Math.imul(state ^ byte, 16777619);
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let bits = Math.imul(state ^ (state >>> 15), 1 | state);
    bits = (bits + Math.imul(bits ^ (bits >>> 7), 61 | bits)) ^ bits;
    return ((bits ^ (bits >>> 14)) >>> 0) / 4294967296;
  };
}

/** The numbers 0 to size - 1 in random order. */
function shuffled(size, random) {
  const order = Array.from({ length: size }, (_, index) => index);
  for (let last = size - 1; last > 0; last--) {
    const other = Math.floor(random() * (last + 1));
    [order[last], order[other]] = [order[other], order[last]];
  }
  return order;
}

// ---- the world: values { floor, width, agent, person, exit, carrying }, never changed in place ---

/** The cell that a move leads to, or null off the grid. Cells are row * width + column. */
function neighbour(world, cell, [down, right]) {
  const row = Math.floor(cell / world.width) + down;
  const column = (cell % world.width) + right;
  const inside =
    row >= 0 && column >= 0 && column < world.width && row * world.width < world.floor.length;
  return inside ? row * world.width + column : null;
}

function replaced(floor, cell, mark) {
  return floor.slice(0, cell) + mark + floor.slice(cell + 1);
}

/** The world after an action that changes it, or null where the action is masked. */
function moved(world, action) {
  if (action === "lift") {
    if (world.carrying || world.agent !== world.person) return null;
    return { ...world, carrying: true };
  }
  const to = neighbour(world, world.agent, MOVES[action]);
  if (to === null || world.floor[to] === "#") return null;
  const cracked = world.floor[world.agent] === "~";
  return {
    ...world,
    floor: cracked ? replaced(world.floor, world.agent, "#") : world.floor,
    agent: to,
    person: world.carrying ? to : world.person,
  };
}

function isRescued(world) {
  return world.carrying && world.agent === world.exit;
}

/**
 * The teacher: { steps, first } of the shortest plans, or null where no plan is left.
 *
 * Breadth first over whole worlds, so collapsed floors count. `first` is the set of first actions of
 * all shortest plans: a world hands its set to each successor one level deeper.
 */
function plan(start) {
  const keyOf = (world) => `${world.agent} ${world.carrying} ${world.floor}`;
  const seen = new Map([[keyOf(start), { world: start, depth: 0, first: new Set() }]]);
  let best = null;
  for (const { world, depth, first } of seen.values()) {
    if (best !== null && depth >= best.steps) break;
    if (isRescued(world)) {
      best ??= { steps: depth + 1, first: new Set() };
      for (const action of depth ? first : ["report"]) best.first.add(action);
      continue;
    }
    for (const action of ACTIONS) {
      const next = action === "report" ? null : moved(world, action);
      if (next === null) continue;
      const key = keyOf(next);
      if (!seen.has(key)) seen.set(key, { world: next, depth: depth + 1, first: new Set() });
      const entry = seen.get(key);
      if (entry.depth !== depth + 1) continue;
      for (const opening of depth ? first : [action]) entry.first.add(opening);
    }
  }
  return best;
}

/** Steps from each cell to `goal` over the floor as it is now; unreachable cells are absent. */
function distances(world, goal) {
  const steps = new Map([[goal, 0]]);
  for (const [cell, count] of steps) {
    for (const move of Object.values(MOVES)) {
      const next = neighbour(world, cell, move);
      if (next === null || world.floor[next] === "#" || steps.has(next)) continue;
      steps.set(next, count + 1);
    }
  }
  return steps;
}

/** Whether no plan is as short as there and back over a floor that holds. */
function cracksMatter(world, solution) {
  return solution.steps > 2 * distances(world, world.person).get(world.exit) + 2;
}

// ---- tasks ----------------------------------------------------------------------------------

function place(world, cell) {
  return [Math.floor(cell / world.width), cell % world.width];
}

function rowsOf(world) {
  return world.floor.match(new RegExp(`.{${world.width}}`, "g"));
}

/** A random world of the family, entered by its exit; it may have no plan. */
function drawWorld(family, random) {
  const { rubble, cracked } = FAMILIES[family];
  const [door, person, ...rest] = shuffled(SIZE * SIZE, random);
  let floor = ".".repeat(SIZE * SIZE);
  for (const cell of rest.slice(0, rubble)) floor = replaced(floor, cell, "#");
  for (const cell of rest.slice(rubble, rubble + cracked)) floor = replaced(floor, cell, "~");
  return { floor, width: SIZE, agent: door, person, exit: door, carrying: false };
}

/** One task; it depends on its arguments alone, so a longer list starts with the shorter one. */
function makeTask(split, seed, index) {
  const family = Object.keys(FAMILIES)[index % Object.keys(FAMILIES).length];
  const random = seededRandom(`${split} ${seed} ${index}`);
  let world;
  let solution;
  do {
    world = drawWorld(family, random);
    solution = plan(world);
  } while (solution === null || (family === "cracked" && !cracksMatter(world, solution)));
  return {
    id: `rescue-${split}-${seed}-${index}`,
    family,
    split,
    rows: rowsOf(world),
    agent: place(world, world.agent),
    person: place(world, world.person),
    exit: place(world, world.exit),
    max_steps: solution.steps + SPARE_STEPS,
  };
}

function wholeNumber(value, least, most, what) {
  if (Number.isInteger(value) && value >= least && value <= most) return value;
  throw new Refusal(
    `${what} must be a whole number from ${least} to ${most}, not ${JSON.stringify(value)}`,
  );
}

function cellIn(value, rows, what) {
  const [row, column] = Array.isArray(value) ? value : [];
  if (rows[row] !== undefined && rows[row][column] !== undefined && rows[row][column] !== "#") {
    return row * rows[0].length + column;
  }
  throw new Refusal(`task.${what} must be [row, column] of a cell without rubble`);
}

/** The world that a task describes; refuses what is not a grid with all three places on it. */
function worldOf(task) {
  const rows = task.rows;
  const isGrid =
    Array.isArray(rows) &&
    rows.length > 0 &&
    rows.every((row) => /^[.#~]+$/.test(row) && row.length === rows[0].length);
  if (!isGrid) throw new Refusal("task.rows must be strings of equal length made of . # and ~");
  return {
    floor: rows.join(""),
    width: rows[0].length,
    agent: cellIn(task.agent, rows, "agent"),
    person: cellIn(task.person, rows, "person"),
    exit: cellIn(task.exit, rows, "exit"),
    carrying: false,
  };
}

// ---- the protocol ---------------------------------------------------------------------------

const episodes = new Map();

function find(request) {
  const episode = episodes.get(request.episode);
  if (episode === undefined) {
    throw new Refusal(`unknown episode ${JSON.stringify(request.episode)}: reset it first`);
  }
  return episode;
}

function observe({ world, steps, maxSteps }) {
  return {
    agent: place(world, world.agent),
    person: place(world, world.person),
    exit: place(world, world.exit),
    carrying: world.carrying,
    rows: rowsOf(world),
    steps,
    max_steps: maxSteps,
  };
}

function hello() {
  return {
    protocol: "maatml.rollout_env/1",
    name: "grid_rescue",
    version: "1",
    capabilities: ["label", "tasks"],
  };
}

function tasks({ query = {} }) {
  const { count = 1, seed = 0, split = "test", ...unknown } = query ?? {};
  const [typo] = Object.keys(unknown);
  if (typo !== undefined) throw new Refusal(`unknown query key ${typo}: use count, seed, split`);
  if (typeof split !== "string" || !/^\w+$/.test(split)) throw new Refusal("query.split must be a word, as test or train");
  wholeNumber(count, 0, MAX_COUNT, "query.count");
  wholeNumber(seed, 0, Number.MAX_SAFE_INTEGER, "query.seed");
  return { tasks: Array.from({ length: count }, (_, index) => makeTask(split, seed, index)) };
}

function reset({ episode, task, options }) {
  if (typeof episode !== "string") throw new Refusal("reset needs an episode, a string");
  const budget = wholeNumber(task?.max_steps, 1, Number.MAX_SAFE_INTEGER, "task.max_steps");
  const extra = wholeNumber(options?.extra_steps ?? 0, 0, 1e9, "options.extra_steps");
  const state = { world: worldOf(task), steps: 0, maxSteps: budget + extra, terminal: null };
  episodes.set(episode, state);
  return { observation: observe(state) };
}

/** Each action with whether it can be done; a move also with where it leads and how far is left. */
function candidates(request) {
  const { world, terminal } = find(request);
  if (terminal !== null) return { candidates: [] };
  const left = distances(world, world.carrying ? world.exit : world.person);
  const listed = ACTIONS.map((id) => {
    const next = id === "report" ? world : moved(world, id);
    const valid = next !== null;
    if (!(id in MOVES)) return { id, valid };
    const to = valid ? place(world, next.agent) : null;
    return { id, valid, to, distance: valid ? (left.get(next.agent) ?? null) : null };
  });
  return { candidates: listed };
}

function label(request) {
  const { world, steps, maxSteps, terminal } = find(request);
  if (terminal !== null) return { valid_ids: null, reason: "ended" };
  const solution = plan(world);
  if (solution === null) return { valid_ids: null, reason: "cut_off" };
  if (solution.steps > maxSteps - steps) return { valid_ids: null, reason: "too_late" };
  return { valid_ids: ACTIONS.filter((id) => solution.first.has(id)), reason: null };
}

function step(request) {
  const episode = find(request);
  if (episode.terminal !== null) {
    throw new Refusal(`episode ${request.episode} has ended: ${episode.terminal}`);
  }
  const isReport = request.id === "report";
  const known = ACTIONS.includes(request.id);
  const next = isReport ? episode.world : known ? moved(episode.world, request.id) : null;
  if (next === null) {
    return { observation: observe(episode), applied: false, terminal: null, reward: 0 };
  }
  episode.world = next;
  episode.steps += 1;
  if (isReport) episode.terminal = isRescued(next) ? "success" : "false_report";
  else if (episode.steps >= episode.maxSteps) episode.terminal = "exhausted";
  const reward = episode.terminal === "success" ? 1 : 0;
  return { observation: observe(episode), applied: true, terminal: episode.terminal, reward };
}

/** The verdict, from the world itself: a report of success is worth nothing here. */
function verify(request) {
  const { world, steps, terminal } = find(request);
  const success = terminal === "success" && isRescued(world);
  const detail = { steps, carrying: world.carrying };
  return { success, status: terminal ?? "running", reward: success ? 1 : 0, detail };
}

function close(request) {
  episodes.delete(request.episode);
  return {};
}

const OPS = new Map(
  Object.entries({ hello, tasks, reset, candidates, label, step, verify, close }),
);

function parsed(line) {
  try {
    return JSON.parse(line);
  } catch (error) {
    throw new Refusal(`the request is not JSON: ${error.message}`);
  }
}

/** The reply to one line; whatever goes wrong is said in it, and the program lives on. */
function answer(line) {
  try {
    const request = parsed(line);
    const op = OPS.get(request?.op);
    if (op === undefined) throw new Refusal(`unknown op ${JSON.stringify(request?.op)}`);
    return { ok: true, ...op(request) };
  } catch (error) {
    console.error(`grid_rescue: ${error instanceof Refusal ? error.message : error.stack}`);
    return { ok: false, error: error.message };
  }
}

function answerAll(lines) {
  const replies = lines.filter((line) => line.trim() !== "").map((line) => answer(line));
  if (replies.length === 0) return;
  const isFull = !process.stdout.write(replies.map((reply) => JSON.stringify(reply) + "\n").join(""));
  if (!isFull) return;
  process.stdin.pause();
  process.stdout.once("drain", () => process.stdin.resume());
}

let rest = "";
process.stdin.setEncoding("utf8");
process.stdin.on("data", (chunk) => {
  const lines = (rest + chunk).split("\n");
  rest = lines.pop();
  answerAll(lines);
});
process.stdin.on("end", () => answerAll([rest]));
process.stdout.on("error", () => process.exit(1)); // the reader is gone
