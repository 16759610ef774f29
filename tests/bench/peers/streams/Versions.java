import java.time.Duration;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.state.Stores;

/** Versioned tables of topics whose values are JSON. */
final class Versions {
    private Versions() {}

    static <V> KTable<String, V> of(StreamsBuilder builder, String topic, Class<V> type) {
        Serde<V> values = Json.of(type);
        return builder.table(
            topic,
            Consumed.with(Serdes.String(), values),
            Materialized.<String, V>as(Stores.persistentVersionedKeyValueStore(
                    topic + "-versions", Duration.ofMillis(Race.millis("RETENTION_MS"))))
                .withKeySerde(Serdes.String())
                .withValueSerde(values));
    }
}
