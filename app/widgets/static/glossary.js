// Technical terms are links to #term-...; hover, focus and tap show their explanation.

const TERM = '.stMarkdown a[href^="#term-"]';
const ID = "eab-term-text";
const GAP = 6; // px between the word and its explanation

/** The explanation of each term, by its id. @type {Map<string, { name: string, text: string }>} */
const texts = new Map();

function box() {
  const found = document.getElementById(ID);
  if (found) return found;
  const made = document.createElement("div");
  made.id = ID;
  made.className = ID;
  made.setAttribute("role", "tooltip");
  made.hidden = true;
  document.body.append(made);
  return made;
}

/** @param {Event} event */
function termOf(event) {
  return event.target instanceof Element ? event.target.closest(TERM) : null;
}

/** @param {Event} event */
function show(event) {
  const word = termOf(event);
  if (word === null) return;
  if (event.type === "click") event.preventDefault(); // keep the URL
  const term = texts.get((word.getAttribute("href") ?? "").slice("#term-".length));
  if (!term) return;
  const shown = box();
  const name = document.createElement("strong");
  name.textContent = `${term.name}: `;
  shown.replaceChildren(name, term.text);
  shown.hidden = false;
  word.setAttribute("aria-describedby", ID);
  place(shown, word.getBoundingClientRect());
}

/**
 * Below the word, or above it if there is no room below.
 * @param {HTMLElement} shown
 * @param {DOMRect} word
 */
function place(shown, word) {
  const { width, height } = shown.getBoundingClientRect();
  const left = Math.min(word.left, innerWidth - width - 8);
  const below = word.bottom + GAP;
  const top = below + height > innerHeight ? word.top - GAP - height : below;
  shown.style.left = `${Math.max(8, left)}px`;
  shown.style.top = `${Math.max(8, top)}px`;
}

function hide() {
  box().hidden = true;
}

/** @param {KeyboardEvent} event */
function hideByKey(event) {
  if (event.key === "Escape") hide();
}

/** @param {Event} event */
function hideElsewhere(event) {
  if (termOf(event) === null) hide();
}

/** @type {[string, (event: any) => void][]} */
const LISTENERS = [
  ["pointerover", show],
  ["focusin", show],
  ["click", show],
  ["pointerout", hide],
  ["focusout", hide],
  ["keydown", hideByKey],
  ["pointerdown", hideElsewhere],
];

// Streamlit calls this each time it draws the page.
/** @param {{ data: [id: string, name: string, text: string][] }} component */
export default function ({ data }) {
  for (const [id, name, text] of data ?? []) texts.set(id, { name, text });
  if (document.documentElement.dataset.eabGlossary === "ready") return;
  document.documentElement.dataset.eabGlossary = "ready";
  for (const [name, follow] of LISTENERS) document.addEventListener(name, follow);
  document.addEventListener("scroll", hide, { capture: true, passive: true });
}
