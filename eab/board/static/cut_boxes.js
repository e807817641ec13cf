// Finds the boxes that an edge of the picture cuts: if only a part of the tree is shown in large
// letters, half a word tells the viewer nothing.

/** @import { TreeView } from "./tree.js" */
/** @import { Path, Point, Size } from "./types.d.ts" */
import { set, shape } from "./elements.js";
import { BOX, MARKS_DRAWN } from "./layout.js";
import { statusAt } from "./path_state.js";

/** @typedef {{ left: number, right: number, top: number, bottom: number }} Edges px */

/** @param {Edges} edges of a box in the tree @param {Point & { k: number }} camera @returns {Edges} */
function onScreen({ left, right, top, bottom }, { x, y, k }) {
  return { left: left * k + x, right: right * k + x, top: top * k + y, bottom: bottom * k + y };
}

/**
 * The edge of the picture that cuts a box; "" if none does.
 * @param {Edges} edges @param {Size} size of the picture
 * @returns {"top" | "bottom" | "left" | "right" | ""}
 */
function cutAt({ left, right, top, bottom }, { width, height }) {
  if (top < 0) return "top";
  if (bottom > height) return "bottom";
  if (left < 0) return "left";
  return right > width ? "right" : "";
}

/** @param {string} cut */
const isCut = (cut) => cut !== "";

/** Whether lines, and not only words, are cut in two. @param {string} cut */
const isCutAcross = (cut) => cut === "top" || cut === "bottom";

export class CutBoxes {
  /** @param {TreeView} tree */
  constructor(tree) {
    this.tree = tree;
    this.view = tree.view;
    this.above = shape("text", { class: "more", x: 2, y: "1em" });
    this.below = shape("text", { class: "more", x: 2 });
    this.areHidden = false;
  }

  /** Hide cut boxes if only a part of the tree is presented. */
  hide() {
    const { tree, view } = this;
    const { camera } = tree;
    const isPart = view.presents && !view.aligned && !camera.holdsAll;
    if (!isPart && !this.areHidden) return;
    this.areHidden = isPart;
    const size = camera.size();
    const half = view.layout.promptHeight / 2;
    const { x, y } = tree.promptEnd();
    const prompt = { left: 0, right: x, top: y - half, bottom: y + half };
    const isOut = cutAt(onScreen(prompt, camera.at), size) !== "";
    tree.prompt.group.classList.toggle("cut", isPart && isOut);
    const paths = view.shownPaths();
    const cuts = paths.map((path) => {
      const edges = tree.boxes.get(path.id)?.edges() ?? this.edgesOf(path);
      return isPart ? cutAt(onScreen(edges, camera.at), size) : "";
    });
    // If all lines are wider than the picture, parts of them are better than nothing.
    const hasWhole = cuts.includes("");
    const isHidden = hasWhole ? isCut : isCutAcross;
    const counts = { top: 0, bottom: 0, left: 0, right: 0, "": 0 };
    for (const [index, path] of paths.entries()) {
      tree.boxes.get(path.id)?.group.classList.toggle("cut", isHidden(cuts[index]));
      if (statusAt(path, view.cursor) !== "forked") counts[cuts[index]] += 1;
    }
    // There is no room for a word over lines that reach from edge to edge.
    this.above.textContent = counts.top && hasWhole ? `▲ ${counts.top} more` : "";
    this.below.textContent = counts.bottom && hasWhole ? `▼ ${counts.bottom} more` : "";
    set(this.below, { y: size.height - 6 });
  }

  /** The edges of an undrawn box with the marks after it. @param {Path} path @returns {Edges} */
  edgesOf(path) {
    const { x, y, width } = this.tree.placeOf(path);
    const half = (this.view.layout.boxHeights[path.id] ?? BOX) / 2;
    return { left: x, right: x + width + MARKS_DRAWN, top: y - half, bottom: y + half };
  }
}
