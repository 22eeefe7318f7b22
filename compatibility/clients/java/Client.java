import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** The Java client. */
public class Client {
    static final ObjectMapper JSON = new ObjectMapper();
    static final BufferedReader INPUT = new BufferedReader(new InputStreamReader(System.in));
    static final Duration POLL = Duration.ofMillis(100);

    public static void main(String[] words) throws Exception {
        JsonNode arguments = JSON.readTree(words[2]);
        try {
            switch (words[1]) {
                case "version" -> put(Map.of("version", version()));
                case "consume" -> consume(words[0], arguments);
                case "group" -> group(words[0], arguments);
                case "share" -> share(words[0], arguments);
                case "transact" -> transact(words[0], arguments);
                case "produce" -> produce(words[0], arguments);
                case "admin" -> admin(words[0]);
                default -> put(Map.of("not_offered", "no " + words[1]));
            }
        } catch (Exception error) {
            put(Map.of("error", error.toString()));
            System.exit(1);
        }
    }

    static String version() throws IOException {
        Properties told = new Properties();
        told.load(Admin.class.getResourceAsStream("/kafka/kafka-version.properties"));
        return told.getProperty("version");
    }

    static void consume(String servers, JsonNode arguments) {
        TopicPartition wanted = partition(arguments);
        Properties settings = settings(servers);
        settings.put("auto.offset.reset", "none");
        settings.put("enable.auto.commit", "false");
        boolean committed = arguments.path("committed").asBoolean();
        settings.put("isolation.level", committed ? "read_committed" : "read_uncommitted");
        try (var consumer = new KafkaConsumer<String, String>(settings)) {
            consumer.assign(List.of(wanted));
            if (arguments.has("time_ms")) {
                var times = Map.of(wanted, arguments.get("time_ms").asLong());
                consumer.seek(wanted, consumer.offsetsForTimes(times).get(wanted).offset());
            } else {
                consumer.seek(wanted, arguments.get("offset").asLong());
            }
            AtomicBoolean ended = endOfInput();
            while (!ended.get()) {
                consumer.poll(POLL).forEach(Client::put);
            }
        }
    }

    static void group(String servers, JsonNode arguments) {
        Properties settings = settings(servers);
        settings.put("group.id", arguments.get("group").asText());
        settings.put("client.id", arguments.get("client_id").asText());
        settings.put("group.protocol", arguments.path("protocol").asText("classic"));
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        int count = arguments.path("count").asInt(-1);
        if (count > 0) {
            settings.put("max.poll.records", "1"); // commits no more than it prints
        }
        try (var consumer = new KafkaConsumer<String, String>(settings)) {
            consumer.subscribe(List.of(arguments.get("topic").asText()));
            AtomicBoolean ended = endOfInput();
            while (!ended.get() && count != 0) {
                for (var record : consumer.poll(POLL)) {
                    put(record);
                    count--;
                }
                commit(consumer);
            }
        }
    }

    /** What another member has been given meanwhile is its own to commit. */
    static void commit(KafkaConsumer<String, String> consumer) {
        try {
            consumer.commitSync();
        } catch (CommitFailedException | RebalanceInProgressException moved) {
            return;
        }
    }

    /** What a row's version may lack, in a class of its own: there are rows that do without it. */
    interface Verb {
        void run(String servers, JsonNode arguments) throws Exception;
    }

    static void share(String servers, JsonNode arguments) throws Exception {
        Class<?> member;
        try {
            member = Class.forName("ShareMember");
        } catch (ClassNotFoundException before) {
            put(Map.of("not_offered", "no share groups before 4.0"));
            return;
        }
        ((Verb) member.getDeclaredConstructor().newInstance()).run(servers, arguments);
    }

    static void transact(String servers, JsonNode arguments) throws Exception {
        Properties settings = settings(servers);
        settings.put("transactional.id", arguments.get("transactional_id").asText());
        settings.put("linger.ms", "20");
        try (var producer = new KafkaProducer<String, String>(settings)) {
            producer.initTransactions();
            put(Map.of());
            for (String line = INPUT.readLine(); line != null; line = INPUT.readLine()) {
                JsonNode step = JSON.readTree(line);
                switch (step.get("op").asText()) {
                    case "begin" -> producer.beginTransaction();
                    case "send" -> send(producer, partition(arguments), step.get("values"));
                    case "commit" -> producer.commitTransaction();
                    case "abort" -> producer.abortTransaction();
                    default -> throw new IllegalArgumentException(line);
                }
                put(Map.of());
            }
        }
    }

    static void send(KafkaProducer<String, String> producer, TopicPartition to, JsonNode values) throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (JsonNode value : values) {
            sent.add(producer.send(new ProducerRecord<>(to.topic(), to.partition(), null, value.asText())));
        }
        for (var told : sent) {
            told.get();
        }
    }

    static void produce(String servers, JsonNode arguments) throws Exception {
        TopicPartition to = partition(arguments);
        Properties settings = settings(servers);
        settings.put("compression.type", arguments.get("codec").asText());
        settings.put("enable.idempotence", arguments.get("idempotent").asText());
        settings.put("acks", "all");
        settings.put("linger.ms", "20");
        try (var producer = new KafkaProducer<String, String>(settings)) {
            for (String line = INPUT.readLine(); line != null; line = INPUT.readLine()) {
                String value = line;
                producer.send(new ProducerRecord<>(to.topic(), to.partition(), null, value), (told, error) ->
                    put(error != null
                        ? Map.of("error", error.toString())
                        : Map.of("offset", told.offset(), "value", value)));
            }
        }
    }

    static void admin(String servers) throws Exception {
        try (Admin admin = Admin.create(settings(servers))) {
            Calls calls = new Calls(admin);
            for (String line = INPUT.readLine(); line != null; line = INPUT.readLine()) {
                try {
                    put(calls.answer(JSON.readTree(line)));
                } catch (Exception error) {
                    put(Map.of("error", error.toString()));
                }
            }
        }
    }

    static TopicPartition partition(JsonNode arguments) {
        return new TopicPartition(arguments.get("topic").asText(), arguments.get("partition").asInt());
    }

    static Properties settings(String servers) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", servers);
        settings.put("key.deserializer", StringDeserializer.class);
        settings.put("value.deserializer", StringDeserializer.class);
        settings.put("key.serializer", StringSerializer.class);
        settings.put("value.serializer", StringSerializer.class);
        return settings;
    }

    static AtomicBoolean endOfInput() {
        AtomicBoolean ended = new AtomicBoolean();
        Thread waiting = new Thread(() -> {
            try {
                while (INPUT.readLine() != null) {
                }
            } catch (IOException gone) {
                // as good as the end
            }
            ended.set(true);
        });
        waiting.setDaemon(true);
        waiting.start();
        return ended;
    }

    static void put(ConsumerRecord<String, String> record) {
        put(Map.of("partition", record.partition(), "offset", record.offset(), "value", record.value()));
    }

    static synchronized void put(Map<String, ?> line) {
        System.out.println(JSON.valueToTree(new HashMap<>(line)).toString());
        System.out.flush();
    }
}
