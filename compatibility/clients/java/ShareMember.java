import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;

/** A member of a share group: releases the first records, and accepts the others. */
class ShareMember implements Client.Verb {
    @Override
    public void run(String servers, JsonNode arguments) {
        Properties settings = Client.settings(servers);
        settings.put("group.id", arguments.get("group").asText());
        settings.put("client.id", arguments.get("client_id").asText());
        settings.put("share.acknowledgement.mode", "explicit");
        int release = arguments.path("release").asInt();
        try (var consumer = new KafkaShareConsumer<String, String>(settings)) {
            consumer.subscribe(List.of(arguments.get("topic").asText()));
            AtomicBoolean ended = Client.endOfInput();
            while (!ended.get()) {
                List<Map<String, ?>> answers = new ArrayList<>();
                for (ConsumerRecord<String, String> record : consumer.poll(Client.POLL)) {
                    boolean accepted = release-- <= 0;
                    consumer.acknowledge(record, accepted ? AcknowledgeType.ACCEPT : AcknowledgeType.RELEASE);
                    answers.add(Map.of(
                        "partition", record.partition(),
                        "offset", record.offset(),
                        "value", record.value(),
                        "deliveries", record.deliveryCount().orElseThrow(),
                        "accepted", accepted));
                }
                for (var refused : consumer.commitSync().values()) {
                    if (refused.isPresent()) {
                        throw new KafkaException(refused.get());
                    }
                }
                answers.forEach(Client::put);
            }
        }
    }
}
