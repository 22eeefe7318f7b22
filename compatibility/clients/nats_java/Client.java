// nats.java; see compatibility.port.

import io.nats.client.Connection;
import io.nats.client.ConnectionListener;
import io.nats.client.Dispatcher;
import io.nats.client.JetStream;
import io.nats.client.JetStreamApiException;
import io.nats.client.JetStreamManagement;
import io.nats.client.KeyValue;
import io.nats.client.Message;
import io.nats.client.Nats;
import io.nats.client.NUID;
import io.nats.client.Options;
import io.nats.client.PublishOptions;
import io.nats.client.Subscription;
import io.nats.client.api.KeyValueConfiguration;
import io.nats.client.api.PublishAck;
import io.nats.client.api.StreamConfiguration;
import io.nats.client.impl.Headers;
import io.nats.client.impl.NatsMessage;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.TreeMap;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

public class Client {
  static final Duration WAIT = Duration.ofSeconds(10);
  static String servers;

  interface Verb {
    void run() throws Exception;
  }

  static class NotOffered extends RuntimeException {
    NotOffered(String why) {
      super(why);
    }
  }

  static void put(String key, String value) {
    String text = value.replace("\\", "\\\\").replace("\"", "\\\"").replace("\n", " ");
    System.out.println("{\"" + key + "\": \"" + text + "\"}");
    System.out.flush();
  }

  static void same(Object found, Object wanted, String what) {
    if (!Objects.equals(found, wanted)) {
      throw new AssertionError(what + ": " + found + " instead of " + wanted);
    }
  }

  static Options.Builder options() {
    return new Options.Builder()
        .servers(servers.split(","))
        .reconnectWait(Duration.ofMillis(200))
        .errorListener(new io.nats.client.ErrorListener() {});
  }

  static Connection connect() throws Exception {
    return Nats.connect(options().build());
  }

  static byte[] bytes(String text) {
    return text.getBytes(StandardCharsets.UTF_8);
  }

  static String text(Message message) {
    if (message == null) {
      throw new AssertionError("no message came");
    }
    return new String(message.getData(), StandardCharsets.UTF_8);
  }

  static List<String> numbers(int count) {
    return IntStream.range(0, count).mapToObj(String::valueOf).collect(Collectors.toList());
  }

  static List<String> texts(Subscription subscription, int count) throws Exception {
    List<String> found = new ArrayList<>();
    while (found.size() < count) {
      found.add(text(subscription.nextMessage(WAIT)));
    }
    return found;
  }

  static String unique() {
    return NUID.nextGlobal();
  }

  static void survive(int others) throws Exception {
    CountDownLatch reconnected = new CountDownLatch(1);
    Options.Builder options =
        options()
            .maxReconnects(-1)
            .connectionListener(
                (connection, event) -> {
                  if (event == ConnectionListener.Events.RESUBSCRIBED) {
                    reconnected.countDown();
                  }
                });
    if (others == 0) {
      options.ignoreDiscoveredServers();
    }
    try (Connection client = Nats.connect(options.build())) {
      String subject = unique();
      Subscription subscription = client.subscribe(subject);
      client.flush(WAIT);
      int known = client.getServerInfo().getConnectURLs().size();
      if (known <= others) {
        throw new AssertionError(known + " servers are discovered");
      }
      put("ready", "yes");
      if (!reconnected.await(60, TimeUnit.SECONDS)) {
        throw new AssertionError("reconnect: not within a minute");
      }
      client.publish(subject, bytes("again"));
      same(texts(subscription, 1), List.of("again"), "after it");
    }
  }

  static void pubsub() throws Exception {
    try (Connection sender = connect(); Connection reader = connect()) {
      String base = "t." + unique();
      Subscription exact = reader.subscribe(base + ".a.b");
      Subscription star = reader.subscribe(base + ".*.b");
      Subscription rest = reader.subscribe(base + ".>");
      reader.flush(WAIT);
      byte[] binary = new byte[256];
      for (int number = 0; number < 256; number++) {
        binary[number] = (byte) number;
      }
      for (String number : numbers(100)) {
        sender.publish(base + ".a.b", bytes(number));
      }
      sender.publish(base + ".c.b", null);
      sender.publish(base + ".c.b.d", binary);
      sender.flush(WAIT);
      List<String> hundred = numbers(100);
      same(texts(exact, 100), hundred, "exact");
      hundred.add("");
      same(texts(star, 101), hundred, "*");
      same(texts(rest, 101), hundred, ">");
      same(Arrays.equals(rest.nextMessage(WAIT).getData(), binary), true, "binary");
    }
  }

  static void queue() throws Exception {
    try (Connection sender = connect(); Connection first = connect(); Connection second = connect()) {
      String subject = unique();
      List<List<String>> seen = new ArrayList<>();
      for (Connection reader : List.of(first, second)) {
        List<String> found = Collections.synchronizedList(new ArrayList<>());
        seen.add(found);
        reader.createDispatcher(message -> found.add(text(message))).subscribe(subject, "q");
        reader.flush(WAIT);
      }
      for (String number : numbers(200)) {
        sender.publish(subject, bytes(number));
      }
      sender.flush(WAIT);
      long deadline = System.nanoTime() + WAIT.toNanos();
      while (seen.get(0).size() + seen.get(1).size() < 200 && System.nanoTime() < deadline) {
        Thread.sleep(10);
      }
      List<String> all = new ArrayList<>(seen.get(0));
      all.addAll(seen.get(1));
      all.sort((a, b) -> Integer.parseInt(a) - Integer.parseInt(b));
      same(all, numbers(200), "both members");
      same(seen.get(0).isEmpty() || seen.get(1).isEmpty(), false, "a member has none");
    }
  }

  static void headers() throws Exception {
    try (Connection client = connect()) {
      String subject = unique();
      Subscription subscription = client.subscribe(subject);
      Headers sent = new Headers().add("Colour", "red", "blue").add("n", "1:2");
      client.publish(NatsMessage.builder().subject(subject).headers(sent).data("x").build());
      Message message = subscription.nextMessage(WAIT);
      same(text(message), "x", "payload");
      same(message.getHeaders().get("Colour"), List.of("red", "blue"), "two values");
      same(message.getHeaders().get("n"), List.of("1:2"), "a colon");
    }
  }

  static void request() throws Exception {
    for (Options.Builder options : List.of(options(), options().oldRequestStyle())) {
      try (Connection client = Nats.connect(options.build())) {
        String subject = unique();
        client
            .createDispatcher(
                message -> client.publish(message.getReplyTo(), bytes("re: " + text(message))))
            .subscribe(subject);
        List<CompletableFuture<Message>> asked = new ArrayList<>();
        for (String number : numbers(50)) {
          asked.add(client.request(subject, bytes(number)));
        }
        for (String number : numbers(50)) {
          Message answer = asked.get(Integer.parseInt(number)).get(10, TimeUnit.SECONDS);
          same(text(answer), "re: " + number, "answer");
        }
      }
    }
  }

  static void noResponders() throws Exception {
    try (Connection client = connect()) {
      long started = System.nanoTime();
      try {
        client.request(unique(), new byte[0]).get(10, TimeUnit.SECONDS);
        throw new AssertionError("somebody answered");
      } catch (CancellationException | ExecutionException expected) {
        same(System.nanoTime() - started < WAIT.toNanos() / 2, true, "at once");
      }
    }
  }

  static void unsubscribe() throws Exception {
    try (Connection client = connect()) {
      String subject = unique();
      Subscription limited = client.subscribe(subject);
      limited.unsubscribe(3);
      Subscription witness = client.subscribe(subject);
      for (String number : numbers(10)) {
        client.publish(subject, bytes(number));
      }
      same(texts(witness, 10), numbers(10), "the other");
      same(texts(limited, 3), numbers(3), "limited");
      client.flush(WAIT);
      same(limited.isActive(), false, "goes on");
    }
  }

  static void drain() throws Exception {
    try (Connection sender = connect(); Connection reader = connect()) {
      String subject = unique();
      List<String> seen = Collections.synchronizedList(new ArrayList<>());
      Dispatcher dispatcher =
          reader.createDispatcher(
              message -> {
                Thread.sleep(1);
                seen.add(text(message));
              });
      dispatcher.subscribe(subject);
      reader.flush(WAIT);
      for (String number : numbers(300)) {
        sender.publish(subject, bytes(number));
      }
      sender.flush(WAIT);
      reader.flush(WAIT);
      same(reader.drain(WAIT).get(30, TimeUnit.SECONDS), true, "drain");
      same(reader.getStatus(), Connection.Status.CLOSED, "status");
      same(seen, numbers(300), "drained");
    }
  }

  static void maxPayload() throws Exception {
    try (Connection client = connect()) {
      String subject = unique();
      Subscription subscription = client.subscribe(subject);
      int largest = (int) client.getMaxPayload();
      try {
        client.publish(subject, new byte[largest + 1]);
        throw new AssertionError("it was sent");
      } catch (IllegalArgumentException expected) {
        client.publish(subject, new byte[largest]);
      }
      same(subscription.nextMessage(WAIT).getData().length, largest, "the largest one");
    }
  }

  static StreamConfiguration configuration(String name) {
    return StreamConfiguration.builder().name(name).subjects(name + ".>").build();
  }

  static void pubacks() throws Exception {
    try (Connection client = connect()) {
      String name = unique();
      JetStreamManagement manager = client.jetStreamManagement();
      JetStream stream = client.jetStream();
      manager.addStream(configuration(name));
      List<CompletableFuture<PublishAck>> sent = new ArrayList<>();
      for (String number : numbers(200)) {
        sent.add(stream.publishAsync(name + ".x", bytes(number)));
      }
      for (int place = 0; place < 200; place++) {
        PublishAck ack = sent.get(place).get(10, TimeUnit.SECONDS);
        same(ack.getSeqno(), place + 1L, "sequence");
        same(ack.getStream(), name, "stream");
      }
      PublishOptions once = PublishOptions.builder().messageId("once").build();
      PublishAck first = stream.publish(name + ".x", bytes("once"), once);
      PublishAck second = stream.publish(name + ".x", bytes("once"), once);
      same(List.of(first.getSeqno(), first.isDuplicate()), List.of(201L, false), "the first");
      same(List.of(second.getSeqno(), second.isDuplicate()), List.of(201L, true), "the second");
      manager.deleteStream(name);
    }
  }

  static void streams() throws Exception {
    try (Connection client = connect()) {
      String name = unique();
      JetStreamManagement manager = client.jetStreamManagement();
      same(manager.addStream(configuration(name)).getConfiguration().getName(), name, "created");
      for (String number : numbers(5)) {
        client.jetStream().publish(name + "." + number, bytes(number));
      }
      same(manager.getStreamInfo(name).getStreamState().getMsgCount(), 5L, "messages");
      byte[] second = manager.getMessage(name, 2).getData();
      same(new String(second, StandardCharsets.UTF_8), "1", "the second");
      same(manager.getStreamNames().contains(name), true, "listed");
      manager.purgeStream(name);
      same(manager.getStreamInfo(name).getStreamState().getMsgCount(), 0L, "purged");
      manager.deleteStream(name);
      try {
        manager.getStreamInfo(name);
        throw new AssertionError("it is still there");
      } catch (JetStreamApiException expected) {
        same(expected.getErrorCode(), 404, "code");
      }
    }
  }

  static void keyValue() throws Exception {
    try (Connection client = connect()) {
      String name = unique();
      client
          .keyValueManagement()
          .create(KeyValueConfiguration.builder().name(name).maxHistoryPerKey(5).build());
      KeyValue bucket = client.keyValue(name);
      long first = bucket.put("colour", bytes("red"));
      same(bucket.get("colour").getValueAsString(), "red", "value");
      long second = bucket.update("colour", bytes("blue"), first);
      same(bucket.get("colour").getRevision(), second, "revision");
      try {
        bucket.update("colour", bytes("green"), first);
        throw new AssertionError("an old revision was taken");
      } catch (JetStreamApiException expected) {
        same(expected.getApiErrorCode(), 10071, "code");
      }
      bucket.delete("colour");
      same(bucket.get("colour"), null, "deleted");
      client.keyValueManagement().delete(name);
    }
  }

  static final Map<String, Verb> VERBS = new TreeMap<>();

  static {
    VERBS.put(
        "connect",
        () -> {
          try (Connection client = connect()) {
            client.flush(WAIT);
            client.RTT();
          }
        });
    VERBS.put("pubsub", Client::pubsub);
    VERBS.put("queue", Client::queue);
    VERBS.put("headers", Client::headers);
    VERBS.put("request", Client::request);
    VERBS.put("no_responders", Client::noResponders);
    VERBS.put(
        "request_many",
        () -> {
          throw new NotOffered("only in another package");
        });
    VERBS.put("unsubscribe", Client::unsubscribe);
    VERBS.put("drain", Client::drain);
    VERBS.put("max_payload", Client::maxPayload);
    VERBS.put("reconnect", () -> survive(0));
    VERBS.put("failover", () -> survive(1));
    VERBS.put("pubacks", Client::pubacks);
    VERBS.put("streams", Client::streams);
    VERBS.put("key_value", Client::keyValue);
  }

  public static void main(String[] arguments) {
    servers = arguments[0];
    if (arguments[1].equals("version")) {
      String jar = Nats.class.getProtectionDomain().getCodeSource().getLocation().getPath();
      put("version", jar.replaceAll(".*jnats-|\\.jar$", "")); // the client says "development"
      System.exit(0);
    }
    try {
      VERBS.get(arguments[1]).run();
      put("done", "yes");
    } catch (NotOffered reason) {
      put("not_offered", reason.getMessage());
    } catch (Throwable error) {
      put("error", error.toString());
    }
    System.exit(0);
  }
}
