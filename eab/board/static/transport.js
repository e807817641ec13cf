// The replay's controls: play, step, scrub, speed, follow.

/** @import { RunStore } from "./run_store.js" */
/** @import { Send } from "./types.d.ts" */
/** @import { ViewState } from "./view_state.js" */
import { icon, iconButton, setPressed, wordButton } from "./buttons.js";
import { element } from "./elements.js";

const SPEEDS = [0.5, 1, 2, 4];

export class Transport {
  /** @param {RunStore} store @param {ViewState} view @param {Send} send */
  constructor(store, view, send) {
    this.store = store;
    this.view = view;
    this.play = iconButton("play", "Play", () => send("togglePlay"));
    this.play.classList.add("play");
    this.shownPlaying = false;
    const range = { type: "range", min: 0, max: 0, value: 0 };
    this.slider = element("input", { ...range, "aria-label": "Step" });
    this.slider.oninput = () => send("goTo", Number(this.slider.value));
    this.stepLabel = element("output", { class: "step-label" });
    this.speed = element("select", { "aria-label": "Speed", title: "Speed" });
    for (const times of SPEEDS) this.speed.append(element("option", { value: times }, `${times}×`));
    this.speed.value = "1";
    this.speed.onchange = () => send("setSpeed", Number(this.speed.value));
    this.follow = wordButton("Follow", "stay at the newest step", () => send("toggleFollow"));
    this.root = element(
      "div",
      { class: "transport", role: "toolbar", "aria-label": "Replay" },
      iconButton("first", "First step", () => send("goTo", 0)),
      iconButton("back", "One step back", () => send("step", -1)),
      this.play,
      iconButton("forward", "One step forward", () => send("step", 1)),
      iconButton("last", "Last step, and follow", () => send("goToEnd")),
      this.slider,
      this.stepLabel,
      this.speed,
      this.follow,
    );
  }

  render() {
    const { cursor, follow, playing } = this.view;
    const { lastStep } = this.store;
    Object.assign(this.slider, { max: lastStep, value: cursor });
    this.slider.setAttribute("aria-valuetext", `step ${cursor} of ${lastStep}`);
    this.stepLabel.textContent = `${cursor} / ${lastStep}`;
    setPressed(this.follow, follow);
    if (this.shownPlaying !== playing) this.renderPlay(playing);
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
