// How a block is timed: the method of tapegrad/worker/timing.py, to the letter.

// The shortest sample, in steps of the clock and in seconds.
const CLOCK_STEPS = 1_000;
const SHORTEST_SAMPLE = 2e-4;
// Samples in a block, if its time allows.
const [FEWEST, MOST] = [5, 100];
// Numbers written before each call to make caches cold (128 MB), and the calls of such a block.
const FLUSHED = 1 << 24;
const COLD_CALLS = 10;
// Warm-up: window of samples, largest difference of its halves, and its limit in block lengths.
const [WINDOW, DRIFT, WARMUP_BLOCKS] = [8, 0.02, 10];
// A call that takes this many block lengths is its own warm-up: earlier checks have run it.
const LONG_CALL = 2;

// What the last call returned: a result that nobody holds might not be computed.
let last;

/** Return the seconds that something took, and what it returned. */
export function timed(action) {
  const start = process.hrtime.bigint();
  const result = action();
  return [Number(process.hrtime.bigint() - start) * 1e-9, result];
}

/** Return the processors that were busy during an action, and what it returned. */
export function busy(action) {
  const before = process.cpuUsage();
  const [seconds, result] = timed(action);
  const { user, system } = process.cpuUsage(before);
  return [((user + system) * 1e-6) / seconds, result];
}

/** Time calls in seconds; nothing is ever pending here, so there is nothing to wait for. */
export function elapsed(call, calls) {
  const [seconds] = timed(() => {
    for (let i = 0; i < calls; i++) last = call();
  });
  last = undefined;
  return seconds;
}

/** Collect garbage now rather than while the clock runs. */
export const collectGarbage = () => globalThis.gc?.();

/** Time a phase for about `seconds`, after warming up, or with cold caches each time. */
export function block(call, seconds, cold) {
  collectGarbage();
  return cold ? coldCalls(call, seconds) : loopedCalls(call, seconds);
}

function loopedCalls(call, seconds) {
  const [firstCores, [inner, first]] = busy(() => innerCalls(call, seconds));
  if (first > LONG_CALL * seconds) return answer([first], 1, 0, true, firstCores);
  const sample = () => elapsed(call, inner);
  const [warmup, stationary] = warmUp(sample, seconds);
  const count = Math.max(FEWEST, Math.min(MOST, Math.round(seconds / Math.max(first, 1e-9))));
  const [cores, samples] = busy(() => Array.from({ length: count }, sample));
  const calls = 2 * (2 * inner - 1) + warmup * inner;
  return answer(samples.map((each) => each / inner), inner, calls, stationary, cores);
}

/** Double the calls until a sample is long enough, seen twice; returns them and its length. */
function innerCalls(call, seconds) {
  const shortest = Math.max(CLOCK_STEPS * clockStep(), Math.min(SHORTEST_SAMPLE, seconds / FEWEST));
  for (let inner = 1; ; inner *= 2) {
    let length = elapsed(call, inner);
    if (length > LONG_CALL * seconds) return [inner, length];
    length = Math.min(length, elapsed(call, inner));
    if (length >= shortest || inner >= 1 << 30) return [inner, length];
  }
}

/** Sample until stationary or out of time; returns the count and whether it became so. */
function warmUp(sample, seconds) {
  const recent = [];
  let [spent, count] = [0, 0];
  while (spent < WARMUP_BLOCKS * seconds) {
    recent.push(sample());
    spent += recent.at(-1);
    count += 1;
    if (recent.length > WINDOW) recent.shift();
    if (recent.length === WINDOW && stationary(recent)) return [count, true];
  }
  return [count, recent.length >= FEWEST && stationary(recent)];
}

function stationary(window) {
  const half = Math.floor(window.length / 2);
  const [before, after] = [median(window.slice(0, half)), median(window.slice(half))];
  return Math.abs(after - before) <= DRIFT * before;
}

function median(values) {
  const sorted = values.toSorted((a, b) => a - b);
  const half = Math.floor(sorted.length / 2);
  return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

let elsewhere;

function coldCalls(call, seconds) {
  elsewhere ??= new Float64Array(FLUSHED);
  call();
  const samples = [];
  const [cores] = busy(() => {
    for (let spent = 0; !samples.length || (spent < seconds && samples.length < COLD_CALLS); ) {
      for (let i = 0; i < FLUSHED; i++) elsewhere[i] += 1;
      samples.push(elapsed(call, 1));
      spent += samples.at(-1);
    }
  });
  return answer(samples, 1, 0, true, cores);
}

const answer = (samples, inner, warmup_calls, stationary, cores) =>
  ({ samples, inner, warmup_calls, stationary, cores });

let step;

/** Measure the smallest difference that the clock shows. */
function clockStep() {
  if (step !== undefined) return step;
  const steps = Array.from({ length: 50 }, () => {
    const start = process.hrtime.bigint();
    let end = start;
    while (end === start) end = process.hrtime.bigint();
    return Number(end - start) * 1e-9;
  });
  step = Math.min(...steps);
  return step;
}

// Control kernels: fixed work beside each block, by which a slow machine is told from slow code.
const RUNS = 6;
const [source, target] = [new Float64Array(1 << 18).fill(1), new Float64Array(1 << 18)];
const SIDE = 64;
const [matrix, squared] = [new Float32Array(SIDE * SIDE).fill(1), new Float32Array(SIDE * SIDE)];
const KERNELS = {
  copy: () => target.set(source),
  matmul: () => {
    squared.fill(0);
    for (let i = 0; i < SIDE; i++) {
      for (let k = 0; k < SIDE; k++) {
        const factor = matrix[i * SIDE + k];
        for (let j = 0; j < SIDE; j++) squared[i * SIDE + j] += factor * matrix[k * SIDE + j];
      }
    }
  },
  loop: () => {
    let total = 0;
    for (let i = 0; i < 50_000; i++) total += i;
    return total;
  },
};
for (let i = 0; i < 10; i++) controls(); // until the compiler has seen enough of them

/** Return the best time of each control kernel. */
export function controls() {
  const best = (kernel) => Math.min(...Array.from({ length: RUNS }, () => elapsed(kernel, 1)));
  return Object.fromEntries(Object.entries(KERNELS).map(([name, kernel]) => [name, best(kernel)]));
}
