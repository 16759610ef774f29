import java.nio.ByteBuffer;
import java.util.Map;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.processor.api.RecordMetadata;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.StoreBuilder;
import org.apache.kafka.streams.state.Stores;

/**
 * KIP-655 by key, as its text has it: a base store, id to timestamp and offset, and an index with
 * the timestamp in front, by which ids are purged that are older than the interval.
 */
final class Deduplicate implements Processor<byte[], byte[], byte[], byte[]> {
    private static final String IDS = "ids";
    private static final String INDEX = "index";
    private static final byte[] NOTHING = {};
    /** Purging a twentieth of the interval at a time costs less than purging at each record. */
    private static final int PURGES_AN_INTERVAL = 20;

    private final long intervalMs;
    private ProcessorContext<byte[], byte[]> context;
    private KeyValueStore<Bytes, byte[]> ids;
    private KeyValueStore<Bytes, byte[]> index;
    private long purgedMs = 0;

    private Deduplicate(long intervalMs) {
        this.intervalMs = intervalMs;
    }

    static void apply(
            StreamsBuilder builder, KStream<byte[], byte[]> source, String sink, long intervalMs) {
        builder.addStateStore(store(IDS));
        builder.addStateStore(store(INDEX));
        source
            .process(() -> new Deduplicate(intervalMs), IDS, INDEX)
            .to(sink, Produced.with(Race.BYTES, Race.BYTES));
    }

    private static StoreBuilder<KeyValueStore<Bytes, byte[]>> store(String name) {
        StoreBuilder<KeyValueStore<Bytes, byte[]>> store = Stores.keyValueStoreBuilder(
                Stores.persistentKeyValueStore(name), Serdes.Bytes(), Race.BYTES)
            .withLoggingEnabled(Map.of());
        return Race.cacheIsTurnedOver() ? store.withCachingEnabled() : store;
    }

    @Override
    public void init(ProcessorContext<byte[], byte[]> context) {
        this.context = context;
        ids = context.getStateStore(IDS);
        index = context.getStateStore(INDEX);
    }

    @Override
    public void process(Record<byte[], byte[]> record) {
        long expiredMs = context.currentStreamTimeMs() - intervalMs;
        if (expiredMs - purgedMs > intervalMs / PURGES_AN_INTERVAL) {
            purge(expiredMs);
        }
        Bytes id = Bytes.wrap(record.key());
        byte[] saved = ids.get(id);
        long offset = context.recordMetadata().map(RecordMetadata::offset).orElse(-1L);
        if (saved != null && isDuplicate(ByteBuffer.wrap(saved), record, offset, expiredMs)) {
            return;
        }
        if (record.timestamp() >= expiredMs) {
            ids.put(id, ByteBuffer.allocate(16).putLong(record.timestamp()).putLong(offset).array());
            index.put(indexKey(record.timestamp(), record.key()), NOTHING);
        }
        context.forward(record);
    }

    /** Saved records behind the interval may wait for the next purge, and count no more. */
    private boolean isDuplicate(
            ByteBuffer saved, Record<byte[], byte[]> record, long offset, long expiredMs) {
        long savedMs = saved.getLong();
        return savedMs >= expiredMs
            && Math.abs(savedMs - record.timestamp()) <= intervalMs
            && saved.getLong() != offset;
    }

    private void purge(long expiredMs) {
        Bytes from = indexKey(purgedMs, NOTHING);
        Bytes to = indexKey(expiredMs, NOTHING);
        try (KeyValueIterator<Bytes, byte[]> old = index.range(from, to)) {
            while (old.hasNext()) {
                forget(old.next());
            }
        }
        purgedMs = expiredMs;
    }

    private void forget(KeyValue<Bytes, byte[]> row) {
        ByteBuffer key = ByteBuffer.wrap(row.key.get());
        long savedMs = key.getLong();
        byte[] id = new byte[key.remaining()];
        key.get(id);
        index.delete(row.key);
        byte[] saved = ids.get(Bytes.wrap(id));
        // The id may have been saved anew since.
        if (saved != null && ByteBuffer.wrap(saved).getLong() == savedMs) {
            ids.delete(Bytes.wrap(id));
        }
    }

    private static Bytes indexKey(long timestampMs, byte[] id) {
        return Bytes.wrap(
            ByteBuffer.allocate(Long.BYTES + id.length).putLong(timestampMs).put(id).array());
    }
}
