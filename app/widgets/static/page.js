// The page around the board: Enter in the prompt runs, Shift+Enter breaks the line, and a prompt that
// is being edited is marked at once.

const PROMPT = ".st-key-prompt textarea";
const RETRY = 50; // ms
const TRIES = 200;

/** @param {KeyboardEvent} event */
function runFromPrompt(event) {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  if (!(event.target instanceof HTMLElement) || !event.target.matches(PROMPT)) return;
  event.preventDefault(); // no new line
  // Streamlit has taken the text over: its handler is below the document.
  event.target.blur();
  pressRun(TRIES);
}

/**
 * While the page is being drawn the prompt may be there before the button.
 * @param {number} tries
 */
function pressRun(tries) {
  const [run, stop] = ["run", "stop"].map((name) =>
    document.querySelector(`.st-key-${name}_button button`),
  );
  if (run instanceof HTMLButtonElement) run.click();
  else if (stop === null && tries > 0) setTimeout(pressRun, RETRY, tries - 1);
}

let before = "";

/** @param {Event} event */
function followPrompt(event) {
  if (!(event.target instanceof HTMLTextAreaElement) || !event.target.matches(PROMPT)) return;
  const { value } = event.target;
  if (event.type === "focusin") before = value;
  const edited = event.type === "input" && value !== before;
  document.documentElement.toggleAttribute("data-eab-prompt-edited", edited);
  if (event.type === "focusout") event.target.scrollTop = 0; // shut, it shows the first line
}

/** @type {[string, (event: any) => void][]} */
const LISTENERS = [
  ["keydown", runFromPrompt],
  ["focusin", followPrompt],
  ["input", followPrompt],
  ["focusout", followPrompt],
];

// Streamlit calls this with each drawing of the page.
export default function () {
  if (document.documentElement.dataset.eabPage === "ready") return;
  document.documentElement.dataset.eabPage = "ready";
  for (const [name, follow] of LISTENERS) document.addEventListener(name, follow);
}
