// The frame of a picture: its title, legend, sentence and downloads.

/** @import { Board } from "./board.js" */
/** @import { PictureArea, Sentences } from "./types.d.ts" */
import { button, icon } from "./buttons.js";
import { element } from "./elements.js";
import { savePng, saveSvg } from "./pictures.js";

/**
 * @typedef LegendEntry
 * @property {string} words
 * @property {string} help
 * @property {string} [swatch] its class
 * @property {"unknowns" | "diff"} [only] where it is shown, if not always
 */

/** @type {Record<keyof Sentences, LegendEntry[]>} */
const LEGENDS = {
  tree: [
    {
      swatch: "e0",
      words: "sure",
      help: "Low entropy: one next token is much more likely than the others.",
    },
    {
      swatch: "e2",
      words: "fairly sure",
      help: "The entropy is half the threshold or more, but below it.",
    },
    {
      swatch: "e3",
      words: "unsure: at or above the threshold",
      help: "High entropy: several next tokens are about as likely. Here a path may fork.",
    },
    { words: "◆ fork", help: "The path goes on as several paths from here." },
    { words: "■ ended", help: "The model ended this text." },
    {
      words: "… length limit",
      help: "This text reached the longest length that the settings allow.",
    },
    { words: "× pruned", help: "This path was dropped because of the path limit." },
    {
      only: "unknowns",
      words: "◇ unknown until run",
      help: "At these settings something else may happen here; only the model can tell.",
    },
    { only: "diff", swatch: "both-key", words: "both runs", help: "Text that is in both runs." },
    { only: "diff", swatch: "a-key", words: "only A", help: "Text that only run A has." },
    { only: "diff", swatch: "b-key", words: "only B", help: "Text that only run B has." },
  ],
  entropy: [
    {
      swatch: "trace-key",
      words: "one line per path",
      help: "How unsure the model was at each token, in nats.",
    },
    { words: "◆ fork", help: "The path forked here." },
  ],
  memory: [
    {
      swatch: "shared-key",
      words: "shared",
      help:
        "Rows of the KV cache that several paths use. " +
        "A row is the keys and values of one token in all layers.",
    },
    { swatch: "private-key", words: "private", help: "Rows that one path uses alone." },
    {
      swatch: "spare-key",
      words: "reserved",
      help: "Rows that are allocated for the next tokens, but not used yet.",
    },
    {
      swatch: "independent-key",
      words: "separate caches",
      help: "What the cache would take if each path had one of its own.",
    },
  ],
};

/** @param {LegendEntry[]} entries */
function legend(entries) {
  const key = element("span", { class: "key" });
  for (const { swatch, words, only, help } of entries) {
    const where = only ? ` only-${only}` : "";
    const entry = element("span", { class: `key-entry${where}`, title: help });
    if (swatch) entry.append(element("i", { class: `swatch ${swatch}` }));
    entry.append(words);
    key.append(entry);
  }
  return key;
}

export class Panel {
  /**
   * @param {Board} board
   * @param {keyof Sentences} name
   * @param {string} title
   * @param {{ svg: SVGSVGElement, pictureArea?: () => PictureArea | null }} view
   */
  constructor(board, name, title, view) {
    this.board = board;
    this.name = name;
    this.view = view;
    this.root = element("section", { class: `panel ${name}-panel` });
    this.sentence = element("p", { class: "sentence" });
    const saves = element("span", { class: "saves" });
    saves.append(this.save("SVG", title, saveSvg), this.save("PNG", title, savePng));
    const head = element("header");
    head.append(element("h3", {}, title), legend(LEGENDS[name]), saves);
    this.root.append(head, this.sentence, view.svg);
  }

  /**
   * @param {string} kind
   * @param {string} title
   * @param {typeof saveSvg} action
   */
  save(kind, title, action) {
    const help = `Download the ${title === "KV cache" ? title : title.toLowerCase()} as ${kind}`;
    const made = button(icon("download"), help, help, () => {
      action(this.view.svg, this.name, this.view.pictureArea?.() ?? null);
    });
    made.append(kind);
    return made;
  }

  /** @param {...Element} controls what belongs between the sentence and the picture */
  addControls(...controls) {
    this.sentence.after(...controls);
  }

  render() {
    this.sentence.textContent = this.board.sentences()[this.name];
  }
}
