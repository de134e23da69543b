/** Time at each occupancy level, added up over schedulers. Milliseconds. */
export class OccupancyTimes {
  readonly byLevel: number[] = [];
  /** Time with two or more in flight. */
  parallelMs = 0;
  /** Time with as many in flight as the scheduler's own depth allows. */
  fullMs = 0;

  add(level: number, ms: number, depth: number): void {
    while (this.byLevel.length <= level) this.byLevel.push(0);
    this.byLevel[level] = (this.byLevel[level] ?? 0) + ms;
    if (level >= 2) this.parallelMs += ms;
    if (level === depth) this.fullMs += ms;
  }

  copy(): OccupancyTimes {
    const copy = new OccupancyTimes();
    copy.byLevel.push(...this.byLevel);
    copy.parallelMs = this.parallelMs;
    copy.fullMs = this.fullMs;
    return copy;
  }
}
