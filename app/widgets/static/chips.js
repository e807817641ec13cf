// A text as chips, one per token: written by the model itself, guessed right, or guessed wrong and replaced.
// Text goes through textContent only: it is the model's, and may look like anything.

const MARKS = { own: "", right: "✓", wrong: "×" };
const NAMES = { own: "the model's own", right: "guessed right", wrong: "guessed wrong, replaced by the next" };

function chip({ kind, text }) {
  const box = document.createElement("span");
  box.className = `chip ${kind}`;
  box.title = NAMES[kind];
  const mark = document.createElement("span");
  mark.className = "mark";
  mark.setAttribute("aria-hidden", "true");
  mark.textContent = MARKS[kind];
  const words = document.createElement(kind === "wrong" ? "s" : "span");
  words.textContent = text.replaceAll(" ", "␣");
  const name = document.createElement("span");
  name.className = "for-readers";
  name.textContent = kind === "own" ? "" : ` (${NAMES[kind]})`;
  box.append(mark, words, name);
  return box;
}

export default function ({ data, parentElement }) {
  const root = (parentElement.__chips ??= parentElement.appendChild(document.createElement("div")));
  root.className = "chips";
  const key = document.createElement("p");
  key.className = "key";
  for (const kind of Object.keys(MARKS)) {
    const entry = chip({ kind, text: "token" });
    const words = document.createElement("span");
    words.textContent = NAMES[kind];
    key.append(entry, words);
  }
  const text = document.createElement("p");
  text.className = "text";
  text.append(...(data?.chips ?? []).map(chip));
  root.replaceChildren(key, text);
}
