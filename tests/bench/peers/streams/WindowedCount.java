import java.time.Duration;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.Suppressed.BufferConfig;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.WindowedSerdes;
import org.apache.kafka.streams.state.WindowStore;

/** How many records each key has in each window, once the window is closed. */
final class WindowedCount {
    private WindowedCount() {}

    static void apply(
            KStream<byte[], byte[]> source, String sink, long windowMs, long graceMs) {
        Serde<Windowed<byte[]>> keys = new WindowedSerdes.TimeWindowedSerde<>(Race.BYTES, windowMs);
        source
            .groupByKey(Grouped.with(Race.BYTES, Race.BYTES))
            .windowedBy(TimeWindows.ofSizeAndGrace(
                Duration.ofMillis(windowMs), Duration.ofMillis(graceMs)))
            .count(store())
            .suppress(Suppressed.untilWindowCloses(BufferConfig.unbounded()))
            .toStream()
            .to(sink, Produced.with(keys, Serdes.Long()));
    }

    private static Materialized<byte[], Long, WindowStore<Bytes, byte[]>> store() {
        Materialized<byte[], Long, WindowStore<Bytes, byte[]>> store =
            Materialized.with(Race.BYTES, Serdes.Long());
        return Race.cacheIsTurnedOver() ? store.withCachingDisabled() : store;
    }
}
