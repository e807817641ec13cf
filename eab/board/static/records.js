// What the board has been told of a run: its paths and steps. Records may come twice, late, or not at all.

export class Records {
  constructor() {
    this.paths = new Map();
    this.steps = new Map();
    this.forget();
  }

  forget() {
    this.paths.clear();
    this.steps.clear();
    Object.assign(this, { highestEntropy: 0, highestBytes: 1, lastStep: 0 });
  }

  // Whether everything before this record had come.
  take(record) {
    const before = this.paths.get(record.id);
    if (before && before.touched > record.touched) return true;
    if (record.from > (before ? before.tokens.length : 0)) return false;
    const tokens = before ? before.tokens.slice(0, record.from).concat(record.tokens) : record.tokens;
    const born = record.from > 0 ? before.born : record.born;
    this.paths.set(record.id, { ...record, tokens, born, firstChild: before?.firstChild }); // a message may be given twice: copy
    const parent = this.paths.get(record.parent);
    if (parent && (parent.firstChild === undefined || parent.firstChild > record.id)) parent.firstChild = record.id;
    for (const token of record.tokens) this.highestEntropy = Math.max(this.highestEntropy, token[3]);
    return true;
  }

  takeStep(step) {
    this.steps.set(step.step, step);
    this.lastStep = Math.max(this.lastStep, step.step);
    this.highestBytes = Math.max(this.highestBytes, step.independent, step.shared + step.private + step.spare);
  }

  forkSteps() {
    return [...new Set([...this.paths.values()].filter((path) => path.parent >= 0).map((path) => path.born))];
  }

  lineageOf(id) {
    const lineage = new Set();
    for (let at = id; at !== null && at >= 0; at = this.paths.get(at)?.parent ?? -1) lineage.add(at);
    return lineage;
  }

  // Whether one of them grew out of the other.
  related(one, other) {
    return this.lineageOf(one).has(other) || this.lineageOf(other).has(one);
  }

  // The token of this step before the path, in it, or on the heaviest way out of it.
  onLine(id, step) {
    let path = this.paths.get(id);
    while (step < path.born && path.parent >= 0) path = this.paths.get(path.parent);
    while (step >= path.born + path.tokens.length) {
      const children = [...this.paths.values()].filter((child) => child.parent === path.id && child.tokens.length);
      if (!children.length) break;
      path = children.reduce((best, child) => (child.share > best.share ? child : best));
    }
    return { path: path.id, token: Math.max(0, Math.min(path.tokens.length - 1, step - path.born)) };
  }
}
