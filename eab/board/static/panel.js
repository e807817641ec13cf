// The frame of a chart: title, legend, sentence and downloads.

/** @import { RunStore } from "./run_store.js" */
/** @import { PictureArea, Sentences } from "./types.d.ts" */
/** @import { ViewState } from "./view_state.js" */
import { button, element, icon } from "./elements.js";
import { isSpread } from "./entropy_lines.js";
import { forkCaption, hasMissed } from "./fork_reasons.js";
import { savePng, saveSvg } from "./pictures.js";

/**
 * @typedef LegendEntry
 * @property {string} words
 * @property {string} [detail] more words, hidden when presenting
 * @property {boolean} [isDetail] whether the entry is hidden when presenting
 * @property {string} help
 * @property {string} [swatch] its class
 * @property {"unknowns" | "diff" | "graft" | "missed" | "pruned" | "drawn" | "folded" | "joined" | "spread" | "deciding" | "bands" | "states" | "reused"} [only] where it is shown, if not always
 * @property {"diff" | "spread" | "own-memory" | "diff not-outline"} [notIn] where it is not shown
 */

/** @satisfies {Omit<LegendEntry, "isDetail" | "notIn">} */
const MISSED = {
  only: /** @type {const} */ ("missed"),
  swatch: "missed-key",
  words: "unsure, no fork",
  help: "The minimum weight or the path limit kept the path from forking: point at a token to see which.",
};

/** @type {Record<keyof Sentences, LegendEntry[]>} */
const LEGENDS = {
  tree: [
    {
      swatch: "sure",
      words: "sure",
      help: "Low entropy: one next token is much more likely than the others.",
    },
    {
      swatch: "fairly-sure",
      words: "fairly sure",
      help: "The entropy is half the threshold or more, but below it.",
    },
    {
      swatch: "unsure",
      words: "unsure",
      detail: " (at or above the threshold)",
      help: "High entropy: several next tokens are about equally likely. Here a path may fork.",
    },
    { words: "◆ fork", help: "The path goes on as several paths from here." },
    { ...MISSED, isDetail: true },
    {
      isDetail: true,
      notIn: "diff not-outline",
      words: "48% on an edge: share",
      help: "How much of its parent's weight this branch received.",
    },
    {
      isDetail: true,
      notIn: "diff",
      words: "12% beside a text: weight",
      help:
        "The part of all probability that this text stands for. The weights sum to 100%, or to " +
        "less with the policy beam.",
    },
    {
      isDetail: true,
      only: "diff",
      words: "A 12% beside a text: weight in A",
      help:
        "The part of all probability that the text stands for in run A. A text that both runs have " +
        "has two weights.",
    },
    { isDetail: true, words: "■ ended", help: "The model ended this text." },
    {
      isDetail: true,
      words: "→ length limit",
      help: "This text reached the longest length that the settings allow.",
    },
    {
      isDetail: true,
      only: "pruned",
      words: "× dropped",
      help: "This path was dropped because of the path limit.",
    },
    {
      isDetail: true,
      only: "drawn",
      words: "others: all other tokens",
      help: "A dashed branch: one token was drawn from all without a branch of their own, and stands for them.",
    },
    {
      isDetail: true,
      only: "folded",
      words: "2 more, 5%: not drawn",
      help:
        "Texts that were dropped, have a very small weight, or have no room in this tree are not " +
        "drawn. Click to see them.",
    },
    {
      isDetail: true,
      only: "joined",
      words: "3 texts: one answer",
      help:
        "Texts with the same first sentence are one box with their total weight. It shows the " +
        "heaviest of them. Click to see the others.",
    },
    {
      only: "deciding",
      swatch: "deciding-key",
      words: "decides the first sentence",
      help:
        "The larger the ring, the larger the part of the semantic entropy, the entropy over first " +
        "sentences, that this fork causes. A fork without a ring changes only the wording, or what " +
        "follows.",
    },
    {
      only: "unknowns",
      words: "◇ unknown until run",
      help: "At these settings something else may happen here; only the model can tell.",
    },
    {
      only: "graft",
      swatch: "b-key",
      words: "grown from the token you chose",
      help: "What the new run wrote.",
    },
    { only: "diff", swatch: "both-key", words: "both runs", help: "Text that is in both runs." },
    { only: "diff", swatch: "a-key", words: "only A", help: "Text that only run A has." },
    { only: "diff", swatch: "b-key", words: "only B", help: "Text that only run B has." },
  ],
  entropy: [
    {
      swatch: "trace-key",
      words: "a path",
      help:
        "How unsure the model was at each token, in nats. With more than eight texts, or more than " +
        "a thousand steps, only the text that you point at or have selected has a line, or else " +
        "the heaviest one.",
    },
    {
      only: "spread",
      swatch: "spread-key",
      words: "all paths, quartiles",
      help:
        "At each step, the entropies of all paths lie in the light band, and those of the middle " +
        "half of them in the dark one.",
    },
    {
      notIn: "diff",
      swatch: "threshold-key",
      words: "threshold",
      help: "At or above this entropy a path may fork. In the app, drag the line to try another threshold.",
    },
    { words: "◆ fork", help: "The path forked here." },
    { ...MISSED, notIn: "spread" },
    {
      only: "bands",
      swatch: "band-key",
      words: "all tokens",
      help:
        "Only the most likely tokens are known. The entropy over all tokens, on a server before " +
        "temperature and filters, lies in this band for certain.",
    },
  ],
  memory: [
    {
      notIn: "own-memory",
      swatch: "shared-key",
      words: "shared",
      help:
        "Rows of the KV cache that several paths use. " +
        "A row is the keys and values of one token in all layers.",
    },
    { swatch: "private-key", words: "private", help: "What one path uses alone." },
    {
      only: "states",
      swatch: "state-key",
      words: "state",
      help:
        "What layers without attention keep of a text. It has the same size whatever the length " +
        "of the text, and each path has a copy.",
    },
    {
      only: "reused",
      swatch: "reused-key",
      words: "prefix cache",
      help:
        "Rows of the prompt that another run has computed. They are in memory once, for all runs " +
        "that begin with the same tokens.",
    },
    {
      notIn: "own-memory",
      swatch: "spare-key",
      words: "reserved",
      help: "Rows that are allocated for the next tokens, but not used yet.",
    },
    {
      swatch: "independent-key",
      words: "separate caches",
      help: "What would be held if each path had a cache of its own that grows by the same r.",
    },
  ],
};

/** @param {LegendEntry[]} entries */
function legend(entries) {
  const key = element("span", { class: "key" });
  // Entries that are shown only sometimes come last, so nothing moves when they appear.
  const inOrder = [...entries.filter(({ only }) => !only), ...entries.filter(({ only }) => only)];
  for (const { swatch, words, detail, isDetail, only, notIn, help } of inOrder) {
    const where = `${only ? ` only-${only}` : ""}${notIn ? ` not-${notIn}` : ""}`;
    const kind = `key-entry${isDetail ? " detail" : ""}${where}`;
    const entry = element("span", { class: kind, title: help });
    if (swatch) entry.append(element("i", { class: `swatch ${swatch}` }));
    entry.append(words);
    if (detail) entry.append(element("span", { class: "detail" }, detail));
    key.append(entry);
  }
  return key;
}

/**
 * Set classes so that a legend names only what is in the picture.
 * @param {HTMLElement} root of the board
 * @param {RunStore} store @param {ViewState} view
 */
export function markLegends({ classList }, store, view) {
  const shown = view.shownPaths();
  const kinds = {
    "has-missed": shown.some((path) => hasMissed(store, path)),
    "has-bands": store.hasBands,
    "has-states": store.hasStates,
    "has-reused": store.hasReused,
    "own-memory": store.run.cache === "own",
    spread: isSpread(store, view),
    "has-deciding": view.showsDeciding,
    "has-drawn": !store.sides && shown.some(({ drawn }) => drawn),
    "has-folded": view.branches.byFork.size > 0,
    "has-joined": view.branches.boxes.size > 0,
    "has-pruned": shown.some(({ status }) => status === "pruned"),
  };
  for (const [kind, isThere] of Object.entries(kinds)) classList.toggle(kind, isThere);
}

export class Panel {
  /**
   * @param {RunStore} store @param {ViewState} view @param {keyof Sentences} name
   * @param {string} title
   * @param {{ svg: SVGSVGElement, pictureArea?: () => PictureArea | null, pictureDone?: () => void }} drawing
   */
  constructor(store, view, name, title, drawing) {
    this.store = store;
    this.view = view;
    this.name = name;
    this.drawing = drawing;
    this.title = title;
    this.sentence = element("p", { class: "sentence" });
    this.key = legend(LEGENDS[name]);
    this.picture = element("div", { class: "picture" }, drawing.svg);
    const downloads = [this.save("SVG", saveSvg), this.save("PNG", savePng)];
    const saves = element("span", { class: "saves" }, ...downloads);
    this.head = element("header", {}, element("h2", {}, title), saves);
    const parts = [this.head, this.sentence, this.picture, this.key];
    this.root = element("section", { class: `panel ${name}-panel` }, ...parts);
  }

  /** @param {string} kind @param {typeof saveSvg} action */
  save(kind, action) {
    const { title } = this;
    const help = `Download the ${title === "KV cache" ? title : title.toLowerCase()} as ${kind}`;
    const made = button(icon("download"), help, `${kind}: ${help}`, () => {
      const { file, about } = this.store.run;
      action(this.drawing.svg, `${file}-${this.name}`, {
        area: this.drawing.pictureArea?.() ?? null,
        title: `${title}, step ${this.view.cursor} of ${this.store.lastStep}`,
        sentence: this.sentence.textContent ?? "",
        about,
        key: this.key,
      });
      this.drawing.pictureDone?.();
    });
    made.append(kind);
    return made;
  }

  /** @param {...Element} controls to put before the downloads */
  addControls(...controls) {
    this.head.lastElementChild?.before(...controls);
  }

  render() {
    const { store, name } = this;
    const sentences = store.sentencesAt(this.view.cursor);
    const note = store.notes[name] || this.caption();
    const all = note || sentences[name];
    const isShort = name === "memory" && !note && this.view.presents;
    const words = isShort ? withoutReasons(all) : all;
    if (this.sentence.textContent === words) return;
    this.sentence.textContent = words;
    this.sentence.title = all;
  }

  caption() {
    if (this.name !== "tree") return "";
    const deciding = this.view.showsDeciding ? this.store.deciding.sentence : "";
    return deciding || forkCaption(this.store, this.view);
  }
}

/**
 * Keep only what is held, how much of it is in a prefix cache, and what was saved at the peak. In
 * large letters, the reasons would leave no room for the picture.
 * @param {string} words
 */
function withoutReasons(words) {
  const sentences = words.split(/(?<=\.) (?=[A-Z])/);
  return sentences.filter((one, at) => at === 0 || /^(At step|Of the) /.test(one)).join(" ");
}
