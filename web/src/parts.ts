/**
 * Files of the site as scripts: a page opened from a disk may not read files, but it may
 * add <script> elements. Each calls `jaxptPart` with a piece of a file, gzipped, in base64.
 */

export class Damaged extends Error {}

const received = new Map<string, string>();
let loaded = 0;

window.jaxptPart = (key, text) => {
  received.set(key, text);
};

/** The characters of all parts that were loaded so far. */
export function loadedCharacters(): number {
  return loaded;
}

/** A file's bytes from its parts, checked against its length and checksum. */
export async function loadFile(
  parts: string[],
  length: number,
  checksum: number,
): Promise<Uint8Array<ArrayBuffer>> {
  const pieces: Uint8Array<ArrayBuffer>[] = [];
  for (const key of parts) pieces.push(decodeBase64(await loadPart(key), key));
  const bytes = await gunzip(pieces, parts[0]);
  if (bytes.length !== length || crc32(bytes) !== checksum) {
    throw new Damaged(`${parts[0]} does not hold the bytes that were written`);
  }
  return bytes;
}

/** The text that the script at a path gives. */
function loadPart(key: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = key;
    script.onload = () => {
      const text = received.get(key);
      received.delete(key);
      script.remove();
      loaded += text?.length ?? 0;
      if (text === undefined) reject(new Damaged(`${key} is not what was written`));
      else resolve(text);
    };
    script.onerror = () => {
      script.remove();
      reject(new Damaged(`${key} is missing`));
    };
    document.head.append(script);
  });
}

function decodeBase64(text: string, key: string): Uint8Array<ArrayBuffer> {
  let binary: string;
  try {
    binary = atob(text);
  } catch {
    throw new Damaged(`${key} is not base64`);
  }
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

async function gunzip(
  pieces: Uint8Array<ArrayBuffer>[],
  key: string,
): Promise<Uint8Array<ArrayBuffer>> {
  try {
    const stream = new Blob(pieces).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Uint8Array(await new Response(stream).arrayBuffer());
  } catch {
    throw new Damaged(`${key} cannot be unpacked`);
  }
}

const TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  let value = byte;
  for (let bit = 0; bit < 8; bit++) {
    value = value & 1 ? (value >>> 1) ^ 0xedb88320 : value >>> 1;
  }
  return value;
});

function crc32(bytes: Uint8Array): number {
  let crc = 0xffffffff;
  for (let i = 0; i < bytes.length; i++) {
    crc = TABLE[(crc ^ bytes[i]) & 0xff] ^ (crc >>> 8);
  }
  return (crc ^ 0xffffffff) >>> 0;
}
