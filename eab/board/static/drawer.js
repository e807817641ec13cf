// The drawer over the charts, always visible: shows one page at a time that the user opened, such
// as the help.

/** @import { Send } from "./types.d.ts" */
/** @import { ViewState } from "./view_state.js" */
import { element, iconButton } from "./elements.js";

/** @typedef {"token" | "tables" | "help"} PageName */

export class Drawer {
  /**
   * @param {ViewState} view @param {Send} send
   * @param {Record<PageName, { title: string, root: HTMLElement }>} pages
   */
  constructor(view, send, pages) {
    this.view = view;
    this.pages = pages;
    /** @type {PageName | null} */
    this.shown = null;
    this.title = element("h2");
    this.body = element("div", { class: "drawer-body", tabindex: "0" });
    const close = iconButton("close", "Close (Escape)", () => send("closeDrawer"));
    const head = element("header", {}, this.title, close);
    this.root = element("section", { class: "panel drawer", hidden: "" }, head, this.body);
  }

  render() {
    const name = this.view.drawer;
    if (this.shown === name) return;
    this.shown = name;
    this.root.hidden = name === null;
    if (name === null) return this.body.replaceChildren();
    const { title, root } = this.pages[name];
    this.title.textContent = title;
    this.root.setAttribute("aria-label", title);
    this.body.replaceChildren(root);
    this.body.scrollTop = 0;
  }

  /** Scroll the part of the open page with this class to the top. @param {string} name */
  scrollTo(name) {
    const part = /** @type {HTMLElement | null} */ (this.body.querySelector(`.${name}`));
    if (part) this.body.scrollTop = part.offsetTop - this.body.offsetTop;
  }
}

const LIMIT_TOPIC = "Why is a weight not the product of its shares?";

const ENTROPY_TOPIC = "Entropy and threshold";
const MOVABLE = " Drag the line to see the tree at another threshold.";
const FIXED =
  " The line of most finished runs can be dragged to see the tree at another threshold; here it " +
  "cannot.";

const TOPICS = [
  [
    "What is this?",
    "A language model continues a prompt, one token (a word or a part of one) at a time. Where it is " +
      "unsure, the text forks, and all branches are written at once: entropy-adaptive branching (EAB).",
  ],
  [
    ENTROPY_TOPIC,
    "Entropy says how unsure the model is about the next token, in nats: 0 if it is certain, 0.69 if " +
      "two tokens are equally likely, 1.1 for three. At or above the threshold (the dashed line), " +
      "a path may fork.",
  ],
  [
    "Shares and weights",
    "The percentage on an edge is the branch's share at its fork. The percentage beside a text is its " +
      "weight: the part of all probability that it stands for. The weights of all texts sum to 100%, " +
      "or to less with the policy beam.",
  ],
  [
    "Which forks decide the answer?",
    "An answer is the first sentence of a text. With “Deciding forks”, a ring marks each fork whose " +
      "branches lead to different answers: the larger it is, the more of the semantic entropy, the " +
      "entropy over answers, the fork causes. Forks without a ring change only the wording, or what " +
      "follows the answer. The rings appear once the run has ended.",
  ],
  [
    "How likely is it that …?",
    "“How likely?” labels the texts that contain a word, match a pattern or are valid JSON. A mark " +
      "labels all that follows the selected token, explored or not. The true probability is certainly " +
      "in the range: its lower end is the texts that were seen, and what was not explored may have any " +
      "label. The estimate is the weight of the texts with the label. More paths explore more.",
  ],
  [
    "Which texts give the same answer?",
    "With “Same answers”, a branch whose texts all begin with the same sentence is one box: its " +
      "heaviest text, with the weight of all. Click “3 texts” after it to see them. Case, spaces, " +
      "punctuation and articles may differ.",
  ],
  [
    "Why does a box say “41 texts, 3%”?",
    "When you zoom out, a branch that is too small to be seen is drawn as one box, with the number of " +
      "its texts and their total weight. Click it or zoom in to see its texts. A text that has no " +
      "room for words is drawn as the entropies of its tokens, side by side.",
  ],
  [
    LIMIT_TOPIC,
    "When there would be more paths than the path limit allows, some are dropped at random, and " +
      "those that are kept become heavier, so that on average no text gains or loses. From then on a " +
      "weight is no longer the product of the shares along its path.",
  ],
  [
    "KV cache",
    "For each token, every attention layer keeps a key and a value (K and V); together they are one " +
      "row of the cache. Branches share the rows of their common beginning; only what differs is " +
      "private. Layers without attention keep a state instead, of which each path has a copy. " +
      "Reserved rows are allocated for the next tokens: r says for how many steps at a time.",
  ],
];

const KEYS = [
  ["Space", "play or pause"],
  ["← →", "one step back or forward"],
  ["Shift + ← →", "previous or next fork"],
  ["Home End", "first or last step"],
  ["↑ ↓", "previous or next path"],
  ["Enter", "inspect a token"],
  ["O", "only the selected path"],
  ["X", "hide the selected branch"],
  ["B", "all branches, or without the small ones"],
  ["W", "fit the whole tree"],
  ["D", "which forks decide the answer"],
  ["A", "texts with the same answer as one box"],
  ["/", "find words"],
  ["L", "how likely is it that a text contains a word?"],
  ["1 to 6", "label all that follows the selected token"],
  ["U", "undo the last change of labels"],
  ["C", "continue the selected text, or all, if cut at the length limit"],
  ["T", "tables"],
  ["P", "presenter"],
  ["Page Down Page Up", "in the presenter: next or previous fork"],
  ["Escape", "close, clear the selection"],
  ["?", "open or close this help"],
];

/** The help: what the charts show, and what each key does. */
export function helpPage() {
  const page = element("div", { class: "help" });
  for (const [title, words] of TOPICS) {
    const name = title === LIMIT_TOPIC ? "limit-topic" : "topic";
    const text = element("p", {}, words);
    if (title === ENTROPY_TOPIC) {
      text.append(element("span", { class: "if-movable" }, MOVABLE));
      text.append(element("span", { class: "if-fixed" }, FIXED));
    }
    page.append(element("h3", { class: name }, title), text);
  }
  const keys = element("dl", { class: "keys", "aria-label": "Keys" });
  for (const [names, words] of KEYS) {
    keys.append(element("dt", {}, names), element("dd", {}, words));
  }
  page.append(element("h3", {}, "Keys"), keys);
  return page;
}
