import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.ObjectReader;
import com.fasterxml.jackson.databind.ObjectWriter;
import java.io.IOException;
import java.io.UncheckedIOException;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;

/** Records of Java as JSON, by Jackson; fields that they do not name are passed over. */
final class Json {
    static final ObjectMapper MAPPER =
        new ObjectMapper().disable(DeserializationFeature.FAIL_ON_UNKNOWN_PROPERTIES);

    private Json() {}

    static <T> Serde<T> of(Class<T> type) {
        ObjectReader reader = MAPPER.readerFor(type);
        ObjectWriter writer = MAPPER.writerFor(type);
        return Serdes.serdeFrom(
            (topic, value) -> value == null ? null : written(writer, value),
            (topic, bytes) -> bytes == null ? null : read(reader, bytes));
    }

    private static byte[] written(ObjectWriter writer, Object value) {
        try {
            return writer.writeValueAsBytes(value);
        } catch (IOException wrong) {
            throw new UncheckedIOException(wrong);
        }
    }

    private static <T> T read(ObjectReader reader, byte[] bytes) {
        try {
            return reader.readValue(bytes);
        } catch (IOException wrong) {
            throw new UncheckedIOException(wrong);
        }
    }
}
