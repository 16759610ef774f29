import static org.apache.kafka.streams.CloseOptions.GroupMembershipOperation.LEAVE_GROUP;

import java.util.Map;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.CloseOptions;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.KStream;

/** One operator of Kafka Streams between two topics, until it is told to stop. */
public final class Race {
    static final Serde<byte[]> BYTES = Serdes.ByteArray();

    private Race() {}

    public static void main(String[] none) {
        StreamsBuilder builder = new StreamsBuilder();
        build(builder);
        KafkaStreams streams = new KafkaStreams(builder.build(), properties());
        streams.setStateListener((now, before) -> {
            if (now == KafkaStreams.State.RUNNING) {
                System.out.println("running");
            }
            if (now == KafkaStreams.State.ERROR) {
                // A thread of the client cannot wait for the client's own end, as exit would.
                Runtime.getRuntime().halt(1);
            }
        });
        // Who does not leave his group keeps the next one waiting for the end of his session.
        CloseOptions leaving = CloseOptions.groupMembershipOperation(LEAVE_GROUP);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(leaving)));
        streams.start();
    }

    private static void build(StreamsBuilder builder) {
        String source = setting("SOURCE");
        String sink = setting("SINK");
        switch (setting("OPERATOR")) {
            case "count-alerts" ->
                CountAlerts.apply(builder, source, setting("TABLE"), sink);
            case "customers-subscriptions" ->
                CustomersSubscriptions.apply(builder, source, setting("TABLE"), sink);
            case "orders-customers" ->
                OrdersCustomers.apply(builder, source, setting("TABLE"), sink);
            case "revenue-by-segment" ->
                RevenueBySegment.apply(builder, source, sink);
            default ->
                buildOnBytes(builder, builder.stream(source, Consumed.with(BYTES, BYTES)), sink);
        }
    }

    private static void buildOnBytes(
            StreamsBuilder builder, KStream<byte[], byte[]> source, String sink) {
        switch (setting("OPERATOR")) {
            case "deduplicate" ->
                Deduplicate.apply(builder, source, sink, millis("INTERVAL_MS"));
            case "reorder" ->
                Reorder.apply(builder, source, sink, setting("TABLE"), millis("GRACE_MS"));
            case "suppress" ->
                Suppress.apply(source, sink, millis("LIMIT_MS"));
            case "windowed-count" ->
                WindowedCount.apply(source, sink, millis("WINDOW_MS"), millis("WINDOW_GRACE_MS"));
            case "versioned-join" ->
                VersionedJoin.apply(
                    builder, source, sink, setting("TABLE"), millis("RETENTION_MS"));
            case "priced-orders" ->
                PricedOrders.ofRaw(builder, source, sink, setting("TABLE"));
            case "priced-cleaned-orders" ->
                PricedOrders.ofCleaned(builder, source, sink, setting("TABLE"));
            default -> throw new IllegalArgumentException(setting("OPERATOR"));
        }
    }

    /** What the race sets for everybody; all else is Kafka Streams' default. */
    private static Properties properties() {
        Properties properties = new Properties();
        properties.putAll(Map.of(
            StreamsConfig.APPLICATION_ID_CONFIG, setting("GROUP"),
            StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, setting("BOOTSTRAP_SERVERS"),
            StreamsConfig.STATE_DIR_CONFIG, setting("STATE_FOLDER"),
            StreamsConfig.PROCESSING_GUARANTEE_CONFIG, setting("GUARANTEE"),
            StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, setting("COMMIT_INTERVAL_MS"),
            StreamsConfig.NUM_STREAM_THREADS_CONFIG, setting("THREADS")));
        return properties;
    }

    static long millis(String name) {
        return Long.parseLong(setting(name));
    }

    static boolean cacheIsTurnedOver() {
        return setting("CACHE").equals("turned over");
    }

    static String setting(String name) {
        String value = System.getenv("RACE_" + name);
        if (value == null) {
            throw new IllegalArgumentException("RACE_" + name + " is not set");
        }
        return value;
    }
}
