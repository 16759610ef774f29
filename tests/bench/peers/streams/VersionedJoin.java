import java.time.Duration;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.Stores;

/** Each record of a stream with the value that its key had in a versioned table at its time. */
final class VersionedJoin {
    private VersionedJoin() {}

    static void apply(
            StreamsBuilder builder,
            KStream<byte[], byte[]> source,
            String sink,
            String table,
            long retentionMs) {
        KTable<byte[], byte[]> versions = builder.table(
            table,
            Consumed.with(Race.BYTES, Race.BYTES),
            Materialized.<byte[], byte[]>as(Stores.persistentVersionedKeyValueStore(
                    "versions", Duration.ofMillis(retentionMs)))
                .withKeySerde(Race.BYTES)
                .withValueSerde(Race.BYTES));
        source
            .join(versions, VersionedJoin::joined, Joined.with(Race.BYTES, Race.BYTES, Race.BYTES))
            .to(sink, Produced.with(Race.BYTES, Race.BYTES));
    }

    /** Both values, and a bar between them. */
    private static byte[] joined(byte[] left, byte[] right) {
        byte[] both = new byte[left.length + 1 + right.length];
        System.arraycopy(left, 0, both, 0, left.length);
        both[left.length] = '|';
        System.arraycopy(right, 0, both, left.length + 1, right.length);
        return both;
    }
}
