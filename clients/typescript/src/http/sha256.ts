// SHA-256 (FIPS 180-4) of files. Browsers have `crypto.subtle` only on pages with HTTPS, or on
// localhost; elsewhere, a slower implementation is used.

const BLOCK_BYTES = 64;
const FRACTION = 2 ** 32;

const [INITIAL, CONSTANTS] = buildConstants();

/** Return the SHA-256 of data as lower-case hexadecimal digits. */
export async function computeSha256(data: ArrayBuffer): Promise<string> {
  const subtle = (globalThis.crypto as Partial<Crypto> | undefined)?.subtle;
  const digest =
    subtle === undefined
      ? digestSlowly(new Uint8Array(data))
      : new Uint8Array(await subtle.digest("SHA-256", data));
  return [...digest].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Return the SHA-256 of data without `crypto.subtle`. */
export function digestSlowly(data: Uint8Array): Uint8Array {
  const tail = pad(data);
  const fullBytes = data.length - (data.length % BLOCK_BYTES);
  const state = Uint32Array.from(INITIAL);
  const whole = new DataView(data.buffer, data.byteOffset, data.byteLength);
  for (let offset = 0; offset < fullBytes; offset += BLOCK_BYTES) addBlock(state, whole, offset);
  const end = new DataView(tail.buffer);
  for (let offset = 0; offset < tail.length; offset += BLOCK_BYTES) addBlock(state, end, offset);
  const digest = new DataView(new ArrayBuffer(32));
  state.forEach((word, index) => digest.setUint32(index * 4, word));
  return new Uint8Array(digest.buffer);
}

/** Return the last blocks: the bytes after the last full block, a one bit, zeros, the length. */
function pad(data: Uint8Array): Uint8Array {
  const rest = data.subarray(data.length - (data.length % BLOCK_BYTES));
  const tail = new Uint8Array(rest.length + 9 > BLOCK_BYTES ? 2 * BLOCK_BYTES : BLOCK_BYTES);
  tail.set(rest);
  tail[rest.length] = 0x80;
  const view = new DataView(tail.buffer);
  view.setUint32(tail.length - 8, Math.floor((data.length * 8) / FRACTION));
  view.setUint32(tail.length - 4, (data.length * 8) % FRACTION);
  return tail;
}

function addBlock(state: Uint32Array, view: DataView, offset: number): void {
  const words = new Uint32Array(64);
  const at = (index: number): number => words[index] as number;
  for (let index = 0; index < 16; index += 1) words[index] = view.getUint32(offset + index * 4);
  for (let index = 16; index < 64; index += 1) {
    const [early, late] = [at(index - 15), at(index - 2)];
    const first = rotate(early, 7) ^ rotate(early, 18) ^ (early >>> 3);
    const second = rotate(late, 17) ^ rotate(late, 19) ^ (late >>> 10);
    words[index] = at(index - 16) + first + at(index - 7) + second;
  }
  let [a, b, c, d, e, f, g, h] = state as unknown as Octet;
  for (let index = 0; index < 64; index += 1) {
    const sum = rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25);
    const choice = (e & f) ^ (~e & g);
    const first = (h + sum + choice + (CONSTANTS[index] as number) + at(index)) | 0;
    const second = (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    [h, g, f, e, d, c, b, a] = [g, f, e, (d + first) | 0, c, b, a, (first + second) | 0];
  }
  [a, b, c, d, e, f, g, h].forEach((word, index) => {
    state[index] = (state[index] as number) + word;
  });
}

type Octet = [number, number, number, number, number, number, number, number];

const rotate = (word: number, bits: number): number => (word >>> bits) | (word << (32 - bits));

/** Return fractional bits of the roots of the first primes: 8 square and 64 cube roots. */
function buildConstants(): [number[], number[]] {
  const primes: number[] = [];
  for (let number = 2; primes.length < 64; number += 1) {
    if (primes.every((prime) => number % prime !== 0)) primes.push(number);
  }
  const getFraction = (root: number): number => ((root - Math.floor(root)) * FRACTION) >>> 0;
  const squares = primes.slice(0, 8).map((prime) => getFraction(Math.sqrt(prime)));
  return [squares, primes.map((prime) => getFraction(Math.cbrt(prime)))];
}
