// One box for a branch that is too small on the screen for one line per text: it shows how many
// texts the branch has and their total weight. The box is as high as the branch; a click brings the
// camera closer, and then the texts are drawn.

/** @import { Path } from "./types.d.ts" */
/** @import { TreeView } from "./tree.js" */
import { set, shape } from "./elements.js";
import { percent } from "./format.js";
import { BOX } from "./layout.js";
import { statusAt, weightAt } from "./path_state.js";

const WORDS_X = 6; // px on the screen, from the left edge of the box
const WORDS = { smallest: 8, largest: 11 }; // px on the screen; lower boxes have no words
const LOWEST = 3; // px on the screen
const NARROWEST = 70; // px on the screen
const GAP = 1; // px on the screen between two boxes

export class SummaryBox {
  /** @param {TreeView} tree @param {Path} path that the branch begins with */
  constructor(tree, path) {
    this.tree = tree;
    this.view = tree.view;
    this.path = path;
    this.frame = shape("rect", { class: "frame", rx: 3 });
    this.text = shape("text", { class: "summary-words", y: 4 });
    this.help = shape("title");
    const state = {
      class: "box summary",
      role: "treeitem",
      tabindex: "-1",
      "data-branch": path.id,
    };
    this.group = shape("g", state, this.frame, this.text, this.help);
    this.edge = shape("path", { class: "edge" });
    tree.boxLayer.append(this.group);
    tree.edgeLayer.append(this.edge);
    /** The path and all that grew from it. @type {Path[]} */
    this.all = [];
    this.changes = -1; // `branches.changes` when `all` was found
    this.words = "";
    this.group.addEventListener("pointerenter", () => tree.send("hover", path.id));
    this.group.addEventListener("pointerleave", () => tree.send("hover", null));
  }

  remove() {
    if (this.group.matches(":focus")) this.tree.send("takeFocus");
    this.group.remove();
    this.edge.remove();
  }

  /** Show what the branch contains at the cursor. */
  render() {
    const { cursor, found, branches } = this.view;
    if (this.changes !== branches.changes) {
      this.changes = branches.changes;
      this.all = this.tree.inSight.allFrom(this.path);
    }
    const begun = this.all.filter((path) => this.view.hasStarted(path));
    this.group.classList.toggle("hidden", !begun.length);
    this.edge.classList.toggle("hidden", !begun.length);
    if (!begun.length) return;
    const ends = ["live", "finished"];
    const texts = begun.filter((path) => ends.includes(statusAt(path, cursor)));
    const weight = texts.reduce((sum, path) => sum + weightAt(path, cursor), 0);
    const highlight = this.view.classOf(this.path.id);
    const isFound = begun.some(({ id }) => found.has(id));
    set(this.group, { class: `box summary${highlight}${isFound ? " found" : ""}` });
    set(this.edge, { class: `edge${highlight}` });
    this.edge.style.strokeWidth = (1 + 6 * Math.sqrt(weight)).toFixed(2);
    const words = texts.length ? this.wordsOf(texts.length, weight) : droppedWords(begun, cursor);
    if (words === this.words) return;
    this.words = this.text.textContent = words;
    this.help.textContent = `${words}: too small to be drawn here. Zoom in, or click.`;
    set(this.group, { "aria-label": this.help.textContent });
  }

  /** @param {number} count @param {number} weight */
  wordsOf(count, weight) {
    const words = `${count} ${count === 1 ? "text" : "texts"}`;
    return this.tree.store.sides ? words : `${words}, ${percent(weight)}`;
  }

  /** Place the box; its words keep their size on the screen. */
  draw() {
    const { tree } = this;
    const room = tree.inSight.rooms.get(this.path.id);
    if (!room) return;
    const { k, x: left } = tree.camera.at;
    const spread = tree.spread();
    const { x } = tree.placeOf(this.path);
    const y = ((room.low + room.high) / 2) * spread;
    const height = Math.max(LOWEST, ((room.high - room.low) * spread + BOX * spread) * k - GAP);
    const width = Math.max(NARROWEST, (room.right - x) * k);
    set(this.group, {
      transform: `translate(${x.toFixed(1)} ${y.toFixed(1)}) scale(${(1 / k).toFixed(3)})`,
    });
    set(this.frame, {
      width: width.toFixed(1),
      height: height.toFixed(1),
      y: (-height / 2).toFixed(1),
    });
    const start = tree.endOf(this.path.parent);
    const middle = ((start.x + x) / 2).toFixed(1);
    const [fromX, fromY, toX, toY] = [start.x, start.y, x, y].map((value) => value.toFixed(1));
    const d = `M${fromX} ${fromY}C${middle} ${fromY} ${middle} ${toY} ${toX} ${toY}`;
    set(this.edge, { d });
    set(this.text, { x: (WORDS_X + Math.max(0, -left - x * k)).toFixed(1) }); // kept in view
    this.text.classList.toggle("hidden", height < WORDS.smallest);
    set(this.text, { "font-size": Math.min(WORDS.largest, height).toFixed(1) });
  }
}

/** @param {Path[]} paths @param {number} step */
function droppedWords(paths, step) {
  return `${paths.filter((path) => statusAt(path, step) === "pruned").length} dropped`;
}
