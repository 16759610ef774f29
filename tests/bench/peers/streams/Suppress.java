import java.time.Duration;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.Suppressed.BufferConfig;
import org.apache.kafka.streams.state.KeyValueStore;

/** KIP-328: the latest update of each key, a while after its first. The buffer is in memory. */
final class Suppress {
    private Suppress() {}

    static void apply(KStream<byte[], byte[]> source, String sink, long limitMs) {
        source
            // The table's cache would merge updates as commits happen to fall.
            .toTable(Materialized.<byte[], byte[], KeyValueStore<Bytes, byte[]>>with(
                Race.BYTES, Race.BYTES).withCachingDisabled())
            .suppress(Suppressed.untilTimeLimit(
                Duration.ofMillis(limitMs), BufferConfig.unbounded()))
            .toStream()
            .to(sink, Produced.with(Race.BYTES, Race.BYTES));
    }
}
