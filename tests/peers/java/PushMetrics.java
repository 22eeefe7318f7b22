import java.time.Duration;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** A producer that would push its metrics; how many records it has sent, and its id as the broker knows it. */
public class PushMetrics {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("enable.metrics.push", true);
        var bytes = new ByteArraySerializer();
        try (var producer = new KafkaProducer<>(settings, bytes, bytes)) {
            int sent = 0;
            for (long end = System.nanoTime() + 5_000_000_000L; System.nanoTime() < end; sent++) {
                producer.send(new ProducerRecord<>("metrics", new byte[1])).get();
            }
            System.out.println("sent " + (sent > 0) + ", known as " + producer.clientInstanceId(Duration.ofSeconds(1)));
        }
    }
}
