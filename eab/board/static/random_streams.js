// Counter-based random numbers, the same as those of eab/branching/random_streams.py: a BLAKE2b
// hash (RFC 7693) of at most sixteen 64-bit words, shortened to 8 bytes.

const MASK = (1n << 64n) - 1n;
const IV = [
  [0x6a09e667f3bcc908n, 0xbb67ae8584caa73bn, 0x3c6ef372fe94f82bn, 0xa54ff53a5f1d36f1n],
  [0x510e527fade682d1n, 0x9b05688c2b3e6c1fn, 0x1f83d9abfb41bd6bn, 0x5be0cd19137e2179n],
].flat();
const ORDERS = [
  ["0123456789abcdef", "ea489fd61c02b753", "b8c052fdae367194", "7931dcbe265a40f8"],
  ["905724afe1bc683d", "2c6a0b834d75fe19", "c51fed4a0763928b", "db7ec13950f4862a"],
  ["6fe9b308c2d714a5", "a2847615fb9e3cd0", "0123456789abcdef", "ea489fd61c02b753"],
]
  .flat()
  .map(places); // of the words in each round
const QUARTERS = ["048c", "159d", "26ae", "37bf", "05af", "16bc", "278d", "349e"].map(places);

/** @param {string} digits @returns {number[]} */
function places(digits) {
  return [...digits].map((digit) => Number.parseInt(digit, 16));
}

/** @param {bigint} value @param {bigint} bits */
function rotated(value, bits) {
  return ((value >> bits) | (value << (64n - bits))) & MASK;
}

/**
 * Mix two words into a quarter of the state.
 * @param {bigint[]} v @param {number[]} at @param {bigint} x @param {bigint} y
 */
function mix(v, [a, b, c, d], x, y) {
  v[a] = (v[a] + v[b] + x) & MASK;
  v[d] = rotated(v[d] ^ v[a], 32n);
  v[c] = (v[c] + v[d]) & MASK;
  v[b] = rotated(v[b] ^ v[c], 24n);
  v[a] = (v[a] + v[b] + y) & MASK;
  v[d] = rotated(v[d] ^ v[a], 16n);
  v[c] = (v[c] + v[d]) & MASK;
  v[b] = rotated(v[b] ^ v[c], 63n);
}

/** BLAKE2b with 8 bytes of these words, little-endian. @param {...bigint} words */
export function hash(...words) {
  const message = [...words, ...Array(16 - words.length).fill(0n)];
  const first = IV[0] ^ 0x01010008n; // no key, 8 bytes
  const v = [first, ...IV.slice(1), ...IV];
  v[12] ^= BigInt(8 * words.length);
  v[14] ^= MASK; // the last block
  for (const order of ORDERS) {
    QUARTERS.forEach((quarter, at) => {
      mix(v, quarter, message[order[2 * at]], message[order[2 * at + 1]]);
    });
  }
  return first ^ v[0] ^ v[8];
}

/**
 * The draw for pruning to the path limit, in [0, 1).
 * @param {number | bigint} seed @param {number} step
 */
export function pruningUniform(seed, step) {
  return Number(hash(BigInt(seed), MASK, BigInt(step), 0n) >> 11n) * 2 ** -53;
}
