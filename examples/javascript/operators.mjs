// The operators: canonical name -> how it is computed, and the gradient for each input.
//
// An array is { shape, data }. `forward` takes the inputs in order and the attributes last. Each of
// `gradients` takes the cotangent, the output, the inputs in order and the attributes.

export class Unsupported extends Error {}

/** Make an array of zeros with the type of another one. */
function zeros(shape, like) {
  const length = shape.reduce((product, side) => product * side, 1);
  return { shape, data: new like.data.constructor(length) };
}

/**
 * Make a function of arrays of one shape from a formula of their elements, as "x * y".
 *
 * The formula becomes the body of a loop of its own: a loop that calls a function given to it is
 * several times slower, since it sees many functions.
 */
function elementwise(names, formula) {
  const reads = names.map((name) => `const ${name} = ${name}s[i];`).join(" ");
  const loop = new Function(
    "out", ...names.map((name) => `${name}s`),
    `for (let i = 0; i < out.length; i++) { ${reads} out[i] = ${formula}; }`,
  );
  return (...given) => {
    const arrays = given.slice(0, names.length); // attributes may follow
    for (const { shape } of arrays) {
      if (String(shape) !== String(arrays[0].shape)) throw new Unsupported("no broadcasting here");
    }
    const result = zeros(arrays[0].shape, arrays[0]);
    loop(result.data, ...arrays.map(({ data }) => data));
    return result;
  };
}

/** Define an operator of one input x: its value, and its gradient by the cotangent c, y and x. */
const unary = (value, gradient) => ({
  forward: elementwise(["x"], value),
  gradients: [elementwise(["c", "y", "x"], gradient)],
});

/** Define an operator of two inputs a and b, with a gradient for each. */
const binary = (value, ...gradients) => ({
  forward: elementwise(["a", "b"], value),
  gradients: gradients.map((formula) => elementwise(["c", "y", "a", "b"], formula)),
});

/** Split a shape at a dimension: how many rows before it, its length, how many elements after. */
function split(shape, dim) {
  const at = dim < 0 ? dim + shape.length : dim;
  const product = (sides) => sides.reduce((all, side) => all * side, 1);
  return [product(shape.slice(0, at)), shape[at], product(shape.slice(at + 1)), at];
}

/** Call with the start, the length and the step of each line of numbers along a dimension. */
function alongLines(shape, dim, visit) {
  const [before, length, after] = split(shape, dim);
  for (let i = 0; i < before; i++) {
    for (let j = 0; j < after; j++) visit(i * length * after + j, length, after, i * after + j);
  }
}

function sum(x, { dim }) {
  const at = split(x.shape, dim)[3];
  const result = zeros(x.shape.toSpliced(at, 1), x);
  alongLines(x.shape, dim, (start, length, step, line) => {
    let total = 0;
    for (let k = 0; k < length; k++) total += x.data[start + k * step];
    result.data[line] = total;
  });
  return result;
}

function sumGradient(c, y, x, { dim }) {
  const result = zeros(x.shape, x);
  alongLines(x.shape, dim, (start, length, step, line) => {
    for (let k = 0; k < length; k++) result.data[start + k * step] = c.data[line];
  });
  return result;
}

function softmax(x, { dim }) {
  const result = zeros(x.shape, x);
  alongLines(x.shape, dim, (start, length, step) => {
    const end = start + length * step;
    let largest = -Infinity;
    for (let k = start; k < end; k += step) largest = Math.max(largest, x.data[k]);
    let total = 0;
    for (let k = start; k < end; k += step) {
      const power = Math.exp(x.data[k] - largest);
      result.data[k] = power;
      total += power;
    }
    for (let k = start; k < end; k += step) result.data[k] /= total;
  });
  return result;
}

function softmaxGradient(c, y, x, { dim }) {
  const result = zeros(x.shape, x);
  alongLines(x.shape, dim, (start, length, step) => {
    const end = start + length * step;
    let mean = 0;
    for (let k = start; k < end; k += step) mean += c.data[k] * y.data[k];
    for (let k = start; k < end; k += step) result.data[k] = y.data[k] * (c.data[k] - mean);
  });
  return result;
}

/** Swap rows and columns without moving numbers: a view for `product`. */
const turned = ({ shape: [rows, columns], data, steps = [columns, 1] }) => ({
  shape: [columns, rows], data, steps: [steps[1], steps[0]],
});

/** Multiply matrices, row by row of the second: what is read and written lies together. */
function product(a, b) {
  const [[rows, inner], columns] = [a.shape, b.shape[1]];
  const [aRow, aColumn] = a.steps ?? [inner, 1];
  const [bRow, bColumn] = b.steps ?? [columns, 1];
  const result = zeros([rows, columns], a);
  const [left, right, out] = [a.data, b.data, result.data];
  for (let i = 0; i < rows; i++) {
    for (let k = 0; k < inner; k++) {
      const factor = left[i * aRow + k * aColumn];
      for (let j = 0; j < columns; j++) {
        out[i * columns + j] += factor * right[k * bRow + j * bColumn];
      }
    }
  }
  return result;
}

function matmul(a, b) {
  if (a.shape.length !== 2 || b.shape.length !== 2) throw new Unsupported("only matrices here");
  return product(a, b);
}

function linear(x, weight, bias) {
  const result = matmul(x, turned(weight));
  const columns = bias.data.length;
  for (let i = 0; i < result.data.length; i++) result.data[i] += bias.data[i % columns];
  return result;
}

function embedding(index, weight) {
  const width = weight.shape[1];
  const result = zeros([index.data.length, width], weight);
  index.data.forEach((row, i) => {
    const from = Number(row) * width;
    result.data.set(weight.data.subarray(from, from + width), i * width);
  });
  return result;
}

function embeddingGradient(c, y, index, weight) {
  const width = weight.shape[1];
  const result = zeros(weight.shape, weight);
  index.data.forEach((row, i) => {
    for (let k = 0; k < width; k++) result.data[Number(row) * width + k] += c.data[i * width + k];
  });
  return result;
}

export const OPERATORS = {
  exp: unary("Math.exp(x)", "c * y"),
  log: unary("Math.log(x)", "c / x"),
  tanh: unary("Math.tanh(x)", "c * (1 - y * y)"),
  relu: unary("x > 0 ? x : 0", "x > 0 ? c : 0"),
  add: binary("a + b", "c", "c"),
  sub: binary("a - b", "c", "-c"),
  mul: binary("a * b", "c * b", "c * a"),
  div: binary("a / b", "c / b", "-c * y / b"),
  sum: { forward: sum, gradients: [sumGradient] },
  softmax: { forward: softmax, gradients: [softmaxGradient] },
  matmul: {
    forward: matmul,
    gradients: [(c, y, a, b) => product(c, turned(b)), (c, y, a) => product(turned(a), c)],
  },
  linear: {
    forward: linear,
    gradients: [
      (c, y, x, weight) => product(c, weight),
      (c, y, x) => product(turned(c), x),
      (c) => sum(c, { dim: 0 }),
    ],
  },
  embedding: { forward: embedding, gradients: [null, embeddingGradient] },
};
