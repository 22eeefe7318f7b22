// What nats.js' transport for Deno uses of @std/io, which is in no registry but JSR.
export async function writeAll(
  writer: { write(part: Uint8Array): Promise<number> },
  bytes: Uint8Array,
): Promise<void> {
  let written = 0;
  while (written < bytes.length) {
    written += await writer.write(bytes.subarray(written));
  }
}
