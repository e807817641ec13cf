// The cursor: at which step it is, and how it moves.
//
// What plays by itself plays again and again until the user touches the board. At the end of each
// round, and after a live run, it rests at the step with the most live paths, as the last step often
// has only one.

/** @import { Board } from "./board.js" */
/** @import { Message } from "./types.d.ts" */

const STEPS_PER_SECOND = 6;
const GLIDE_STEPS_PER_SECOND = 12;
const END_MS = 1500; // at the last step, before the cursor goes to where it rests
const REST_MS = 5000; // at rest, before the next round

export class Replay {
  /** @param {Board} board */
  constructor(board) {
    this.board = board;
    this.speed = 1;
    this.cursor = 0;
    this.follow = true;
    this.playing = false;
    this.movedAt = 0; // ms; when playing or gliding last moved the cursor
    this.byItself = false; // whether the board began to play, not the user
    this.loops = false; // whether it then begins again
    this.rests = false; // whether it goes to rest once it has reached the end of a live run
    this.atRest = false; // whether it stands where it went by itself
    this.growing = false; // whether the run on the board was still growing
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.timer = undefined;
  }

  clear() {
    this.close();
    this.cursor = 0;
    this.follow = true;
    this.playing = this.byItself = this.loops = this.rests = this.growing = false;
    this.atRest = false;
  }

  close() {
    clearTimeout(this.timer);
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
    else if (isNewRun && message.graft) this.cursor = lastStep;
    else if (isNewRun && message.autoplay && lastStep > 1) {
      if (reducedMotion.matches) this.rest();
      else this.playByItself();
    } else if (this.follow && !this.playing && !this.glides(isNewRun)) this.cursor = lastStep;
    this.cursor = Math.min(this.cursor, lastStep);
    this.restAfterRun(isNewRun);
  }

  /**
   * A live run has just ended under the eyes of the user, whose cursor followed it.
   * @param {boolean} isNewRun
   */
  restAfterRun(isNewRun) {
    const { run } = this.board;
    if (this.growing && !isNewRun && run.ended && this.follow) {
      this.rests = true;
      this.reachEnd();
    }
    this.growing = run.mode === "live" && !run.ended;
  }

  /** The cursor may have come to the end. */
  reachEnd() {
    if (this.cursor < this.board.lastStep || !(this.rests || this.byItself)) return;
    this.rests = false;
    this.timer = setTimeout(() => this.settle(), END_MS);
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
    this.playing = this.byItself = this.rests = this.atRest = false;
    this.cursor = Math.min(this.board.lastStep, Math.max(0, step));
    this.follow = this.cursor === this.board.lastStep;
    this.board.selection.followCursor();
  }

  /** The user has the board now: what plays by itself plays to its end, but not again. */
  touch() {
    this.loops = this.rests = false;
    if (!this.playing) clearTimeout(this.timer);
  }

  goToEnd() {
    this.goTo(this.board.lastStep);
  }

  /** @param {-1 | 1} direction */
  goToFork(direction) {
    this.goToNext(direction, this.board.records.forkSteps());
  }

  /**
   * What a presenter's remote goes through: the beginning, every fork, the end.
   * @param {-1 | 1} direction
   */
  present(direction) {
    const { lastStep, records } = this.board;
    this.goToNext(direction, [0, ...records.forkSteps(), lastStep]);
  }

  /**
   * @param {-1 | 1} direction
   * @param {number[]} steps the places to choose from
   */
  goToNext(direction, steps) {
    const inOrder = steps.sort((one, other) => direction * (one - other));
    this.goTo(inOrder.find((step) => direction * (step - this.cursor) > 0) ?? this.cursor);
  }

  toggleFollow() {
    if (!this.follow) return this.goToEnd();
    this.follow = false;
    this.board.render();
  }

  toggle() {
    this.byItself = false;
    if (this.playing) this.playing = false;
    else this.play();
    this.board.render();
  }

  play() {
    if (this.cursor >= this.board.lastStep) this.cursor = 0;
    this.playing = true;
    this.follow = this.atRest = false;
    this.movedAt = performance.now();
    this.board.requestFrame();
  }

  playByItself() {
    this.play();
    this.byItself = this.loops = true;
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
    this.reachEnd();
    this.board.render();
  }

  rest() {
    this.cursor = this.board.run.peakStep;
    this.follow = false;
    this.atRest = true;
  }

  /** Rest, and begin again. */
  settle() {
    this.rest();
    this.board.render();
    if (!this.loops) return;
    this.timer = setTimeout(() => {
      this.cursor = 0;
      this.play();
    }, REST_MS);
  }
}
