// How long the browser takes for a frame: where it cannot keep up with a run, pictures come less often
// and boxes go to their places at once, so that the board stays close to the run.

const SLOW = 45; // ms a frame
const LONGEST = 200; // ms; a tab that was hidden says nothing
const NEWEST = 0.3; // the weight of the last frame in the mean

export class Pace {
  mean = 0; // ms a frame that changed something
  drewAt = 0; // ms; 0 if the last frame changed nothing

  get isSlow() {
    return this.mean > SLOW;
  }

  /** A frame begins. @param {number} now ms */
  begin(now) {
    if (!this.drewAt) return;
    this.mean += NEWEST * (Math.min(LONGEST, now - this.drewAt) - this.mean);
    this.drewAt = 0;
  }

  /** The frame has changed the pictures, and another one follows at once. @param {number} now ms */
  drew(now) {
    this.drewAt = now;
  }
}
