// A class: the lecturer's tab reports to Python what its board shows, and the board in a student's
// tab is told what to show. The boards are other components, which communicate through events of
// the document (eab/board/static/streamlit.js).

/** @typedef {{ run: string, cursor: number | null, token: [number, number] | null }} Look */
/** @typedef {{ leads: boolean, lead: (Look & { id: string }) | null, covered: boolean, drawing: number }} Data */
/** @typedef {(HTMLElement | ShadowRoot) & { __reporter?: Reporter }} Parent */

const REPORT_MS = 100; // between reports

/** Reports to Python what the board shows, no more often than Python can pass it on. */
class Reporter {
  /** @param {(look: Look) => void} send */
  constructor(send) {
    this.send = send;
    this.last = "";
    /** @type {Look | null} */
    this.next = null;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.timer = undefined;
    this.closing = new AbortController();
    document.addEventListener(
      "eab-look",
      (event) => this.hear(/** @type {CustomEvent<Look>} */ (event).detail),
      { signal: this.closing.signal },
    );
    document.dispatchEvent(new CustomEvent("eab-look-asked"));
  }

  /** @param {Look} look */
  hear(look) {
    const text = JSON.stringify(look);
    if (text === this.last) return;
    this.last = text;
    this.next = look;
    this.timer ??= setTimeout(() => this.report()); // waits: a led board passes through other looks
  }

  report() {
    if (this.next !== null) this.send(this.next);
    this.timer = this.next === null ? undefined : setTimeout(() => this.report(), REPORT_MS);
    this.next = null;
  }

  close() {
    clearTimeout(this.timer);
    this.closing.abort();
  }
}

// A board that is alone in the window has the bar above it, or below the question that it asks.
document.addEventListener("eab-alone", (event) => {
  const bar = document.querySelector(".st-key-class_bar");
  if (!(bar instanceof HTMLElement) || !bar.showPopover) return;
  bar.popover = null; // also hides it; shown again, it is above the board
  if (!(/** @type {CustomEvent<boolean>} */ (event).detail)) return;
  bar.popover = "manual";
  bar.showPopover();
});

/** @param {{ data?: [Data] | null, parentElement: Parent, setStateValue: (name: string, value: unknown) => void }} component */
export default function ({ data, parentElement, setStateValue }) {
  const [{ leads, lead, covered }] = data ?? [
    { leads: false, lead: null, covered: false, drawing: 0 },
  ];
  const { documentElement: page } = document;
  page.toggleAttribute("data-eab-covered", covered);
  const wanted = lead === null ? "" : JSON.stringify(lead);
  if ((page.dataset.eabLead ?? "") !== wanted) {
    page.dataset.eabLead = wanted;
    document.dispatchEvent(new CustomEvent("eab-lead"));
  }
  if (leads) {
    parentElement.__reporter ??= new Reporter((look) => setStateValue("look", look));
    parentElement.__reporter.send = (look) => setStateValue("look", look);
  } else {
    parentElement.__reporter?.close();
    delete parentElement.__reporter;
  }
  return () => {
    const host = parentElement instanceof ShadowRoot ? parentElement.host : parentElement;
    if (host.isConnected) return; // Streamlit also cleans up after an earlier call
    parentElement.__reporter?.close();
    delete parentElement.__reporter;
    delete page.dataset.eabLead;
    delete page.dataset.eabCovered;
  };
}
