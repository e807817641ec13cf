// Mirrors eab/engine/models/packaged.py: the files of the model, fetched on first use, checked, and
// kept.

import { EabError } from "./errors.js";

/** @import { Manifest } from "./loading.js" */
/** @typedef {(loaded: number, total: number) => void} Report in bytes */

const KEPT = "eab-story-model"; // the name of the cache
const USABLE = "The recorded runs stay usable";

/**
 * The files of a folder, or those given; EabError if they cannot be had, or are damaged.
 * @param {string} base the URL of the folder, which ends with a slash
 * @param {Report} report @param {Record<string, Uint8Array<ArrayBuffer>>} [given] by name
 */
export const modelFiles = async (base, report, given) => {
  const manifest = read(given?.["model.json"] ?? (await fetched(`${base}model.json`, () => {})));
  const entries = Object.entries(manifest.files);
  const total = entries.reduce((sum, [, { bytes }]) => sum + bytes, 0);
  const files = /** @type {Record<string, Uint8Array<ArrayBuffer>>} */ ({});
  let before = 0;
  for (const [name, file] of entries) {
    files[name] =
      given?.[name] ??
      (await kept(`${base}${name}`, file, (loaded) => report(before + loaded, total)));
    if (!(await isIntact(files[name], file))) {
      throw new EabError(`${name} arrived damaged; load the page again. ${USABLE}`);
    }
    before += file.bytes;
    report(before, total);
  }
  return { manifest, files };
};

/** Some hosts answer with a page of their own where a file is missing. @param {Uint8Array} text @returns {Manifest} */
function read(text) {
  try {
    return JSON.parse(new TextDecoder().decode(text));
  } catch {
    throw new EabError(
      `the story model is not beside this page: no model.json is there. ${USABLE}`,
    );
  }
}

/**
 * A file from the cache of the browser, or else from its URL. The cache may be full or forbidden.
 * @param {string} url @param {Manifest["files"][string]} file @param {(loaded: number) => void} report
 */
async function kept(url, file, report) {
  const key = `${url}?sha256=${file.sha256}`;
  try {
    const found = await (await caches.open(KEPT)).match(key);
    const bytes = found && new Uint8Array(await found.arrayBuffer());
    if (bytes && (await isIntact(bytes, file))) return bytes;
  } catch {}
  const bytes = await fetched(url, report);
  try {
    const cache = await caches.open(KEPT);
    for (const old of await cache.keys()) if (old.url.startsWith(url)) await cache.delete(old);
    if (await isIntact(bytes, file)) await cache.put(key, new Response(bytes));
  } catch {}
  return bytes;
}

/** @param {string} url @param {(loaded: number) => void} report */
async function fetched(url, report) {
  const parts = [];
  let loaded = 0;
  try {
    const response = await fetch(url, { cache: "no-cache" }); // else files of two versions may meet
    if (!response.ok || !response.body) throw new Error(`status ${response.status}`);
    const reader = response.body.getReader();
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      parts.push(part.value);
      loaded += part.value.length;
      report(loaded);
    }
  } catch (error) {
    throw new EabError(`the story model could not be loaded (${error}). ${USABLE}`);
  }
  return new Uint8Array(await new Blob(parts).arrayBuffer());
}

/** On pages without https, only the size is checked. @param {Uint8Array<ArrayBuffer>} bytes @param {Manifest["files"][string]} file */
async function isIntact(bytes, file) {
  if (bytes.length !== file.bytes || !crypto.subtle) return bytes.length === file.bytes;
  const hash = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  return file.sha256 === Array.from(hash, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
