import java.time.Duration;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.state.Stores;

/** Kafka Streams, exactly once: {@code Words SERVERS FOLDER} writes words in capitals, and counts them all, until it is killed. */
public final class Words {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("application.id", "words");
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("state.dir", arguments[1]);
        settings.put("processing.guarantee", "exactly_once_v2");
        settings.put("commit.interval.ms", "200");
        settings.put("replication.factor", "3");
        settings.put("auto.offset.reset", "earliest");
        settings.put("consumer.session.timeout.ms", "6000");
        settings.put("consumer.heartbeat.interval.ms", "500");
        settings.put("default.key.serde", Serdes.StringSerde.class.getName());
        settings.put("default.value.serde", Serdes.StringSerde.class.getName());
        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> words = builder.stream("words");
        words.mapValues(it -> it.toUpperCase()).to("capitals");
        words
            .groupBy((key, it) -> "all")
            .count(Materialized.<String, Long>as(Stores.inMemoryKeyValueStore("counts"))
                .withCachingDisabled().withKeySerde(Serdes.String()).withValueSerde(Serdes.Long()))
            .toStream()
            .mapValues(it -> "" + it)
            .to("counts");
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            return StreamThreadExceptionResponse.REPLACE_THREAD;
        });
        streams.start();
        while (true) {
            Thread.sleep(1_000);
        }
    }
}
