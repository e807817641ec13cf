// The replay's controls: play, step, scrub, speed, follow.

/** @import { Board } from "./board.js" */
import { icon, iconButton, setPressed, wordButton } from "./buttons.js";
import { element } from "./elements.js";

const SPEEDS = [0.5, 1, 2, 4];

export class Transport {
  /** @param {Board} board */
  constructor(board) {
    this.board = board;
    const { replay } = board;
    this.root = element("div", { class: "transport", role: "toolbar", "aria-label": "Replay" });
    this.play = iconButton("play", "Play", () => replay.toggle());
    this.play.classList.add("play");
    this.shownPlaying = false;
    this.slider = element("input", {
      type: "range",
      min: 0,
      max: 0,
      value: 0,
      "aria-label": "Step",
    });
    this.slider.oninput = () => replay.goTo(Number(this.slider.value));
    this.stepLabel = element("output", { class: "step-label" });
    this.speed = element("select", { "aria-label": "Speed", title: "Speed" });
    for (const times of SPEEDS) this.speed.append(element("option", { value: times }, `${times}×`));
    this.speed.value = "1";
    this.speed.onchange = () => replay.setSpeed(Number(this.speed.value));
    this.follow = wordButton("Follow", "stay at the newest step", () => replay.toggleFollow());
    this.root.append(
      iconButton("first", "First step", () => replay.goTo(0)),
      iconButton("back", "One step back", () => replay.goTo(replay.cursor - 1)),
      this.play,
      iconButton("forward", "One step forward", () => replay.goTo(replay.cursor + 1)),
      iconButton("last", "Last step, and follow", () => replay.goToEnd()),
      this.slider,
      this.stepLabel,
      this.speed,
      this.follow,
    );
  }

  render() {
    const { cursor, lastStep, replay } = this.board;
    Object.assign(this.slider, { max: lastStep, value: cursor });
    this.slider.setAttribute("aria-valuetext", `step ${cursor} of ${lastStep}`);
    this.stepLabel.textContent = `${cursor} / ${lastStep}`;
    setPressed(this.follow, replay.follow);
    if (this.shownPlaying !== replay.playing) this.renderPlay(replay.playing);
  }

  /** @param {boolean} playing */
  renderPlay(playing) {
    this.shownPlaying = playing;
    const name = playing ? "Pause" : "Play";
    this.play.replaceChildren(icon(playing ? "pause" : "play"));
    this.play.title = name;
    this.play.setAttribute("aria-label", name);
  }
}
