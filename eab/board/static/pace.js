// Measures how long the browser takes for a frame. If it cannot keep up with a run, the board draws
// less often and boxes jump to their places, so the board stays close to the run.

const SLOW = 45; // ms per frame
const LONGEST = 200; // ms; caps the gap left by a hidden tab
const NEWEST = 0.3; // the weight of the last frame in the mean

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
