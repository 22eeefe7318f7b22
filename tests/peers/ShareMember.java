import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.*;

/**
 * A member of a share group: {@code ShareMember SERVERS GROUP TOPIC COUNT}. It releases some records once, renews and
 * rejects others, and ends when it has been told of so many that they count as done with. A line says what was wrong.
 */
public class ShareMember {
    static final long PATIENCE_MS = 90_000;

    public static void main(String[] arguments) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("group.id", arguments[1]);
        settings.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        settings.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        settings.put("share.acknowledgement.mode", "explicit");
        settings.put("max.poll.records", "100");
        int count = Integer.parseInt(arguments[3]);
        Set<String> done = new HashSet<>();
        Map<String, Integer> counts = new HashMap<>();
        try (KafkaShareConsumer<String, String> consumer = new KafkaShareConsumer<>(settings)) {
            consumer.subscribe(List.of(arguments[2]));
            long end = System.currentTimeMillis() + PATIENCE_MS;
            while (done.size() < count && System.currentTimeMillis() < end) {
                Map<Integer, List<String>> answered = new HashMap<>();
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(500))) {
                    String place = record.partition() + "/" + record.offset();
                    int deliveries = record.deliveryCount().get();
                    if (done.contains(place)) {
                        System.out.println(place + " came again");
                    }
                    if (deliveries <= counts.getOrDefault(place, 0)) {
                        System.out.println(place + ": a delivery is forgotten");
                    }
                    counts.put(place, deliveries);
                    if (deliveries == 1 && record.offset() % 3 == 0) {
                        consumer.acknowledge(record, AcknowledgeType.RELEASE);
                        continue;
                    }
                    boolean isBad = record.offset() % 10 == 1;
                    consumer.acknowledge(record, isBad ? AcknowledgeType.REJECT : AcknowledgeType.ACCEPT);
                    answered.computeIfAbsent(record.partition(), it -> new ArrayList<>()).add(place);
                }
                consumer.commitSync().forEach((partition, error) -> {
                    if (error.isEmpty()) {
                        done.addAll(answered.getOrDefault(partition.partition(), List.of()));
                    }
                });
                System.out.println("so far " + done.size());
            }
        }
        System.out.println("done " + done.size());
    }
}
