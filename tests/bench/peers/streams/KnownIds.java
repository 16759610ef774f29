import java.nio.ByteBuffer;
import java.util.Map;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.StoreBuilder;
import org.apache.kafka.streams.state.Stores;

/**
 * KIP-655 as its text has it: a base store, id to timestamp and offset, and an index with the
 * timestamp in front, by which ids are purged that are older than the interval.
 */
final class KnownIds {
    private static final byte[] NOTHING = {};
    /** Purging a twentieth of the interval at a time costs less than purging at each record. */
    private static final int PURGES_AN_INTERVAL = 20;

    private final KeyValueStore<Bytes, byte[]> ids;
    private final KeyValueStore<Bytes, byte[]> index;
    private final long intervalMs;
    private long purgedMs = 0;

    KnownIds(
            KeyValueStore<Bytes, byte[]> ids, KeyValueStore<Bytes, byte[]> index, long intervalMs) {
        this.ids = ids;
        this.index = index;
        this.intervalMs = intervalMs;
    }

    static StoreBuilder<KeyValueStore<Bytes, byte[]>> store(String name) {
        StoreBuilder<KeyValueStore<Bytes, byte[]>> store = Stores.keyValueStoreBuilder(
                Stores.persistentKeyValueStore(name), Serdes.Bytes(), Race.BYTES)
            .withLoggingEnabled(Map.of());
        return Race.cacheIsTurnedOver() ? store.withCachingEnabled() : store;
    }

    /** Whether a record of this id is a duplicate; one that is none is saved, if it is on time. */
    boolean drops(byte[] idBytes, long timestampMs, long offset, long streamTimeMs) {
        long expiredMs = streamTimeMs - intervalMs;
        if (expiredMs - purgedMs > intervalMs / PURGES_AN_INTERVAL) {
            purge(expiredMs);
        }
        Bytes id = Bytes.wrap(idBytes);
        byte[] saved = ids.get(id);
        if (saved != null && isNear(ByteBuffer.wrap(saved), timestampMs, offset, expiredMs)) {
            return true;
        }
        if (timestampMs >= expiredMs) {
            ids.put(id, ByteBuffer.allocate(16).putLong(timestampMs).putLong(offset).array());
            index.put(indexKey(timestampMs, idBytes), NOTHING);
        }
        return false;
    }

    /** Saved records behind the interval may wait for the next purge, and count no more. */
    private boolean isNear(ByteBuffer saved, long timestampMs, long offset, long expiredMs) {
        long savedMs = saved.getLong();
        return savedMs >= expiredMs
            && Math.abs(savedMs - timestampMs) <= intervalMs
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
