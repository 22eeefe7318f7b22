import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.admin.TransactionListing;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Transactions of Java's clients: {@code Transactions SERVERS STORY}, which prints what it finds. */
public final class Transactions {
    private static String servers;

    public static void main(String[] arguments) throws Exception {
        servers = arguments[0];
        switch (arguments[1]) {
            case "epochs" -> epochs();
            case "fence" -> fence();
            case "transform" -> transform(Integer.parseInt(arguments[2]));
            default -> throw new IllegalArgumentException(arguments[1]);
        }
    }

    private static Properties settings() {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", servers);
        settings.put("reconnect.backoff.max.ms", "200");
        return settings;
    }

    private static KafkaProducer<String, String> producer(String name) {
        Properties settings = settings();
        settings.put("transactional.id", name);
        settings.put("delivery.timeout.ms", "60000");
        settings.put("request.timeout.ms", "5000");
        settings.put("max.block.ms", "60000");
        KafkaProducer<String, String> producer =
            new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
        producer.initTransactions();
        return producer;
    }

    private static KafkaConsumer<String, String> consumer(String group) {
        Properties settings = settings();
        settings.put("group.id", group);
        settings.put("isolation.level", "read_committed");
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        settings.put("session.timeout.ms", "6000");
        settings.put("heartbeat.interval.ms", "500");
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    private static TransactionDescription described(Admin admin, String name) throws Exception {
        return admin.describeTransactions(Set.of(name)).description(name).get();
    }

    /** Each end of a transaction takes the producer to its next epoch. */
    private static void epochs() throws Exception {
        try (KafkaProducer<String, String> producer = producer("epochs"); Admin admin = Admin.create(settings())) {
            for (int number = 0; number < 4; number++) {
                producer.beginTransaction();
                producer.send(new ProducerRecord<>("java", number % 2, null, "record " + number)).get();
                TransactionDescription open = described(admin, "epochs");
                System.out.println(open.state() + " " + open.producerEpoch() + " " + open.topicPartitions());
                for (TransactionListing it : admin.listTransactions().all().get()) {
                    System.out.println("listed " + it.transactionalId() + " " + it.state());
                }
                TopicPartition place = new TopicPartition("java", number % 2);
                admin.describeProducers(Set.of(place)).partitionResult(place).get().activeProducers().forEach(
                    it -> System.out.println("active " + it.producerEpoch() + " " + it.currentTransactionStartOffset().isPresent()));
                if (number == 1) {
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                }
            }
            producer.beginTransaction();
            producer.abortTransaction();
        }
        read("java", 3).forEach(System.out::println);
    }

    private static List<String> read(String topic, int count) {
        List<String> found = new ArrayList<>();
        try (KafkaConsumer<String, String> consumer = consumer("reader of " + topic)) {
            List<TopicPartition> places = List.of(new TopicPartition(topic, 0), new TopicPartition(topic, 1));
            consumer.assign(places);
            consumer.seekToBeginning(places);
            long end = System.currentTimeMillis() + 30_000;
            while (found.size() < count && System.currentTimeMillis() < end) {
                consumer.poll(Duration.ofMillis(200)).forEach(it -> found.add(it.value()));
            }
            consumer.poll(Duration.ofMillis(500)).forEach(it -> found.add(it.value()));
        }
        Collections.sort(found);
        return found;
    }

    /** A later producer of the same id shuts the one before out. */
    private static void fence() throws Exception {
        try (KafkaProducer<String, String> zombie = producer("fence")) {
            zombie.beginTransaction();
            zombie.send(new ProducerRecord<>("fenced", 0, null, "of the zombie")).get();
            try (KafkaProducer<String, String> later = producer("fence")) {
                later.beginTransaction();
                later.send(new ProducerRecord<>("fenced", 0, null, "of the later one")).get();
                try {
                    zombie.commitTransaction();
                    System.out.println("the zombie has committed");
                } catch (ProducerFencedException error) {
                    System.out.println("fenced");
                }
                later.commitTransaction();
            }
        }
        read("fenced", 1).forEach(System.out::println);
    }

    /** Consume, transform, produce: until so many were answered, whatever fails. */
    private static void transform(int wanted) throws Exception {
        int transactions = 0;
        long end = System.currentTimeMillis() + 120_000;
        KafkaProducer<String, String> producer = producer("answerer");
        try (KafkaConsumer<String, String> consumer = consumer("java answerers")) {
            consumer.subscribe(List.of("questions"));
            long answered = 0;
            while (answered < wanted && System.currentTimeMillis() < end) {
                Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                List<ConsumerRecord<String, String>> records = new ArrayList<>();
                consumer.poll(Duration.ofMillis(200)).forEach(records::add);
                if (records.isEmpty()) {
                    answered = committed(consumer);
                    continue;
                }
                try {
                    producer.beginTransaction();
                    for (ConsumerRecord<String, String> it : records) {
                        producer.send(new ProducerRecord<>("answers", it.partition(), null, "a" + it.value().substring(1)));
                        offsets.put(new TopicPartition(it.topic(), it.partition()), new OffsetAndMetadata(it.offset() + 1));
                    }
                    producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
                    producer.commitTransaction();
                    transactions++;
                } catch (KafkaException error) {
                    System.err.println("again after " + error);
                    try {
                        producer.abortTransaction();
                    } catch (KafkaException fatal) {
                        producer.close(Duration.ofSeconds(1));
                        producer = producer("answerer");
                    }
                    consumer.committed(consumer.assignment()).forEach((place, offset) ->
                        consumer.seek(place, offset == null ? 0 : offset.offset()));
                }
                answered = committed(consumer);
            }
            System.out.println("answered " + answered);
        } finally {
            producer.close(Duration.ofSeconds(5));
        }
        System.out.println("transactions " + (transactions > 1));
    }

    private static long committed(KafkaConsumer<String, String> consumer) {
        Set<TopicPartition> places = Set.of(new TopicPartition("questions", 0), new TopicPartition("questions", 1));
        return consumer.committed(places).values().stream().mapToLong(it -> it == null ? 0 : it.offset()).sum();
    }
}
