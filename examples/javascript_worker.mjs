// A worker of `tapegrad bench` in JavaScript: a line in, a line out (docs/workers.md).
//
// It does a handful of operators, forward and backward, on one thread, and depends on nothing. What
// it shows is that the protocol asks for no Python: examples/javascript.py names its command.

import { mkdirSync, readFileSync, writeFileSync, writeSync } from "node:fs";
import { createInterface } from "node:readline";

import { load, save } from "./javascript/npy.mjs";
import { OPERATORS, Unsupported } from "./javascript/operators.mjs";
import { block, busy, collectGarbage, controls, elapsed, timed } from "./javascript/timing.mjs";

const TYPES = { float32: Float32Array, float64: Float64Array };
// How Node says that an array is too large.
const OUT_OF_MEMORY = /allocation failed|invalid (typed array|array buffer) length/i;
// Calls by which `memory` reaches a steady state.
const MEMORY_CALLS = 3;

/** One case, ready to run: a function for each phase, and how its result is read. */
class Work {
  constructor(given) {
    this.case = given;
    this.type = TYPES[given.dtype];
    if (given.level !== "operator") throw new Unsupported(`no cases of level ${given.level}`);
    if (!this.type) throw new Unsupported(`no ${given.dtype}`);
    this.operator = OPERATORS[given.op];
    if (!this.operator) throw new Unsupported(`no ${given.op} in this worker's table`);
    const wrt = given.inputs.flatMap(({ grad }, index) => (grad ? [index] : []));
    this.wrt = wrt.map((index) => [given.inputs[index].name, this.operator.gradients[index]]);
    this.phases = { forward: () => this.forward(), inference: () => this.forward() };
    if (wrt.length) {
      this.phases.backward = () => this.backward(this.output);
      this.phases.step = () => this.step();
    }
  }

  /** Replace the inputs, and what the backward pass starts from. */
  feed(arrays, cotangents) {
    this.inputs = this.case.inputs.map(({ name }) => this.own(arrays[name]));
    this.cotangents = cotangents.map((each) => this.own(each));
    this.output = cotangents.length ? this.forward() : undefined;
  }

  /** Copy an array to the case's type; integers stay what they are. */
  own({ shape, data }) {
    return { shape, data: data instanceof BigInt64Array ? data.slice() : this.type.from(data) };
  }

  forward() {
    return this.operator.forward(...this.inputs, this.case.attrs);
  }

  backward(output) {
    const [cotangent] = this.cotangents;
    return this.wrt.map(([, gradient]) =>
      gradient(cotangent, output, ...this.inputs, this.case.attrs));
  }

  step() {
    const output = this.forward();
    return [output, ...this.backward(output)];
  }

  /** Name the arrays of a phase's result and copy them, as whoever uses them would. */
  read(phase, result) {
    const names = phase === "backward" ? [] : ["output0"];
    if (phase === "backward" || phase === "step") {
      names.push(...this.wrt.map(([name]) => `grad:${name}`));
    }
    const arrays = [result].flat();
    return Object.fromEntries(names.map((name, index) => [name, copied(arrays[index])]));
  }
}

const copied = ({ shape, data }) => ({ shape, data: data.slice() });

// What is prepared: the case, and the arrays that it was fed as they came.
let work;
let inputs = {};
let cotangents = [];
// Sets of inputs made by `fresh`: no two are alike.
let changes = 0;
// The size of this process before it did anything.
let idle = null;

// What a worker answers: one function per message.
const answers = {
  hello({ name, device, threads }) {
    resetPeak();
    idle = status("VmRSS");
    return {
      version: process.versions.v8,
      python: `Node ${process.versions.node}`,
      details: { name, device, threads: 1, allowed: threads },
      devices: ["cpu"],
    };
  },

  prepare({ case: given, arrays }) {
    answers.forget();
    work = new Work(given);
    inputs = loadAll(arrays);
    changes = 0;
    work.feed(inputs, []);
    work.forward(); // or it says here that it is not supported
    const phases = Object.keys(work.phases);
    return { phases, looped: phases, joint: false, precision: null, notes: [] };
  },

  feed({ arrays, cotangents: paths }) {
    inputs = loadAll(arrays);
    cotangents = paths.map(load);
    work.feed(inputs, cotangents);
    return {};
  },

  check({ phase, folder }) {
    return { arrays: saveAll(work.read(phase, work.phases[phase]()), folder) };
  },

  time({ phase, seconds, cold = false }) {
    const beside = controls();
    return { ...block(work.phases[phase], seconds, cold), controls: beside, units: 1 };
  },

  repeat({ phase, calls, folder }) {
    elapsed(work.phases[phase], calls - 1);
    const read = work.read(phase, work.phases[phase]());
    return { arrays: folder === null ? {} : saveAll(read, folder) };
  },

  read({ phase, count }) {
    const [both, reading, copying, alone] = [[], [], [], []];
    for (let i = 0; i < count; i++) {
      let result, read;
      both.push(timed(() => work.read(phase, (result = work.phases[phase]())))[0]);
      reading.push(timed(() => (read = work.read(phase, result)))[0]);
      copying.push(timed(() => Object.values(read).map(copied))[0]);
      for (let again = 0; again < 2; again++) alone.push(elapsed(work.phases[phase], 1));
    }
    return {
      read: least(both),
      reading: least(reading),
      copying: least(copying),
      alone: least(alone),
    };
  },

  fresh({ phase, count }) {
    const [fresh, again] = [[], []];
    for (let i = 0; i < count; i++) {
      changes += 1;
      work.feed(changed(inputs, changes), cotangents);
      for (const times of [fresh, again]) {
        times.push(timed(() => work.read(phase, work.phases[phase]()))[0]);
      }
    }
    work.feed(inputs, cotangents);
    return { fresh: least(fresh), again: least(again) };
  },

  cores({ phase, calls, count }) {
    const loop = () => elapsed(work.phases[phase], calls);
    return { cores: Array.from({ length: count }, () => busy(loop)[0]) };
  },

  memory({ phase }) {
    elapsed(work.phases[phase], MEMORY_CALLS);
    const peak = status("VmHWM");
    const known = peak !== null && idle !== null;
    return { allocator: null, resident: known ? Math.max(0, peak - idle) : null };
  },

  own_tool() {
    return { seconds: null }; // Node has no benchmark tool of its own
  },

  forget() {
    [work, inputs, cotangents] = [undefined, {}, []];
    collectGarbage();
    return {};
  },
};

const least = (times) => Math.min(...times);

const loadAll = (paths) =>
  Object.fromEntries(Object.entries(paths).map(([name, path]) => [name, load(path)]));

function saveAll(arrays, folder) {
  mkdirSync(folder, { recursive: true });
  return Object.fromEntries(Object.entries(arrays).map(([name, array]) => {
    const path = `${folder}/${name.replace(":", "-")}.npy`;
    save(path, array);
    return [name, path];
  }));
}

/** Make inputs that differ a little from all before; integers are rolled. */
function changed(inputs, index) {
  const change = ({ shape, data }) => {
    const rolled = (_, i) => data.at((i - index) % data.length);
    const scaled = (x) => x * (1 + 1e-3 * index);
    return { shape, data: data.map(data instanceof BigInt64Array ? rolled : scaled) };
  };
  return Object.fromEntries(Object.entries(inputs).map(([name, array]) => [name, change(array)]));
}

/** Forget the largest size of this process so far, where the system can. */
function resetPeak() {
  try {
    writeFileSync("/proc/self/clear_refs", "5");
  } catch {
    // another system than Linux: the peak since the start of the process counts
  }
}

/** Return a size of this process in bytes, as Linux tells it; elsewhere it is unknown. */
function status(field) {
  try {
    const line = readFileSync("/proc/self/status", "latin1").match(`${field}:\\s*(\\d+)`);
    return Number(line[1]) * 1024;
  } catch {
    return null;
  }
}

function complaint(error) {
  const message = `${error.name}: ${error.message}`.slice(0, 2000);
  if (error instanceof Unsupported) return { complaint: "unsupported", message: error.message };
  if (OUT_OF_MEMORY.test(message)) return { complaint: "oom", message };
  console.error(error);
  return { complaint: "failed", message };
}

console.log = console.error; // answers have the standard output to themselves
for await (const line of createInterface({ input: process.stdin })) {
  const { do: message, ...given } = JSON.parse(line);
  if (message === "bye") break;
  let answer;
  try {
    if (!Object.hasOwn(answers, message)) throw new Unsupported(`no message ${message}`);
    answer = answers[message](given);
  } catch (error) {
    answer = complaint(error);
  }
  writeSync(1, `${JSON.stringify(answer)}\n`);
}
process.exit();
