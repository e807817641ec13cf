// The page around the board: Enter in the prompt starts a run, Shift+Enter breaks the line, an
// edited prompt is marked immediately, and the entropies below the threshold follow its slider.

const PROMPT = ".st-key-prompt textarea";
const THRESHOLD = ".st-key-set_threshold_nats";
const RETRY = 50; // ms
const TRIES = 200;

/** @param {KeyboardEvent} event */
function runFromPrompt(event) {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  if (!(event.target instanceof HTMLElement) || !event.target.matches(PROMPT)) return;
  event.preventDefault(); // no new line
  // Streamlit has already taken the text, because its handler is on an inner element.
  event.target.blur();
  pressRun(TRIES);
}

/**
 * While the page is being drawn, the prompt may exist before the button.
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
  if (event.type === "focusout") event.target.scrollTop = 0; // collapsed, it shows the first line
}

/**
 * Streamlit redraws the page only when the slider is released.
 * @param {MutationRecord[]} records
 */
function followThreshold(records) {
  for (const { target, oldValue } of records) {
    if (!(target instanceof HTMLInputElement && target.closest(THRESHOLD))) continue;
    // Streamlit writes the text each time it draws, even if the slider has not moved yet but the
    // sentence is already for its next value.
    const moved = target.getAttribute("aria-valuetext") !== oldValue;
    if (moved) showThreshold(Number(target.value), Number(target.max));
  }
}

/**
 * Show what the threshold means for the entropies; their element counts them per slider step.
 * @param {number} threshold nats
 * @param {number} highest of the slider
 */
function showThreshold(threshold, highest) {
  for (const figure of document.querySelectorAll(".eab-entropies")) {
    const bars = [...figure.querySelectorAll("i")];
    bars.forEach((bar, index) => {
      bar.classList.toggle("fork", (index + 0.5) * (highest / bars.length) >= threshold);
    });
    const perStep = (figure.getAttribute("data-per-step") ?? "").split(",").map(Number);
    const first = Math.round((threshold / highest) * (perStep.length - 1));
    const above = perStep.slice(first).reduce((sum, count) => sum + count, 0);
    write(figure, "choices", Math.exp(threshold).toFixed(1));
    write(figure, "above", above.toLocaleString("en"));
  }
}

/** @param {Element} figure @param {string} name @param {string} words */
function write(figure, name, words) {
  const node = figure.querySelector(`[data-${name}]`);
  if (node && node.textContent !== words) node.textContent = words;
}

const LESSON = "lesson=";
const push = history.pushState.bind(history);

/**
 * Back goes to the page before, or to the step of a lesson before. Streamlit notes each change of the
 * query, such as the run on the page, but draws nothing anew when Back goes to it. It may note the
 * query of a lesson before the path of its page, with which it comes again.
 * @param {unknown} state @param {string} title @param {string | URL | null} [url]
 */
function pushPlace(state, title, url) {
  const { pathname, search } = new URL(url ?? "", location.href);
  if (search.includes(LESSON) && !pathname.endsWith("/learn")) return;
  const inLesson = [search, location.search].every((one) => one.includes(LESSON));
  const isStep = inLesson && search !== location.search;
  if (pathname !== location.pathname || isStep) push(state, title, url);
  else history.replaceState(state, title, url);
}

/** @type {[string, (event: any) => void][]} */
const LISTENERS = [
  ["keydown", runFromPrompt],
  ["focusin", followPrompt],
  ["input", followPrompt],
  ["focusout", followPrompt],
];

/**
 * Streamlit calls this each time it draws the page.
 * @param {{ setTriggerValue: (name: string, value: unknown) => void }} component
 */
export default function ({ setTriggerValue }) {
  if (document.documentElement.dataset.eabPage === "ready") return;
  document.documentElement.dataset.eabPage = "ready";
  for (const [name, follow] of LISTENERS) document.addEventListener(name, follow);
  // Streamlit redraws another page after Back; a lesson also follows the query.
  window.addEventListener("popstate", () => {
    if (location.search.includes(LESSON)) setTriggerValue("went_back", location.search);
  });
  history.pushState = pushPlace;
  const options = { subtree: true, attributeFilter: ["aria-valuetext"], attributeOldValue: true };
  new MutationObserver(followThreshold).observe(document.body, options);
}
