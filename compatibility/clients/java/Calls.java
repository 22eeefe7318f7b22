import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;

/** A call of the admin client for each operation. */
class Calls {
    private final Admin admin;

    Calls(Admin admin) {
        this.admin = admin;
    }

    Map<String, ?> answer(JsonNode call) throws Exception {
        String topic = call.path("topic").asText();
        String group = call.path("group").asText();
        return switch (call.get("op").asText()) {
            case "create" -> create(topic, call);
            case "widen" -> {
                var wanted = NewPartitions.increaseTo(call.get("partitions").asInt());
                admin.createPartitions(Map.of(topic, wanted)).all().get();
                yield Map.of();
            }
            case "delete" -> {
                admin.deleteTopics(List.of(topic)).all().get();
                yield Map.of();
            }
            case "topics" -> Map.of("topics", admin.listTopics().names().get());
            case "describe" -> {
                var found = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
                yield Map.of("partitions", found.partitions().size());
            }
            case "configs" -> configs(topic);
            case "set" -> set(topic, call);
            case "ends" -> Map.of(
                "earliest", end(Client.partition(call), OffsetSpec.earliest()),
                "latest", end(Client.partition(call), OffsetSpec.latest()));
            case "purge" -> {
                var wanted = RecordsToDelete.beforeOffset(call.get("offset").asLong());
                admin.deleteRecords(Map.of(Client.partition(call), wanted)).all().get();
                yield Map.of();
            }
            case "groups" -> {
                List<String> names = new ArrayList<>();
                admin.listConsumerGroups().all().get().forEach(it -> names.add(it.groupId()));
                yield Map.of("groups", names);
            }
            case "members" -> {
                var found = admin.describeConsumerGroups(List.of(group)).all().get().get(group);
                yield Map.of("members", found.members().size());
            }
            case "committed" -> committed(group);
            case "reset" -> {
                var wanted = new OffsetAndMetadata(call.get("offset").asLong());
                admin.alterConsumerGroupOffsets(group, Map.of(Client.partition(call), wanted)).all().get();
                yield Map.of();
            }
            case "forget" -> {
                admin.deleteConsumerGroups(List.of(group)).all().get();
                yield Map.of();
            }
            default -> Map.of("not_offered", "no such call");
        };
    }

    private Map<String, ?> create(String topic, JsonNode call) throws Exception {
        Map<String, String> configs = new HashMap<>();
        call.get("configs").fields().forEachRemaining(it -> configs.put(it.getKey(), it.getValue().asText()));
        int partitions = call.get("partitions").asInt();
        short replicas = (short) call.get("replicas").asInt();
        admin.createTopics(List.of(new NewTopic(topic, partitions, replicas).configs(configs))).all().get();
        return Map.of();
    }

    private Map<String, ?> configs(String topic) throws Exception {
        var asked = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        Map<String, String> values = new HashMap<>();
        admin.describeConfigs(List.of(asked)).all().get().get(asked).entries()
            .forEach(entry -> values.put(entry.name(), entry.value()));
        return Map.of("configs", values);
    }

    private Map<String, ?> set(String topic, JsonNode call) throws Exception {
        Collection<AlterConfigOp> changes = new ArrayList<>();
        call.get("configs").fields().forEachRemaining(it -> changes.add(new AlterConfigOp(
            new ConfigEntry(it.getKey(), it.getValue().asText()), AlterConfigOp.OpType.SET)));
        var resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        admin.incrementalAlterConfigs(Map.of(resource, changes)).all().get();
        return Map.of();
    }

    private long end(TopicPartition partition, OffsetSpec spec) throws Exception {
        return admin.listOffsets(Map.of(partition, spec)).partitionResult(partition).get().offset();
    }

    private Map<String, ?> committed(String group) throws Exception {
        Map<String, Long> offsets = new HashMap<>();
        admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get()
            .forEach((partition, it) -> offsets.put(String.valueOf(partition.partition()), it.offset()));
        return Map.of("offsets", offsets);
    }
}
