// .npy files: a magic word, the length of the header, the header as a Python literal, the numbers.

import { readFileSync, writeFileSync } from "node:fs";

const MAGIC = "\x93NUMPY";
const TYPES = { "<f4": Float32Array, "<f8": Float64Array, "<i8": BigInt64Array };
// Headers end where the numbers begin: at a multiple of this.
const ALIGNMENT = 64;

/** Read an array as its shape and its numbers, the last index running fastest. */
export function load(path) {
  const file = readFileSync(path);
  if (file.toString("latin1", 0, 6) !== MAGIC) throw new Error(`${path} is no .npy file`);
  const wide = file[6] > 1; // version 1.0 has two bytes for the length, later ones have four
  const start = wide ? 12 : 10;
  const end = start + (wide ? file.readUInt32LE(8) : file.readUInt16LE(8));
  const header = file.toString("latin1", start, end);
  const type = TYPES[/'descr': '([^']*)'/.exec(header)[1]];
  if (!type || /'fortran_order': True/.test(header)) throw new Error(`${path}: ${header.trim()}`);
  const shape = /'shape': \(([^)]*)\)/.exec(header)[1].match(/\d+/g) ?? [];
  const bytes = new Uint8Array(file.subarray(end)); // a copy, so that the numbers are aligned
  return { shape: shape.map(Number), data: new type(bytes.buffer) };
}

/** Write an array in version 1.0. */
export function save(path, { shape, data }) {
  const type = Object.keys(TYPES).find((name) => data instanceof TYPES[name]);
  const sides = shape.length === 1 ? `${shape[0]},` : shape.join(", ");
  const literal = `{'descr': '${type}', 'fortran_order': False, 'shape': (${sides}), }`;
  const length = Math.ceil((10 + literal.length + 1) / ALIGNMENT) * ALIGNMENT - 10;
  const prefix = Buffer.from(`${MAGIC}\x01\x00..${literal.padEnd(length - 1)}\n`, "latin1");
  prefix.writeUInt16LE(length, 8);
  const numbers = Buffer.from(data.buffer, data.byteOffset, data.byteLength);
  writeFileSync(path, Buffer.concat([prefix, numbers]));
}
