// @platformatic/kafka. All of its consumers are members of groups.
import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
import zlib from 'node:zlib';
import {
  Admin,
  Consumer,
  FetchIsolationLevels,
  Producer,
  stringDeserializers,
  stringSerializers,
} from '@platformatic/kafka';

const [servers, verb, text] = process.argv.slice(2);
const asked = JSON.parse(text);
const put = (line) => console.log(JSON.stringify(line));
const lines = createInterface({ input: process.stdin });
const waiting = [];
let closed = false;
let wake = () => {};
lines.on('line', (line) => (waiting.push(line), wake()));
const ended = new Promise((resolve) => lines.on('close', () => ((closed = true), wake(), resolve())));

// All lines that have come since the last ones.
async function* input() {
  while (!closed || waiting.length) {
    if (waiting.length) yield waiting.splice(0);
    else await new Promise((resolve) => (wake = resolve));
  }
}

const settings = (clientId) => ({
  clientId,
  bootstrapBrokers: servers.split(','),
  retries: 20,
  retryDelay: 250,
});

const reader = (groupId, clientId, options = {}) =>
  new Consumer({
    ...settings(clientId),
    groupId,
    autocommit: false,
    deserializers: stringDeserializers,
    maxWaitTime: 100,
    ...options,
  });

const verbs = {
  async version() {
    const path = new URL('node_modules/@platformatic/kafka/package.json', import.meta.url);
    put({ version: JSON.parse(readFileSync(path)).version });
  },

  async consume({ topic, partition, offset, time_ms, committed }) {
    put({ note: 'as a member of a group of its own' });
    const isolationLevel = committed ? FetchIsolationLevels.READ_COMMITTED : FetchIsolationLevels.READ_UNCOMMITTED;
    const consumer = reader(`reader-${randomUUID()}`, 'reader', { isolationLevel });
    let start = BigInt(offset ?? 0);
    if (time_ms !== undefined) {
      const wanted = { topics: [topic], partitions: { [topic]: [partition] } };
      const found = await consumer.listOffsets({ ...wanted, timestamp: BigInt(time_ms) });
      start = found.get(topic).find((it) => it >= 0n);
    }
    const { topics } = await consumer.metadata({ topics: [topic] });
    const offsets = topics.get(topic).partitions.map((_, i) => {
      return { topic, partition: i, offset: i === partition ? start : 0n };
    });
    const stream = await consumer.consume({ topics: [topic], mode: 'manual', offsets });
    stream.on('error', fail);
    stream.on('data', (message) => message.partition === partition && putRecord(message));
    await ended;
    await consumer.close(true);
  },

  async group({ topic, group, client_id, count, protocol }) {
    const classic = { sessionTimeout: 10000, heartbeatInterval: 500 };
    const consumer = reader(group, client_id, protocol === undefined ? classic : { groupProtocol: protocol });
    const options = { topics: [topic], mode: 'committed', fallbackMode: 'earliest' };
    const stream = await consumer.consume(options);
    let left = count ?? Infinity;
    const read = async () => {
      for await (const message of stream) {
        putRecord(message);
        await message.commit();
        left -= 1;
        if (left === 0) return;
      }
    };
    await Promise.race([ended, read()]);
    await consumer.close(true);
  },

  async produce({ topic, partition, codec, idempotent }) {
    if (codec === 'zstd' && !('zstdCompressSync' in zlib)) {
      put({ not_offered: `Node.js ${process.version} has no zstd` });
      return;
    }
    const producer = new Producer({
      ...settings('writer'),
      serializers: stringSerializers,
      compression: codec,
      idempotent,
      acks: -1,
    });
    for await (const values of input()) {
      const messages = values.map((value) => ({ topic, partition, value }));
      const { offsets } = await producer.send({ messages });
      values.forEach((value, i) => put({ offset: Number(offsets[0].offset) + i, value }));
    }
    await producer.close();
  },

  async share() {
    put({ not_offered: 'no share groups' });
  },

  async transact({ topic, partition, transactional_id: transactionalId }) {
    const options = { serializers: stringSerializers, transactionalId, idempotent: true, acks: -1 };
    const producer = new Producer({ ...settings('writer'), ...options });
    let transaction;
    put({});
    await answer(producer, {
      begin: async () => void (transaction = await producer.beginTransaction()),
      send: async (_, { values }) => {
        await transaction.send({ messages: values.map((value) => ({ topic, partition, value })) });
      },
      commit: () => transaction.commit(),
      abort: () => transaction.abort(),
    });
    await producer.close();
  },

  async admin() {
    const admin = new Admin(settings('admin'));
    await answer(admin, calls);
    await admin.close();
  },
};

// A function for each operation that the client has.
async function answer(client, functions) {
  for await (const [line] of input()) {
    const { op, ...rest } = JSON.parse(line);
    try {
      put(op in functions ? ((await functions[op](client, rest)) ?? {}) : { not_offered: 'no such call' });
    } catch (error) {
      put({ error: told(error) });
    }
  }
}

const putRecord = ({ partition, offset, value }) => put({ partition, offset: Number(offset), value });

// What went wrong is said by the innermost of its errors.
const told = (error) => (error.errors?.length ? `${error.message}: ${told(error.errors[0])}` : String(error));
const fail = (error) => {
  put({ error: told(error) });
  process.exit(1);
};

const TOPIC = 2;
const SET = 0;

const calls = {
  create: (admin, { topic, partitions, replicas, configs }) => {
    const entries = Object.entries(configs).map(([name, value]) => ({ name, value }));
    return admin.createTopics({ topics: [topic], partitions, replicas, configs: entries }).then(() => ({}));
  },
  widen: (admin, { topic, partitions }) =>
    admin.createPartitions({ topics: [{ name: topic, count: partitions, assignments: [] }] }),
  delete: (admin, { topic }) => admin.deleteTopics({ topics: [topic] }),
  topics: async (admin) => ({ topics: await admin.listTopics() }),
  describe: async (admin, { topic }) => {
    const { topics } = await admin.metadata({ topics: [topic], forceUpdate: true });
    return { partitions: topics.get(topic).partitions.length };
  },
  configs: async (admin, { topic }) => {
    const resources = [{ resourceType: TOPIC, resourceName: topic }];
    const [{ configs }] = await admin.describeConfigs({ resources });
    return { configs: Object.fromEntries(configs.map((it) => [it.name, it.value])) };
  },
  set: (admin, { topic, configs }) => {
    const changes = Object.entries(configs).map(([name, value]) => ({ name, value, configOperation: SET }));
    const resources = [{ resourceType: TOPIC, resourceName: topic, configs: changes }];
    return admin.incrementalAlterConfigs({ resources });
  },
  ends: async (admin, { topic, partition }) => {
    const end = async (timestamp) => {
      const partitions = [{ partitionIndex: partition, timestamp }];
      const [found] = await admin.listOffsets({ topics: [{ name: topic, partitions }] });
      return Number(found.partitions[0].offset);
    };
    return { earliest: await end(-2n), latest: await end(-1n) };
  },
  purge: (admin, { topic, partition, offset }) => {
    const partitions = [{ partition, offset: BigInt(offset) }];
    return admin.deleteRecords({ topics: [{ name: topic, partitions }] }).then(() => ({}));
  },
  groups: async (admin) => ({ groups: [...(await admin.listGroups()).keys()] }),
  members: async (admin, { group }) => {
    const found = await admin.describeGroups({ groups: [group] });
    return { members: found.get(group).members.size };
  },
  committed: async (admin, { group }) => {
    const [found] = await admin.listConsumerGroupOffsets({ groups: [group] });
    const entries = found.topics[0].partitions.map((it) => [it.partitionIndex, Number(it.committedOffset)]);
    return { offsets: Object.fromEntries(entries) };
  },
  reset: (admin, { group, topic, partition, offset }) => {
    const partitionOffsets = [{ partition, offset: BigInt(offset) }];
    return admin.alterConsumerGroupOffsets({ groupId: group, topics: [{ name: topic, partitionOffsets }] });
  },
  forget: (admin, { group }) => admin.deleteGroups({ groups: [group] }),
};

try {
  if (verb in verbs) await verbs[verb](asked);
  else put({ not_offered: `no ${verb}` });
  process.exit(0);
} catch (error) {
  fail(error);
}
