/**
 * `actual`, with each number that lies within 1e-9 times the larger of 1 and the expected value
 * replaced by that value: `expect(closeTo(actual, expected)).toEqual(expected)` then compares
 * everything else exactly.
 */
export function closeTo(actual: unknown, expected: unknown): unknown {
  if (typeof actual === 'number' && typeof expected === 'number') {
    const near = Math.abs(actual - expected) <= 1e-9 * Math.max(1, Math.abs(expected));
    return near ? expected : actual;
  }
  if (Array.isArray(actual) && Array.isArray(expected)) {
    return actual.map((item, index) => closeTo(item, expected[index]));
  }
  if (isRecord(actual) && isRecord(expected)) {
    return Object.fromEntries(
      Object.entries(actual).map(([key, value]) => [key, closeTo(value, expected[key])]),
    );
  }
  return actual;
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
