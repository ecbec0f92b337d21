// The sampler of clop.kernels.draw, bit for bit: a 64-bit seed means the same permutation here and in Python.
//
// Random words come from SplitMix64 (Steele, Lea and Flood, 2014). JavaScript's numbers hold 53 bits, so a word is two
// halves of 32.

const GOLDEN = [0x9e3779b9, 0x7f4a7c15];
const FIRST = [0xbf58476d, 0x1ce4e5b9];
const SECOND = [0x94d049bb, 0x133111eb];
const TWO_32 = 2 ** 32;

export const VARIANTS = ["paper", "raster", "clamp"];

// A counter-based stream of words; the last one is in `high` and `low`.
class Words {
  constructor(seed, index) {
    const start = BigInt.asUintN(64, BigInt(seed) + BigInt(index + 1) * 0x9e3779b97f4a7c15n);
    this.stateHigh = Number(start >> 32n);
    this.stateLow = Number(start & 0xffffffffn);
    this.mix();
    this.stateHigh = this.high;
    this.stateLow = this.low;
  }

  next() {
    const low = this.stateLow + GOLDEN[1];
    this.stateHigh = (this.stateHigh + GOLDEN[0] + (low >= TWO_32 ? 1 : 0)) >>> 0;
    this.stateLow = low >>> 0;
    this.mix();
  }

  mix() {
    this.high = this.stateHigh;
    this.low = this.stateLow;
    this.shiftXor(30);
    this.multiply(FIRST);
    this.shiftXor(27);
    this.multiply(SECOND);
    this.shiftXor(31);
  }

  // z ^ (z >> bits), for 0 < bits < 32
  shiftXor(bits) {
    const low = ((this.low >>> bits) | (this.high << (32 - bits))) >>> 0;
    this.low = (this.low ^ low) >>> 0;
    this.high = (this.high ^ (this.high >>> bits)) >>> 0;
  }

  // z * factor modulo 2^64, by halves of 16 bits, whose products fit
  multiply([factorHigh, factorLow]) {
    const a0 = this.low & 0xffff, a1 = this.low >>> 16, b0 = factorLow & 0xffff, b1 = factorLow >>> 16;
    const bottom = a0 * b0;
    const middle = a0 * b1 + a1 * b0 + Math.floor(bottom / 65536);
    const carry = a1 * b1 + Math.floor(middle / 65536);
    this.high = (carry + Math.imul(this.high, factorLow) + Math.imul(this.low, factorHigh)) >>> 0;
    this.low = (((middle & 0xffff) << 16) | (bottom & 0xffff)) >>> 0;
  }

  // An integer uniform on [0, bound), exactly (Lemire, 2019); bound below 2^21, so that the product fits.
  below(bound) {
    for (;;) {
      this.next();
      const product = this.high * bound;
      const low = product % TWO_32;
      if (low >= bound || low >= (TWO_32 - bound) % bound) return Math.floor(product / TWO_32);
    }
  }

  // A number uniform on [0, 1) with 53 bits.
  uniform() {
    this.next();
    return (this.high * 2 ** 21 + (this.low >>> 11)) * 2 ** -53;
  }
}

// The positions that each position may swap with, and how many of them to draw from. The first counts[p] are real.
function partners(size, variant) {
  const positions = size.reduce((a, b) => a * b, 1);
  const table = [], counts = new Int32Array(positions);
  for (let here = 0; here < positions; here++) {
    const inside = [], outside = [];
    let stride = 1;
    for (let axis = size.length - 1; axis >= 0; axis--) {
      const coordinate = Math.floor(here / stride) % size[axis];
      for (const step of [-1, 1]) {
        const target = here + step * stride;
        const moved = coordinate + step;
        const valid = variant === "raster" ? target > 0 && target < positions : moved >= 0 && moved < size[axis];
        if (variant === "paper") (valid ? inside : outside).push(target);
        else inside.push(valid ? target : here);
      }
      stride *= size[axis];
    }
    table.push(inside.concat(outside));
    counts[here] = inside.length;
  }
  return [table, counts];
}

const tables = new Map(); // of partners, which do not change from draw to draw

function partnersOf(size, variant) {
  const key = `${variant} ${size.join("x")}`;
  if (!tables.has(key)) tables.set(key, partners(size, variant));
  return tables.get(key);
}

// Permutations of the positions of a map of this size: y[k] = x[p[k]] over row-major positions.
export function draw(seed, size, num, alpha, variant, local) {
  const [table, counts] = partnersOf(size, variant);
  const positions = counts.length;
  const sweeps = variant === "raster";
  const accept = sweeps ? 0.5 * alpha : alpha;
  const visits = sweeps ? 2 * positions - 1 : positions;
  const order = new Int32Array(positions);
  const drawn = [];
  for (let i = 0; i < num; i++) {
    const index = Int32Array.from({ length: positions }, (_, k) => k);
    order.set(index);
    const words = new Words(seed, i);
    for (let visit = 0; visit < visits; visit++) {
      let p;
      if (sweeps) {
        p = Math.abs(positions - 1 - visit); // down to position 0 and up again
      } else {
        const ahead = visit + words.below(positions - visit); // one more step of a Fisher-Yates shuffle
        p = order[ahead];
        order[ahead] = order[visit];
      }
      if (words.uniform() >= accept) continue;
      let q;
      if (local && counts[p] > 0) {
        q = table[p][words.below(counts[p])];
      } else if (!local && positions > 1) {
        q = words.below(positions - 1);
        if (q >= p) q++;
      } else {
        continue;
      }
      [index[p], index[q]] = [index[q], index[p]];
    }
    drawn.push(index);
  }
  return drawn;
}

// How far values have travelled, in steps between direct neighbours: at index d, how many positions hold a value from
// d steps away.
export function travels(permutation, [rows, columns]) {
  const counts = new Array(rows + columns - 1).fill(0);
  permutation.forEach((from, here) => {
    const down = Math.abs(Math.floor(from / columns) - Math.floor(here / columns));
    counts[down + Math.abs((from % columns) - (here % columns))]++;
  });
  return counts;
}
