// nats.js, on Node.js; see `compatibility.port`.
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';
import { jetstream, jetstreamManager } from '@nats-io/jetstream';
import { Kvm } from '@nats-io/kv';
import { connect as dial, errors, headers } from '@nats-io/transport-node';
import transport from '@nats-io/transport-node/package.json' with { type: 'json' };

const WAIT_MS = 10_000;
const [servers, verb] = process.argv.slice(2);
const put = (line) => console.log(JSON.stringify(line));
const unique = () => randomUUID().replaceAll('-', '');
const connect = (options = {}) =>
  dial({ servers: servers.split(','), reconnectTimeWait: 200, ...options });
const numbers = (count) => Array.from({ length: count }, (_, number) => String(number));

function same(found, wanted, what) {
  if (!isDeepStrictEqual(found, wanted)) {
    const text = (value) => JSON.stringify(value)?.slice(0, 200);
    throw new Error(`${what}: ${text(found)} instead of ${text(wanted)}`);
  }
}

async function fails(promise, what, isExpected) {
  try {
    await promise;
  } catch (error) {
    if (isExpected(error)) return;
    throw error;
  }
  throw new Error(what);
}

async function within(promise, what) {
  const late = new AbortController();
  const timer = sleep(60_000, null, { signal: late.signal }).then(
    () => Promise.reject(new Error(`${what}: not within a minute`)),
    () => {},
  );
  try {
    return await Promise.race([promise, timer]);
  } finally {
    late.abort();
  }
}

async function take(subscription, count) {
  const found = [];
  const iterator = subscription[Symbol.asyncIterator]();
  while (found.length < count) {
    const { value, done } = await within(iterator.next(), `message ${found.length} of ${count}`);
    if (done) throw new Error(`ended after ${found.length} of ${count} messages`);
    found.push(value);
  }
  return found;
}
const texts = async (subscription, count) =>
  (await take(subscription, count)).map((message) => message.string());

async function survive(others) {
  const client = await connect({ maxReconnectAttempts: -1, ignoreClusterUpdates: others === 0 });
  const discovered = new Set();
  const reconnected = new Promise((resolve) => {
    (async () => {
      for await (const status of client.status()) {
        if (status.type === 'update') status.added?.forEach((it) => discovered.add(it));
        if (status.type === 'reconnect') resolve();
      }
    })();
  });
  const subject = unique();
  const subscription = client.subscribe(subject);
  await client.flush();
  const known = new Set([...discovered, ...(client.info.connect_urls ?? [])]).size;
  if (known <= others) throw new Error(`${known} servers are discovered`);
  put({ ready: true });
  await within(reconnected, 'reconnect');
  client.publish(subject, 'again');
  same(await texts(subscription, 1), ['again'], 'after it');
  await client.close();
}

const verbs = {
  async connect() {
    const client = await connect();
    await client.flush();
    await client.rtt();
    await client.close();
  },
  async pubsub() {
    const [sender, reader] = [await connect(), await connect()];
    const base = `t.${unique()}`;
    const exact = reader.subscribe(`${base}.a.b`);
    const star = reader.subscribe(`${base}.*.b`);
    const rest = reader.subscribe(`${base}.>`);
    await reader.flush();
    const all = Uint8Array.from({ length: 256 }, (_, number) => number);
    for (const number of numbers(100)) sender.publish(`${base}.a.b`, number);
    sender.publish(`${base}.c.b`);
    sender.publish(`${base}.c.b.d`, all);
    await sender.flush();
    same(await texts(exact, 100), numbers(100), 'exact');
    same(await texts(star, 101), [...numbers(100), ''], '*');
    const found = await take(rest, 102);
    same(found.slice(0, 101).map((it) => it.string()), [...numbers(100), ''], '>');
    same([...found[101].data], [...all], 'binary');
    await sender.close();
    await reader.close();
  },
  async queue() {
    const clients = [await connect(), await connect(), await connect()];
    const [subject, seen] = [unique(), [[], []]];
    for (const place of [0, 1]) {
      const callback = (_, message) => seen[place].push(Number(message.string()));
      clients[place].subscribe(subject, { queue: 'q', callback });
      await clients[place].flush();
    }
    for (const number of numbers(200)) clients[2].publish(subject, number);
    await clients[2].flush();
    const deadline = Date.now() + WAIT_MS;
    while (seen.flat().length < 200 && Date.now() < deadline) await sleep(10);
    same(seen.flat().sort((a, b) => a - b), numbers(200).map(Number), 'both members');
    same(seen.every((it) => it.length > 0), true, 'each member has some');
    for (const client of clients) await client.close();
  },
  async headers() {
    const [client, subject] = [await connect(), unique()];
    const subscription = client.subscribe(subject);
    const sent = headers();
    sent.append('Colour', 'red');
    sent.append('Colour', 'blue');
    sent.set('n', '1:2');
    client.publish(subject, 'x', { headers: sent });
    const [message] = await take(subscription, 1);
    same(message.headers.values('Colour'), ['red', 'blue'], 'two values');
    same(message.headers.get('n'), '1:2', 'a colon');
    same(message.string(), 'x', 'payload');
    await client.close();
  },
  async request() {
    const [client, subject] = [await connect(), unique()];
    client.subscribe(subject, {
      callback: (_, message) => message.respond(`re: ${message.string()}`),
    });
    for (const noMux of [false, true]) {
      const asked = numbers(50).map((it) =>
        client.request(subject, it, { timeout: WAIT_MS, noMux }),
      );
      const got = (await Promise.all(asked)).map((it) => it.string());
      same(got, numbers(50).map((it) => `re: ${it}`), 'answers');
    }
    await client.close();
  },
  async no_responders() {
    const [client, started] = [await connect(), Date.now()];
    await fails(
      client.request(unique(), '', { timeout: WAIT_MS }),
      'somebody answered',
      (it) => it instanceof errors.NoRespondersError || it.cause instanceof errors.NoRespondersError,
    );
    same(Date.now() - started < WAIT_MS / 2, true, 'at once');
    await client.close();
  },
  async request_many() {
    const [client, subject] = [await connect(), unique()];
    for (const name of ['a', 'b', 'c']) {
      client.subscribe(subject, { callback: (_, message) => message.respond(name) });
    }
    for (const options of [
      { strategy: 'count', maxMessages: 3 },
      { strategy: 'stall', stall: 500 },
      { strategy: 'timer' },
    ]) {
      const found = [];
      const many = await client.requestMany(subject, '', { maxWait: 3_000, ...options });
      for await (const message of many) found.push(message.string());
      same(found.sort(), ['a', 'b', 'c'], options.strategy);
    }
    await client.close();
  },
  async unsubscribe() {
    const [client, subject] = [await connect(), unique()];
    const seen = [];
    client.subscribe(subject, { max: 3, callback: (_, it) => seen.push(it.string()) });
    const witness = client.subscribe(subject);
    for (const number of numbers(10)) client.publish(subject, number);
    same(await texts(witness, 10), numbers(10), 'the other');
    await client.flush();
    same(seen, ['0', '1', '2'], 'limited');
    await client.close();
  },
  async drain() {
    const [sender, reader] = [await connect(), await connect()];
    const [subject, seen] = [unique(), []];
    const subscription = reader.subscribe(subject);
    const reading = (async () => {
      for await (const message of subscription) {
        await sleep(1);
        seen.push(message.string());
      }
    })();
    await reader.flush();
    for (const number of numbers(300)) sender.publish(subject, number);
    await sender.flush();
    await reader.flush();
    await reader.drain();
    await within(reading, 'drain');
    same(reader.isClosed(), true, 'closed');
    same(seen, numbers(300), 'drained');
    await sender.close();
  },
  async max_payload() {
    const [client, subject] = [await connect(), unique()];
    const subscription = client.subscribe(subject);
    const largest = client.info.max_payload;
    await fails(
      (async () => client.publish(subject, new Uint8Array(largest + 1)))(),
      'it was sent',
      (error) => /payload/i.test(error.message),
    );
    client.publish(subject, new Uint8Array(largest));
    const [message] = await take(subscription, 1);
    same(message.data.length, largest, 'the largest one');
    await client.close();
  },
  reconnect: () => survive(0),
  failover: () => survive(1),
  async pubacks() {
    const [client, name] = [await connect(), unique()];
    const manager = await jetstreamManager(client);
    await manager.streams.add({ name, subjects: [`${name}.>`] });
    const stream = jetstream(client);
    const acks = await Promise.all(numbers(200).map((it) => stream.publish(`${name}.x`, it)));
    same(acks.map((it) => it.seq), numbers(200).map((it) => Number(it) + 1), 'sequences');
    same([...new Set(acks.map((it) => it.stream))], [name], 'stream');
    const first = await stream.publish(`${name}.x`, 'once', { msgID: 'once' });
    const second = await stream.publish(`${name}.x`, 'once', { msgID: 'once' });
    same([first.seq, first.duplicate], [201, false], 'the first');
    same([second.seq, second.duplicate], [201, true], 'the second');
    await manager.streams.delete(name);
    await client.close();
  },
  async streams() {
    const [client, name] = [await connect(), unique()];
    const manager = await jetstreamManager(client);
    same((await manager.streams.add({ name, subjects: [`${name}.>`] })).config.name, name, 'created');
    for (const number of numbers(5)) await jetstream(client).publish(`${name}.${number}`, number);
    same((await manager.streams.info(name)).state.messages, 5, 'messages');
    same((await manager.streams.getMessage(name, { seq: 2 })).string(), '1', 'the second');
    const listed = [];
    for await (const one of manager.streams.list()) listed.push(one.config.name);
    same(listed.includes(name), true, 'listed');
    await manager.streams.purge(name);
    same((await manager.streams.info(name)).state.messages, 0, 'purged');
    await manager.streams.delete(name);
    await fails(manager.streams.info(name), 'it is still there', (it) => /not found/.test(it.message));
    await client.close();
  },
  async key_value() {
    const [client, name] = [await connect(), unique()];
    const bucket = await new Kvm(client).create(name, { history: 5 });
    const first = await bucket.put('colour', 'red');
    same((await bucket.get('colour')).string(), 'red', 'value');
    const second = await bucket.update('colour', 'blue', first);
    same((await bucket.get('colour')).revision, second, 'revision');
    await fails(bucket.update('colour', 'green', first), 'an old revision was taken', (it) =>
      /wrong last sequence/.test(it.message),
    );
    await bucket.delete('colour');
    same((await bucket.get('colour')).operation, 'DEL', 'deleted');
    await bucket.destroy();
    await client.close();
  },
};

if (verb === 'version') {
  put({ version: transport.version });
} else {
  try {
    await verbs[verb]();
    put({ done: true });
  } catch (error) {
    put({ error: `${error.name}: ${error.message}` });
  }
}
process.exit(0);
