// Mirrors eab/engine/branching/random_streams.py: a draw depends on (seed, stream key, step, index) alone,
// so it is the same number in Python and here.

export const ROOT = 0n; // the stream key of the first path
const STREAM_KEY = 2n ** 32n; // the index of the stream key of a child
const PRUNING = 2n ** 64n - 1n; // a stream of its own

/**
 * A random number in [0, 1) with 53 bits: the `number`-th that draws tokens.
 * @param {bigint} seed @param {bigint} streamKey @param {number} step @param {number} number
 */
export function uniform(seed, streamKey, step, number) {
  return asUniform(blake2b(seed, streamKey, BigInt(step), BigInt(number)));
}

/** The draw for pruning to the path limit. @param {number} seed @param {number} step */
export function pruningUniform(seed, step) {
  return asUniform(blake2b(BigInt(seed), PRUNING, BigInt(step), 0n));
}

/** Of a child that is not the heir. @param {bigint} parent @param {number} step @param {number} token */
export function childStreamKey(parent, step, token) {
  return blake2b(parent, BigInt(step), BigInt(token), STREAM_KEY) % PRUNING || 1n;
}

/** @param {bigint} hash */
const asUniform = (hash) => Number(hash >> 11n) * 2 ** -53;

// BLAKE2b (RFC 7693) of four 64-bit words, with a digest of one.
const IV = (
  "6a09e667f3bcc908 bb67ae8584caa73b 3c6ef372fe94f82b a54ff53a5f1d36f1 " +
  "510e527fade682d1 9b05688c2b3e6c1f 1f83d9abfb41bd6b 5be0cd19137e2179"
)
  .split(" ")
  .map((word) => BigInt(`0x${word}`));
const SIGMA = (
  "0123456789abcdef ea489fd61c02b753 b8c052fdae367194 7931dcbe265a40f8 905724afe1bc683d " +
  "2c6a0b834d75fe19 c51fed4a0763928b db7ec13950f4862a 6fe9b308c2d714a5 a2847615fb9e3cd0"
)
  .split(" ")
  .map(digits);
const QUARTERS = "048c 159d 26ae 37bf 05af 16bc 278d 349e".split(" ").map(digits);
const PARAMETERS = 0x01010008n;

/** @param {string} row */
function digits(row) {
  return [...row].map((digit) => Number.parseInt(digit, 16));
}

/** @param {bigint[]} words */
function blake2b(...words) {
  const start = IV[0] ^ PARAMETERS;
  const v = BigUint64Array.from([start, ...IV.slice(1), ...IV]); // it wraps around, as it must
  v[12] ^= 32n; // bytes
  v[14] = ~v[14]; // the last block
  for (let round = 0; round < 12; round++) {
    const order = SIGMA[round % SIGMA.length];
    for (const [at, quarter] of QUARTERS.entries()) {
      mix(v, quarter, words[order[2 * at]] ?? 0n, words[order[2 * at + 1]] ?? 0n);
    }
  }
  return start ^ v[0] ^ v[8];
}

/** @param {BigUint64Array} v @param {number[]} at @param {bigint} x @param {bigint} y */
function mix(v, [a, b, c, d], x, y) {
  v[a] += v[b] + x;
  v[d] = turned(v[d] ^ v[a], 32n);
  v[c] += v[d];
  v[b] = turned(v[b] ^ v[c], 24n);
  v[a] += v[b] + y;
  v[d] = turned(v[d] ^ v[a], 16n);
  v[c] += v[d];
  v[b] = turned(v[b] ^ v[c], 63n);
}

/** @param {bigint} word @param {bigint} bits */
const turned = (word, bits) => (word >> bits) | (word << (64n - bits));
