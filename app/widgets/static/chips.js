// A text as chips, one per token: the model's own, an accepted draft token, or a rejected one.
// Text is set only through textContent, because model output may look like anything, even HTML.

/** @typedef {"own" | "accepted" | "rejected"} Kind */
/** @typedef {{ kind: Kind, text: string }} Chip */
/** @typedef {(HTMLElement | ShadowRoot) & { __chips?: HTMLElement }} Parent */

/** @type {Record<Kind, { mark: string, name: string }>} */
const KINDS = {
  own: { mark: "", name: "the model's own" },
  accepted: { mark: "✓", name: "accepted draft token" },
  rejected: { mark: "×", name: "rejected draft token, replaced by the next" },
};

/**
 * @param {"span" | "s" | "p"} name
 * @param {string} className
 * @param {string} [text]
 */
function element(name, className, text = "") {
  const made = document.createElement(name);
  made.className = className;
  made.textContent = text;
  return made;
}

/** @param {Chip} chip */
function chipBox({ kind, text }) {
  const { mark, name } = KINDS[kind];
  const box = element("span", `chip ${kind}`);
  box.title = name;
  const sign = element("span", "mark", mark);
  sign.setAttribute("aria-hidden", "true");
  const words = element(kind === "rejected" ? "s" : "span", "", text.replaceAll(" ", "␣"));
  const spoken = element("span", "visually-hidden", kind === "own" ? "" : ` (${name})`);
  box.append(sign, words, spoken);
  return box;
}

function legend() {
  const key = element("p", "key");
  for (const kind of /** @type {Kind[]} */ (Object.keys(KINDS))) {
    key.append(chipBox({ kind, text: "token" }), element("span", "", KINDS[kind].name));
  }
  return key;
}

/** @param {{ data?: { chips: Chip[] } | null, parentElement: Parent }} component */
export default function ({ data, parentElement }) {
  parentElement.__chips ??= parentElement.appendChild(document.createElement("div"));
  const root = parentElement.__chips;
  root.className = "chips";
  const text = element("p", "text");
  text.append(...(data?.chips ?? []).map(chipBox));
  root.replaceChildren(legend(), text);
}
