import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { propose } from '../../examples/pipeline/proposer.js';
import { Target } from '../../examples/pipeline/target.js';

describe('the target', () => {
  test('continues a text that it knows, by the longest context', () => {
    const target = new Target([1, 2, 3, 9, 2, 4]);
    expect(target.predict([1, 2])).toBe(3);
    expect(target.predict([9, 2])).toBe(4);
  });

  test('backs off to what it knows, and to the most common token', () => {
    const target = new Target([5, 5, 1, 2]);
    expect(target.predict([77, 1])).toBe(2);
    expect(target.predict([77])).toBe(5);
  });

  test('depends on the text and the sequence alone', () => {
    const tokens = fc.array(fc.nat(5), { minLength: 1, maxLength: 60 });
    fc.assert(
      fc.property(tokens, tokens, (text, sequence) => {
        expect(new Target(text).predict(sequence)).toBe(new Target([...text]).predict(sequence));
        expect(text).toContain(new Target(text).predict(sequence));
      }),
    );
  });
});

describe('the proposer', () => {
  test('copies what followed the latest longest match', () => {
    expect(propose([1, 2, 3, 4, 9, 2, 3, 5, 8, 1, 2, 3], 2)).toEqual([4, 9]);
    expect(propose([2, 3, 4, 9, 2, 3, 5, 8, 2, 3], 1)).toEqual([5]);
  });

  test('finds nothing where nothing stood before', () => {
    expect(propose([1, 2, 3], 4)).toEqual([]);
    expect(propose([], 4)).toEqual([]);
  });

  test('proposes no more than it may, and only what stands in the sequence after a match', () => {
    fc.assert(
      fc.property(
        fc.array(fc.nat(3), { maxLength: 40 }),
        fc.integer({ min: 1, max: 9 }),
        (sequence, limit) => {
          const proposal = propose(sequence, limit);
          expect(proposal.length).toBeLessThanOrEqual(limit);
          if (proposal.length === 0) return;
          const last = sequence.at(-1);
          const places = sequence
            .slice(0, -1)
            .flatMap((token, at) => (token === last ? [at + 1] : []));
          const copies = places.map((at) => sequence.slice(at, at + proposal.length));
          expect(copies).toContainEqual(proposal);
        },
      ),
    );
  });
});
