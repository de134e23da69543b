import type { CollectionTime } from './collection.js';

const WIDTH = 640;
const HEIGHT = 360;
const LEFT = 70;
const BOTTOM = 50;
const RIGHT = 20;
const TOP = 50;
/** Both axes are logarithmic: powers of ten of live schedulers, and of milliseconds. */
const X_DECADES = [0, 4] as const;
const Y_DECADES = [-2, 2] as const;
const COLOURS = ['#1f77b4', '#d62728'];

/** The collection times as an SVG picture: one line for each number of windows gone by. */
export function drawCollectionTimes(times: readonly CollectionTime[]): string {
  const windows = [...new Set(times.map((time) => time.windows))];
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="Time of one collection against the number of live schedulers" width="${WIDTH}" height="${HEIGHT}" font-family="sans-serif" font-size="13">`,
    `<rect width="${WIDTH}" height="${HEIGHT}" fill="white"/>`,
    text(WIDTH / 2, 22, 'Time of one collection, depth 8', 'middle'),
    text(WIDTH / 2, HEIGHT - 10, 'live schedulers', 'middle'),
    ...decades(X_DECADES).flatMap((decade) => [
      line(x(10 ** decade), TOP, x(10 ** decade), HEIGHT - BOTTOM),
      text(x(10 ** decade), HEIGHT - BOTTOM + 18, (10 ** decade).toLocaleString('en-US'), 'middle'),
    ]),
    ...decades(Y_DECADES).flatMap((decade) => [
      line(LEFT, y(10 ** decade), WIDTH - RIGHT, y(10 ** decade)),
      text(LEFT - 8, y(10 ** decade) + 4, `${10 ** decade} ms`, 'end'),
    ]),
    ...windows.flatMap((count, index) => {
      const colour = COLOURS[index % COLOURS.length] ?? 'black';
      const series = times.filter((time) => time.windows === count);
      const points = series.map(({ live, medianMs }) => `${x(live)},${y(medianMs)}`);
      return [
        `<polyline points="${points.join(' ')}" fill="none" stroke="${colour}" stroke-width="2"/>`,
        ...series.map(
          ({ live, medianMs }) =>
            `<circle cx="${x(live)}" cy="${y(medianMs)}" r="4" fill="${colour}"/>`,
        ),
        `<text x="${LEFT + 12}" y="${TOP + 20 + 18 * index}" fill="${colour}">after ${count.toLocaleString('en-US')} windows</text>`,
      ];
    }),
    '</svg>',
    '',
  ].join('\n');
}

function decades([first, last]: readonly [number, number]): number[] {
  return Array.from({ length: last - first + 1 }, (_, index) => first + index);
}

function x(live: number): number {
  return LEFT + place(live, X_DECADES) * (WIDTH - LEFT - RIGHT);
}

function y(ms: number): number {
  return HEIGHT - BOTTOM - place(ms, Y_DECADES) * (HEIGHT - TOP - BOTTOM);
}

function place(value: number, [first, last]: readonly [number, number]): number {
  return (Math.log10(value) - first) / (last - first);
}

function line(x1: number, y1: number, x2: number, y2: number): string {
  return `<line x1="${x1}" y1="${y1}" x2="${x2}" y2="${y2}" stroke="#ddd"/>`;
}

function text(at: number, baseline: number, content: string, anchor: string): string {
  return `<text x="${at}" y="${baseline}" text-anchor="${anchor}" fill="#333">${content}</text>`;
}
