// What nats.js' tests use of @std/bytes, which is in no registry but JSR.
export function equals(one: Uint8Array, other: Uint8Array): boolean {
  return one.length === other.length && one.every((byte, i) => byte === other[i]);
}
