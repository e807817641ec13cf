// The cursor in time: where it stands, how it moves by itself, and what makes it rest.

const STEPS_PER_SECOND = 6;
const GLIDE_STEPS_PER_SECOND = 12;
const REST_MS = 500;

export class Replay {
  constructor(board) {
    this.board = board;
    this.speed = 1;
    this.forget();
  }

  forget() {
    clearTimeout(this.resting);
    Object.assign(this, { cursor: 0, follow: true, playing: false });
  }

  // A message has come. fresh: of a run that is new to the board.
  arrived(fresh, message) {
    if (fresh && Number.isInteger(message.cursor)) this.goTo(message.cursor);
    else if (fresh && message.autoplay && this.board.lastStep > 1 && !this.board.still.matches) this.play();
    else if (this.follow && !this.playing && !this.glides(fresh)) this.cursor = this.board.lastStep;
    this.cursor = Math.min(this.cursor, this.board.lastStep);
    if (fresh) this.restedAt = this.cursor;
  }

  // A small model is faster than the eye: while a run is live the cursor glides after it instead of jumping.
  glides(fresh) {
    return this.board.mode === "live" && this.board.animates && !(fresh && this.board.ended);
  }

  goTo(step) {
    this.playing = false;
    this.cursor = Math.min(this.board.lastStep, Math.max(0, step));
    this.follow = this.cursor === this.board.lastStep;
    this.board.moved();
  }

  goToEnd() {
    this.goTo(this.board.lastStep);
  }

  goToFork(direction) {
    const steps = this.board.records.forkSteps().sort((a, b) => direction * (a - b));
    this.goTo(steps.find((step) => direction * (step - this.cursor) > 0) ?? this.cursor);
  }

  toggleFollow() {
    if (!this.follow) return this.goToEnd();
    this.follow = false;
    this.board.render();
  }

  play() {
    if (this.cursor >= this.board.lastStep) this.cursor = 0;
    Object.assign(this, { playing: true, follow: false, playedAt: performance.now() });
    this.board.wake();
  }

  toggle() {
    if (this.playing) this.playing = false;
    else this.play();
    this.board.render();
  }

  get chasing() {
    return this.follow && this.cursor < this.board.lastStep;
  }

  // One frame; whether the cursor goes on moving.
  tick(now) {
    if (this.playing) this.advance(now);
    else if (this.chasing) this.glide(now);
    return this.playing || this.chasing;
  }

  glide(now) {
    const speed = Math.max(GLIDE_STEPS_PER_SECOND, 2 * (this.board.lastStep - this.cursor));
    const due = Math.min(0.2, (now - (this.glidedAt ?? now)) / 1000) * speed;
    this.glidedAt ??= now;
    if (due < 1) return;
    this.glidedAt = now;
    this.cursor = Math.min(this.board.lastStep, this.cursor + Math.floor(due));
    this.board.render();
  }

  advance(now) {
    const due = (now - this.playedAt) / 1000 * STEPS_PER_SECOND * this.speed;
    if (due < 1) return;
    this.playedAt = now;
    this.cursor = Math.min(this.board.lastStep, this.cursor + Math.max(1, Math.floor(due)));
    if (this.cursor === this.board.lastStep) Object.assign(this, { playing: false, follow: true });
    this.board.render();
  }

  // Not while the cursor moves by itself: the host only hears where it came to rest.
  rest() {
    clearTimeout(this.resting);
    const moving = this.playing || (this.follow && !this.board.ended && this.board.mode === "live");
    if (moving || this.cursor === this.restedAt) return;
    this.resting = setTimeout(() => this.board.rested?.(this.board.run, (this.restedAt = this.cursor)), REST_MS);
  }
}
