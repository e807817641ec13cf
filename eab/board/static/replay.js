// The cursor: at which step it is, how it moves, and when it has come to rest.

/** @import { Board } from "./board.js" */
/** @import { Message } from "./types.d.ts" */

const STEPS_PER_SECOND = 6;
const GLIDE_STEPS_PER_SECOND = 12;
const REST_MS = 500;

export class Replay {
  /** @param {Board} board */
  constructor(board) {
    this.board = board;
    this.speed = 1;
    this.cursor = 0;
    this.follow = true;
    this.playing = false;
    this.movedAt = 0; // ms; when playing or gliding last moved the cursor
    this.reported = 0; // where the host knows the cursor to be
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.rest = undefined;
  }

  clear() {
    this.close();
    this.cursor = 0;
    this.follow = true;
    this.playing = false;
  }

  close() {
    clearTimeout(this.rest);
  }

  /**
   * A message has come.
   * @param {boolean} isNewRun
   * @param {Message} message
   */
  onMessage(isNewRun, message) {
    const { lastStep, reducedMotion } = this.board;
    const start = isNewRun ? (message.cursor ?? null) : null;
    if (start !== null) this.goTo(start);
    else if (isNewRun && message.autoplay && lastStep > 1 && !reducedMotion.matches) this.play();
    else if (this.follow && !this.playing && !this.glides(isNewRun)) this.cursor = lastStep;
    this.cursor = Math.min(this.cursor, lastStep);
    if (isNewRun) this.reported = this.cursor;
  }

  /**
   * A small model is faster than the eye: the cursor glides after a live run instead of jumping.
   * @param {boolean} isNewRun
   */
  glides(isNewRun) {
    const { animates, run } = this.board;
    return run.mode === "live" && animates && !(isNewRun && run.ended);
  }

  // ---- what the user does

  /** @param {number} step */
  goTo(step) {
    this.playing = false;
    this.cursor = Math.min(this.board.lastStep, Math.max(0, step));
    this.follow = this.cursor === this.board.lastStep;
    this.board.cursorMoved();
  }

  goToEnd() {
    this.goTo(this.board.lastStep);
  }

  /** @param {-1 | 1} direction */
  goToFork(direction) {
    const steps = this.board.records.forkSteps().sort((one, other) => direction * (one - other));
    this.goTo(steps.find((step) => direction * (step - this.cursor) > 0) ?? this.cursor);
  }

  toggleFollow() {
    if (!this.follow) return this.goToEnd();
    this.follow = false;
    this.board.render();
  }

  toggle() {
    if (this.playing) this.playing = false;
    else this.play();
    this.board.render();
  }

  play() {
    if (this.cursor >= this.board.lastStep) this.cursor = 0;
    this.playing = true;
    this.follow = false;
    this.movedAt = performance.now();
    this.board.requestFrame();
  }

  /** @param {number} times */
  setSpeed(times) {
    this.speed = times;
  }

  // ---- movement

  get gliding() {
    return this.follow && this.cursor < this.board.lastStep;
  }

  /**
   * One frame.
   * @param {number} now ms
   * @returns {boolean} whether the cursor still moves
   */
  tick(now) {
    if (this.playing) this.advance(now, STEPS_PER_SECOND * this.speed, Number.POSITIVE_INFINITY);
    else if (this.gliding) this.glide(now);
    return this.playing || this.gliding;
  }

  /** @param {number} now ms */
  glide(now) {
    const behind = this.board.lastStep - this.cursor;
    this.advance(now, Math.max(GLIDE_STEPS_PER_SECOND, 2 * behind), 0.2);
  }

  /**
   * Move the cursor as far as the time since its last move allows.
   * @param {number} now ms
   * @param {number} speed steps per second
   * @param {number} longest seconds to count at most
   */
  advance(now, speed, longest) {
    const steps = Math.floor(Math.min(longest, (now - this.movedAt) / 1000) * speed);
    if (steps < 1) return;
    this.movedAt = now;
    this.cursor = Math.min(this.board.lastStep, this.cursor + steps);
    if (this.playing && this.cursor === this.board.lastStep) {
      this.playing = false;
      this.follow = true;
    }
    this.board.render();
  }

  /** The host hears where the cursor has come to rest, not where it passes. */
  reportRest() {
    clearTimeout(this.rest);
    const { onCursorRest, run } = this.board;
    const moving = this.playing || (this.follow && !run.ended && run.mode === "live");
    if (moving || this.cursor === this.reported || !onCursorRest || run.key === null) return;
    const key = run.key;
    this.rest = setTimeout(() => {
      this.reported = this.cursor;
      onCursorRest(key, this.cursor);
    }, REST_MS);
  }
}
