import java.time.Duration;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.Stores;

/**
 * The nearest twin of reorder: the grace period of a stream-table join (KIP-923). It is a left join
 * whose table is empty, so what is measured is the buffer, and each look-up costs next to nothing.
 */
final class Reorder {
    private Reorder() {}

    static void apply(
            StreamsBuilder builder,
            KStream<byte[], byte[]> source,
            String sink,
            String topic,
            long graceMs) {
        Duration grace = Duration.ofMillis(graceMs);
        KTable<byte[], byte[]> table = builder.table(
            topic,
            Materialized.<byte[], byte[]>as(Stores.persistentVersionedKeyValueStore("table", grace))
                .withKeySerde(Race.BYTES)
                .withValueSerde(Race.BYTES));
        source
            .leftJoin(
                table,
                (value, row) -> value,
                Joined.<byte[], byte[], byte[]>with(Race.BYTES, Race.BYTES, Race.BYTES)
                    .withGracePeriod(grace))
            .to(sink, Produced.with(Race.BYTES, Race.BYTES));
    }
}
