// Copies a link that opens the run at the step of the cursor.

/** @import { RunStore } from "./run_store.js" */
/** @import { ViewState } from "./view_state.js" */
import { button, icon } from "./buttons.js";
import { element } from "./elements.js";

const SHOWN_MS = 4000;

export class CopyLink {
  /** @param {RunStore} store @param {ViewState} view */
  constructor(store, view) {
    this.store = store;
    this.view = view;
    const help = "Copy a link to this run at this step";
    this.button = button(icon("link"), help, `Copy link: ${help}`, () => this.copy());
    this.button.append("Copy link");
    this.words = element("span", { class: "copied", role: "status", hidden: "" });
    this.root = element("span", { class: "copy-link" }, this.button, this.words);
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.timer = undefined;
  }

  close() {
    clearTimeout(this.timer);
  }

  render() {
    this.root.hidden = !this.store.offers.link;
  }

  async copy() {
    const { cursor } = this.view;
    const { link } = this.store.offers;
    if (!link) return;
    if (!link.query) return this.say(link.words);
    const url = `${location.href.split(/[?#]/)[0]}?${link.query}&cursor=${cursor}`;
    this.say((await copied(url)) ? `Copied. ${link.words}` : `Copy it by hand: ${url}`);
  }

  /** @param {string} words */
  say(words) {
    this.words.textContent = words;
    this.words.hidden = false;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      this.words.hidden = true;
    }, SHOWN_MS);
  }
}

/**
 * Copy the text, and return whether that worked. Browsers offer the clipboard only to secure pages;
 * other pages can copy a selection.
 * @param {string} text
 */
async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const field = element("textarea", { class: "visually-hidden" });
    field.value = text;
    document.body.append(field);
    field.select();
    const done = document.execCommand("copy");
    field.remove();
    return done;
  }
}
