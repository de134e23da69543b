export class RegistryError extends Error {
  override readonly name = 'RegistryError';
}

/** A YAML mapping and the place it stands at, so that whatever is wrong with it can be found. */
export class Fields {
  constructor(
    private readonly mapping: Readonly<Record<string, unknown>>,
    readonly place: string,
  ) {}

  static of(value: unknown, place: string): Fields {
    if (typeof value !== 'object' || value === null || Array.isArray(value)) {
      throw new RegistryError(`${place}: expected a mapping`);
    }
    return new Fields(value as Record<string, unknown>, place);
  }

  /** The same mapping, under a place that says more. */
  at(place: string): Fields {
    return new Fields(this.mapping, place);
  }

  fail(problem: string): never {
    throw new RegistryError(`${this.place}: ${problem}`);
  }

  has(key: string): boolean {
    return this.mapping[key] !== undefined;
  }

  raw(key: string): unknown {
    return this.mapping[key];
  }

  text(key: string): string {
    const value = this.mapping[key];
    if (typeof value !== 'string' || value.trim() === '') this.fail(`${key} is missing`);
    return value.trim().replaceAll(/\s+/g, ' ');
  }

  optionalText(key: string): string {
    return this.has(key) ? this.text(key) : '';
  }

  oneOf<T extends string>(key: string, allowed: readonly T[]): T {
    const value = this.text(key);
    return (
      allowed.find((each) => each === value) ??
      this.fail(`${key} is ${value}, expected one of ${allowed.join(', ')}`)
    );
  }

  boolean(key: string): boolean {
    const value = this.mapping[key];
    return typeof value === 'boolean' ? value : this.fail(`${key} is not true or false`);
  }

  list(key: string): readonly unknown[] {
    const value = this.mapping[key] ?? [];
    return Array.isArray(value) ? value : this.fail(`${key} is not a list`);
  }

  texts(key: string): readonly string[] {
    return this.list(key).map((each) =>
      typeof each === 'string' ? each : this.fail(`${key} holds something that is no string`),
    );
  }

  numbers(key: string): readonly number[] {
    return this.list(key).map((each) =>
      typeof each === 'number' ? each : this.fail(`${key} holds something that is no number`),
    );
  }

  fieldsList(key: string): readonly Fields[] {
    return this.list(key).map((each) => Fields.of(each, this.place));
  }

  /** A nested mapping, empty where there is none. */
  nested(...keys: readonly string[]): Fields {
    return keys.reduce<Fields>((fields, key) => Fields.of(fields.raw(key) ?? {}, this.place), this);
  }
}

export function addOnce<T>(known: Map<string, T>, name: string, value: T, place: Fields): void {
  if (known.has(name)) place.fail(`${name} is defined twice`);
  known.set(name, value);
}
