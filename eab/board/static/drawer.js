// The drawer over the charts, always visible: shows one page at a time that the user opened.

/** @import { Send } from "./types.d.ts" */
/** @import { ViewState } from "./view_state.js" */
import { iconButton } from "./buttons.js";
import { element } from "./elements.js";

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
