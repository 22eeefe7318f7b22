// KafkaJS. All of its consumers are members of groups.
import { createRequire } from 'node:module';
import { randomUUID } from 'node:crypto';
import { createInterface } from 'node:readline';
import kafkajs from 'kafkajs';
import snappy from 'kafkajs-snappy';

const { CompressionCodecs, CompressionTypes, ConfigResourceTypes, Kafka } = kafkajs;
CompressionCodecs[CompressionTypes.Snappy] = snappy;
const codecs = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
};

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

const logCreator = () => ({ log }) => console.error(log.message, log.error ?? '');

const connect = (clientId) =>
  new Kafka({ brokers: servers.split(','), clientId, logCreator, retry: { retries: 20 } });

const verbs = {
  async version() {
    put({ version: createRequire(import.meta.url)('kafkajs/package.json').version });
  },

  async consume({ topic, partition, offset, time_ms, committed }) {
    put({ note: 'as a member of a group of its own' });
    const kafka = connect('reader');
    let start = offset;
    if (time_ms !== undefined) {
      const admin = kafka.admin();
      await admin.connect();
      const found = await admin.fetchTopicOffsetsByTimestamp(topic, time_ms);
      start = found.find((it) => it.partition === partition).offset;
      await admin.disconnect();
    }
    const groupId = `reader-${randomUUID()}`;
    const consumer = kafka.consumer({ groupId, readUncommitted: !committed });
    await consumer.connect();
    await consumer.subscribe({ topic, fromBeginning: true });
    await consumer.run({
      autoCommit: false,
      eachMessage: async ({ partition: from, message }) => {
        if (from === partition && BigInt(message.offset) >= BigInt(start)) putRecord(from, message);
      },
    });
    consumer.seek({ topic, partition, offset: String(start) });
    await ended;
    await consumer.disconnect();
  },

  async group({ topic, group, client_id, count, protocol }) {
    if (protocol !== undefined) {
      put({ not_offered: 'only the classic protocol' });
      return;
    }
    const consumer = connect(client_id).consumer({ groupId: group });
    let left = count ?? Infinity;
    let full;
    const enough = new Promise((resolve) => (full = resolve));
    await consumer.connect();
    await consumer.subscribe({ topic, fromBeginning: true });
    await consumer.run({
      autoCommit: false,
      eachBatchAutoResolve: false,
      eachBatch: async ({ batch, resolveOffset, heartbeat, isRunning, isStale }) => {
        let next;
        for (const message of batch.messages) {
          if (left === 0 || !isRunning() || isStale()) break;
          putRecord(batch.partition, message);
          resolveOffset(message.offset);
          next = String(BigInt(message.offset) + 1n);
          left -= 1;
        }
        if (next !== undefined) {
          await consumer.commitOffsets([{ topic, partition: batch.partition, offset: next }]);
        }
        if (left === 0) full();
        await heartbeat();
      },
    });
    await Promise.race([ended, enough]);
    await consumer.disconnect();
  },

  async produce({ topic, partition, codec, idempotent }) {
    if (!(codec in codecs)) {
      put({ not_offered: 'only with a package of others that has to be compiled' });
      return;
    }
    const producer = connect('writer').producer({ idempotent, maxInFlightRequests: 1 });
    await producer.connect();
    for await (const values of input()) {
      const messages = values.map((value) => ({ partition, value }));
      const [told] = await producer.send({ topic, acks: -1, compression: codecs[codec], messages });
      values.forEach((value, i) => put({ offset: Number(told.baseOffset) + i, value }));
    }
    await producer.disconnect();
  },

  async share() {
    put({ not_offered: 'no share groups' });
  },

  async transact({ topic, partition, transactional_id: transactionalId }) {
    const settings = { transactionalId, idempotent: true, maxInFlightRequests: 1 };
    const producer = connect('writer').producer(settings);
    await producer.connect();
    let transaction;
    const messages = (values) => values.map((value) => ({ partition, value }));
    put({});
    await answer(producer, {
      begin: async () => void (transaction = await producer.transaction()),
      send: async (_, { values }) => void (await transaction.send({ topic, acks: -1, messages: messages(values) })),
      commit: () => transaction.commit(),
      abort: () => transaction.abort(),
    });
    await producer.disconnect();
  },

  async admin() {
    const admin = connect('admin').admin();
    await admin.connect();
    await answer(admin, calls);
    await admin.disconnect();
  },
};

// A function for each operation that the client has.
async function answer(client, functions) {
  for await (const [line] of input()) {
    const { op, ...rest } = JSON.parse(line);
    try {
      put(op in functions ? ((await functions[op](client, rest)) ?? {}) : { not_offered: 'no such call' });
    } catch (error) {
      put({ error: String(error) });
    }
  }
}

const putRecord = (partition, { offset, value }) =>
  put({ partition, offset: Number(offset), value: value.toString() });

const type = ConfigResourceTypes.TOPIC;

// It can only replace all configs of a topic, not set some.
const calls = {
  create: (admin, { topic, partitions, replicas, configs }) => {
    const configEntries = Object.entries(configs).map(([name, value]) => ({ name, value }));
    const wanted = { topic, numPartitions: partitions, replicationFactor: replicas, configEntries };
    return admin.createTopics({ topics: [wanted] }).then(() => ({}));
  },
  widen: (admin, { topic, partitions }) =>
    admin.createPartitions({ topicPartitions: [{ topic, count: partitions }] }).then(() => ({})),
  delete: (admin, { topic }) => admin.deleteTopics({ topics: [topic] }),
  topics: async (admin) => ({ topics: await admin.listTopics() }),
  describe: async (admin, { topic }) => {
    const { topics } = await admin.fetchTopicMetadata({ topics: [topic] });
    return { partitions: topics[0].partitions.length };
  },
  configs: async (admin, { topic }) => {
    const { resources } = await admin.describeConfigs({ resources: [{ type, name: topic }] });
    const entries = resources[0].configEntries.map((it) => [it.configName, it.configValue]);
    return { configs: Object.fromEntries(entries) };
  },
  ends: async (admin, { topic, partition }) => {
    const found = await admin.fetchTopicOffsets(topic);
    const { low, high } = found.find((it) => it.partition === partition);
    return { earliest: Number(low), latest: Number(high) };
  },
  purge: (admin, { topic, partition, offset }) => {
    const partitions = [{ partition, offset: String(offset) }];
    return admin.deleteTopicRecords({ topic, partitions });
  },
  groups: async (admin) => ({ groups: (await admin.listGroups()).groups.map((it) => it.groupId) }),
  members: async (admin, { group }) => {
    const { groups } = await admin.describeGroups([group]);
    return { members: groups[0].members.length };
  },
  committed: async (admin, { group, topic }) => {
    const [found] = await admin.fetchOffsets({ groupId: group, topics: [topic] });
    const entries = found.partitions.map((it) => [it.partition, Number(it.offset)]);
    return { offsets: Object.fromEntries(entries) };
  },
  reset: (admin, { group, topic, partition, offset }) => {
    const partitions = [{ partition, offset: String(offset) }];
    return admin.setOffsets({ groupId: group, topic, partitions });
  },
  forget: (admin, { group }) => admin.deleteGroups([group]).then(() => ({})),
};

try {
  if (verb in verbs) await verbs[verb](asked);
  else put({ not_offered: `no ${verb}` });
  process.exit(0);
} catch (error) {
  put({ error: String(error) });
  process.exit(1);
}
