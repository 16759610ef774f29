import java.nio.ByteBuffer;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.processor.api.FixedKeyProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyProcessorContext;
import org.apache.kafka.streams.processor.api.FixedKeyRecord;
import org.apache.kafka.streams.processor.api.RecordMetadata;

/** KIP-655 by key and the header `id`. The key stays, so nothing is partitioned anew behind it. */
final class Once implements FixedKeyProcessor<byte[], byte[], byte[]> {
    private final String name;
    private final long intervalMs;
    private FixedKeyProcessorContext<byte[], byte[]> context;
    private KnownIds known;

    private Once(String name, long intervalMs) {
        this.name = name;
        this.intervalMs = intervalMs;
    }

    static KStream<byte[], byte[]> of(
            StreamsBuilder builder, KStream<byte[], byte[]> source, String name, long intervalMs) {
        builder.addStateStore(KnownIds.store(ids(name)));
        builder.addStateStore(KnownIds.store(index(name)));
        return source.processValues(() -> new Once(name, intervalMs), ids(name), index(name));
    }

    private static String ids(String name) {
        return name + "-ids";
    }

    private static String index(String name) {
        return name + "-index";
    }

    @Override
    public void init(FixedKeyProcessorContext<byte[], byte[]> context) {
        this.context = context;
        known = new KnownIds(
            context.getStateStore(ids(name)), context.getStateStore(index(name)), intervalMs);
    }

    @Override
    public void process(FixedKeyRecord<byte[], byte[]> record) {
        byte[] key = record.key();
        byte[] header = record.headers().lastHeader("id").value();
        byte[] id = ByteBuffer.allocate(Integer.BYTES + key.length + header.length)
            .putInt(key.length).put(key).put(header).array();
        long offset = context.recordMetadata().map(RecordMetadata::offset).orElse(-1L);
        if (!known.drops(id, record.timestamp(), offset, context.currentStreamTimeMs())) {
            context.forward(record);
        }
    }
}
