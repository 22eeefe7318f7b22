// What nats.js' tests use of @std/assert, which is in no registry but JSR.
import { inspect, isDeepStrictEqual } from "node:util";

// deno-lint-ignore no-explicit-any
type ErrorClass = abstract new (...args: any[]) => Error;

class AssertionError extends Error {
  override name = "AssertionError";
}

export const equal = isDeepStrictEqual;

export function fail(message = ""): never {
  throw new AssertionError(`failed: ${message}`);
}

export function assert(value: unknown, message = ""): asserts value {
  if (!value) fail(message);
}

export function assertFalse(value: unknown, message = ""): void {
  assert(!value, message);
}

export function assertExists(value: unknown, message = ""): void {
  assert(value !== undefined && value !== null, message || "there is nothing");
}

export function assertEquals(actual: unknown, expected: unknown, message = ""): void {
  if (!isDeepStrictEqual(actual, expected)) {
    fail(`${message} ${inspect(actual)} is not ${inspect(expected)}`);
  }
}

export function assertNotEquals(actual: unknown, expected: unknown, message = ""): void {
  if (isDeepStrictEqual(actual, expected)) fail(`${message} both are ${inspect(actual)}`);
}

export function assertInstanceOf(value: unknown, type: ErrorClass, message = ""): void {
  assert(value instanceof type, `${message} ${inspect(value)} is no ${type.name}`);
}

export function assertStringIncludes(text: string, part: string, message = ""): void {
  assert(text.includes(part), `${message} ${inspect(text)} does not include ${inspect(part)}`);
}

export function assertMatch(text: string, pattern: RegExp, message = ""): void {
  assert(pattern.test(text), `${message} ${inspect(text)} does not match ${pattern}`);
}

export function assertArrayIncludes(found: unknown[], parts: unknown[], message = ""): void {
  for (const part of parts) {
    assert(found.some((it) => isDeepStrictEqual(it, part)), `${message} no ${inspect(part)}`);
  }
}

function check(error: unknown, type?: ErrorClass | string, part?: string): Error {
  const included = typeof type === "string" ? undefined : part;
  if (typeof type === "function") {
    assert(error instanceof type, `${inspect(error)} is no ${type.name}`);
  }
  if (included) assertStringIncludes((error as Error).message, included);
  return error as Error;
}

export function assertThrows(
  call: () => unknown,
  type?: ErrorClass | string,
  part?: string,
): Error {
  try {
    call();
  } catch (error) {
    return check(error, type, part);
  }
  fail("nothing was thrown");
}

export async function assertRejects(
  call: () => PromiseLike<unknown>,
  type?: ErrorClass | string,
  part?: string,
): Promise<Error> {
  try {
    await call();
  } catch (error) {
    return check(error, type, part);
  }
  fail("nothing was rejected");
}

export function assertIsError(error: unknown, type?: ErrorClass, part?: string): void {
  assert(error instanceof Error, `${inspect(error)} is no error`);
  check(error, type, part);
}

export function assertAlmostEquals(actual: number, expected: number, tolerance = 1e-7): void {
  assert(Math.abs(actual - expected) <= tolerance, `${actual} is not about ${expected}`);
}
