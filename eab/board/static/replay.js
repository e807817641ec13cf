// The cursor: its step, how it moves, and how often the board can draw it.
//
// A replay that the board started repeats until the user touches the board.

/** @import { RunStore } from "./run_store.js" */
/** @import { Message, Send } from "./types.d.ts" */
/** @import { ViewState } from "./view_state.js" */

const SLOW = 45; // ms per frame
const LONGEST = 200; // ms; caps the gap left by a hidden tab
const NEWEST = 0.3; // the weight of the last frame in the mean

/**
 * Measures how long the browser takes for a frame. If it cannot keep up with a run, the board draws
 * less often and boxes jump to their places, so the board stays close to the run.
 */
export class Pace {
  mean = 0; // ms per frame that changed something
  drewAt = 0; // ms; 0 if the last frame changed nothing

  get isSlow() {
    return this.mean > SLOW;
  }

  /** Measure the last frame as the next one starts. @param {number} now ms */
  begin(now) {
    if (!this.drewAt) return;
    this.mean += NEWEST * (Math.min(LONGEST, now - this.drewAt) - this.mean);
    this.drewAt = 0;
  }

  /** Note that the frame changed the pictures and another follows at once. @param {number} now ms */
  drew(now) {
    this.drewAt = now;
  }
}

const STEPS_PER_SECOND = 6;
const GLIDE = { slowest: 12, slowestAtTheEnd: 100, perStepBehind: 5 }; // steps per second
const SLOW_MS = 150; // between pictures of a live run, if the browser is slow
const END_MS = 6000; // at the last step, before the next round

export class Replay {
  /** @param {RunStore} store @param {ViewState} view @param {Send} send @param {Pace} pace */
  constructor(store, view, send, pace) {
    this.store = store;
    this.view = view;
    this.send = send;
    this.pace = pace;
    this.speed = 1;
    this.movedAt = 0; // ms; when playing or gliding last moved the cursor
    this.loops = false; // whether it starts again at the end, as the board started it
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.timer = undefined;
  }

  clear() {
    this.close();
    this.loops = false;
  }

  close() {
    clearTimeout(this.timer);
  }

  /** Handle a message. @param {boolean} isNewRun @param {Message} message */
  onMessage(isNewRun, message) {
    const { lastStep } = this.store;
    const start = isNewRun ? (message.cursor ?? null) : null;
    if (start !== null) this.goTo(start);
    else if (isNewRun && message.graft) this.view.cursor = lastStep;
    else if (isNewRun && message.autoplay && lastStep > 1) {
      if (this.view.animates) this.playByItself();
      else this.view.cursor = lastStep;
    } else if (this.view.follow && !this.view.playing && !this.glides(isNewRun))
      this.view.cursor = lastStep;
    this.view.cursor = Math.min(this.view.cursor, lastStep);
  }

  /** Start again after a pause if a replay by itself has reached the end. */
  reachEnd() {
    if (this.view.cursor < this.store.lastStep || !this.loops) return;
    this.timer = setTimeout(() => this.loops && this.play(), END_MS);
  }

  /**
   * Whether the cursor glides after a live run, not jumps, because a small model outruns the eye.
   * @param {boolean} isNewRun
   */
  glides(isNewRun) {
    const { run } = this.store;
    return run.mode === "live" && this.view.animates && !(isNewRun && run.ended);
  }

  // ---- what the user does

  /** @param {number} step */
  goTo(step) {
    this.view.playing = this.loops = false;
    this.view.cursor = Math.min(this.store.lastStep, Math.max(0, step));
    this.view.follow = this.view.cursor === this.store.lastStep;
    this.send("followCursor");
  }

  /** Note that the user touched the board: a replay by itself plays to its end, but not again. */
  touch() {
    this.loops = false;
    if (!this.view.playing) clearTimeout(this.timer);
  }

  /**
   * @param {-1 | 1} direction
   * @param {number[]} steps to choose from
   */
  goToNext(direction, steps) {
    const inOrder = steps.sort((a, b) => direction * (a - b));
    this.goTo(
      inOrder.find((step) => direction * (step - this.view.cursor) > 0) ?? this.view.cursor,
    );
  }

  toggle() {
    this.loops = false;
    if (this.view.playing) this.view.playing = false;
    else this.play();
    this.send("render");
  }

  play() {
    if (this.view.cursor >= this.store.lastStep) this.view.cursor = 0;
    this.view.playing = true;
    this.view.follow = false;
    this.movedAt = performance.now();
    this.send("animate");
  }

  playByItself() {
    this.play();
    this.loops = true;
  }

  // ---- movement

  /**
   * Move the cursor by one frame.
   * @param {number} now ms
   * @returns {boolean} whether the cursor still moves
   */
  tick(now) {
    if (this.view.playing)
      this.advance(now, STEPS_PER_SECOND * this.speed, Number.POSITIVE_INFINITY);
    else if (this.view.gliding) this.glide(now);
    return this.view.playing || this.view.gliding;
  }

  /** @param {number} now ms */
  glide(now) {
    if (this.pace.isSlow && now - this.movedAt < SLOW_MS) return;
    const behind = this.store.lastStep - this.view.cursor;
    const slowest = this.store.isGrowing ? GLIDE.slowest : GLIDE.slowestAtTheEnd;
    this.advance(now, Math.max(slowest, GLIDE.perStepBehind * behind), 0.2);
  }

  /**
   * Move the cursor as far as the time since its last move allows.
   * @param {number} now ms
   * @param {number} speed steps per second
   * @param {number} longest seconds to count, at most
   */
  advance(now, speed, longest) {
    const steps = Math.floor(Math.min(longest, (now - this.movedAt) / 1000) * speed);
    if (steps < 1) return;
    this.movedAt = now;
    this.view.cursor = Math.min(this.store.lastStep, this.view.cursor + steps);
    if (this.view.playing && this.view.cursor === this.store.lastStep) {
      this.view.playing = false;
      this.view.follow = true;
    }
    this.reachEnd();
    this.send("render");
  }
}
