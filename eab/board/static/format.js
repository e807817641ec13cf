// Numbers as text.

/** @param {number} count */
export function bytes(count) {
  if (count < 1024) return `${count.toFixed(0)} B`;
  let value = count / 1024;
  for (const unit of ["KiB", "MiB"]) {
    if (value < 1024) return `${value >= 100 ? value.toFixed(0) : +value.toFixed(1)} ${unit}`;
    value /= 1024;
  }
  return `${value.toFixed(1)} GiB`;
}

/** @param {number} share */
export function percent(share) {
  if (share >= 0.0995) return `${(100 * share).toFixed(0)}%`;
  return share >= 0.00095 ? `${(100 * share).toFixed(1)}%` : "<0.1%";
}
