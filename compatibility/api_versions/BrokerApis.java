// Prints the lines of kafka.json: the APIs of a broker's listener, as the kafka-clients on the class path has them.
//
//   java -cp 'kafka-clients-4.2.0.jar:slf4j-api.jar' BrokerApis.java

import org.apache.kafka.common.message.ApiMessageType.ListenerType;
import org.apache.kafka.common.protocol.ApiKeys;

public class BrokerApis {
    public static void main(String[] arguments) {
        for (ApiKeys key : ApiKeys.values()) {
            if (key.inScope(ListenerType.BROKER) && key.hasValidVersion()) {
                System.out.printf(
                    "{\"key\": %d, \"name\": \"%s\", \"min\": %d, \"max\": %d}%n",
                    key.id, key.name, key.oldestVersion(), key.latestVersion(false));
            }
        }
    }
}
