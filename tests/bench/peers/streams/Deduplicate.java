import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.processor.api.RecordMetadata;

/** KIP-655 by key. */
final class Deduplicate implements Processor<byte[], byte[], byte[], byte[]> {
    private static final String IDS = "ids";
    private static final String INDEX = "index";

    private final long intervalMs;
    private ProcessorContext<byte[], byte[]> context;
    private KnownIds known;

    private Deduplicate(long intervalMs) {
        this.intervalMs = intervalMs;
    }

    static void apply(
            StreamsBuilder builder, KStream<byte[], byte[]> source, String sink, long intervalMs) {
        builder.addStateStore(KnownIds.store(IDS));
        builder.addStateStore(KnownIds.store(INDEX));
        source
            .process(() -> new Deduplicate(intervalMs), IDS, INDEX)
            .to(sink, Produced.with(Race.BYTES, Race.BYTES));
    }

    @Override
    public void init(ProcessorContext<byte[], byte[]> context) {
        this.context = context;
        known = new KnownIds(
            context.getStateStore(IDS), context.getStateStore(INDEX), intervalMs);
    }

    @Override
    public void process(Record<byte[], byte[]> record) {
        long offset = context.recordMetadata().map(RecordMetadata::offset).orElse(-1L);
        long streamTimeMs = context.currentStreamTimeMs();
        if (!known.drops(record.key(), record.timestamp(), offset, streamTimeMs)) {
            context.forward(record);
        }
    }
}
