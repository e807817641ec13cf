// What is shown beside the pointer over a token: what the model considered there, and why the path
// forked or did not.

/** @import { Board } from "./board.js" */
/** @import { Path } from "./types.d.ts" */
import { candidateBars } from "./candidates.js";
import { element } from "./elements.js";
import { forkWords } from "./fork_reasons.js";
import { percent } from "./format.js";

const MOST = 5; // candidates

/**
 * @param {Board} board
 * @param {Path} path
 * @param {number} index
 */
export function tokenTip(board, path, index) {
  const token = path.tokens[index];
  const head = `“${token.text}”  p ${percent(token.probability)}  entropy ${token.entropy.toFixed(2)} nats`;
  const list = element("ol", { class: "candidates" });
  list.append(...candidateBars(token, MOST));
  const reason = board.unknownAt(path.id, index) || forkWords(board, path, index);
  return [element("p", { class: "tip-head" }, head), list, element("p", {}, reason)];
}
