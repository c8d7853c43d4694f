package tidegate.bench;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;

import org.apache.flink.api.connector.source.Boundedness;
import org.apache.flink.api.connector.source.Source;
import org.apache.flink.api.connector.source.SourceReader;
import org.apache.flink.api.connector.source.SourceReaderContext;
import org.apache.flink.api.connector.source.SourceSplit;
import org.apache.flink.api.connector.source.SplitEnumerator;
import org.apache.flink.api.connector.source.SplitEnumeratorContext;
import org.apache.flink.core.io.SimpleVersionedSerializer;

/**
 * A source that makes records from the numbers {@code 0..records}, one contiguous range per reader.
 * Flink's own generators cost several times as much per record, which would hide what is measured.
 *
 * @param <T> what is made of a number
 */
final class Numbers<T> implements Source<T, Numbers.Range, List<Numbers.Range>> {
    private static final long serialVersionUID = 1;

    /** Makes the record of a number. Has no state, so the same number always gives the same one. */
    interface Maker<T> extends java.io.Serializable {
        T make(long number);
    }

    private final long records;
    private final int readers;
    private final Maker<T> maker;

    Numbers(long records, int readers, Maker<T> maker) {
        this.records = records;
        this.readers = readers;
        this.maker = maker;
    }

    @Override
    public Boundedness getBoundedness() {
        return Boundedness.BOUNDED;
    }

    @Override
    public SourceReader<T, Range> createReader(SourceReaderContext context) {
        return new NumbersReader<>(context, maker);
    }

    @Override
    public SplitEnumerator<Range, List<Range>> createEnumerator(
            SplitEnumeratorContext<Range> context) {
        List<Range> ranges = new ArrayList<>();
        for (int reader = 0; reader < readers; reader++) {
            // The first readers take one more each of what can't be divided.
            long share = records / readers;
            long rest = records % readers;
            long from = reader * share + Math.min(reader, rest);
            long to = from + share + (reader < rest ? 1 : 0);
            ranges.add(new Range(reader, from, to));
        }
        return new Dealer(context, ranges);
    }

    @Override
    public SplitEnumerator<Range, List<Range>> restoreEnumerator(
            SplitEnumeratorContext<Range> context, List<Range> ranges) {
        return new Dealer(context, ranges);
    }

    @Override
    public SimpleVersionedSerializer<Range> getSplitSerializer() {
        return new RangeSerializer();
    }

    @Override
    public SimpleVersionedSerializer<List<Range>> getEnumeratorCheckpointSerializer() {
        return new RangesSerializer();
    }

    /** The numbers {@code from..to}, without {@code to}, that are still to be made into records. */
    record Range(int index, long from, long to) implements SourceSplit {
        @Override
        public String splitId() {
            return Integer.toString(index);
        }

        void write(DataOutputStream out) throws IOException {
            out.writeInt(index);
            out.writeLong(from);
            out.writeLong(to);
        }

        static Range read(DataInputStream in) throws IOException {
            return new Range(in.readInt(), in.readLong(), in.readLong());
        }
    }

    /** Gives a range to whoever asks, until none is left. */
    private static final class Dealer implements SplitEnumerator<Range, List<Range>> {
        private final SplitEnumeratorContext<Range> context;
        private final List<Range> left;

        Dealer(SplitEnumeratorContext<Range> context, List<Range> left) {
            this.context = context;
            this.left = new ArrayList<>(left);
        }

        @Override
        public void start() {}

        @Override
        public void handleSplitRequest(int reader, String host) {
            if (left.isEmpty()) {
                context.signalNoMoreSplits(reader);
            } else {
                context.assignSplit(left.remove(0), reader);
            }
        }

        @Override
        public void addSplitsBack(List<Range> ranges, int reader) {
            left.addAll(ranges);
        }

        @Override
        public void addReader(int reader) {}

        @Override
        public List<Range> snapshotState(long checkpoint) {
            return new ArrayList<>(left);
        }

        @Override
        public void close() {}
    }

    private static final class RangeSerializer implements SimpleVersionedSerializer<Range> {
        @Override
        public int getVersion() {
            return 1;
        }

        @Override
        public byte[] serialize(Range range) throws IOException {
            ByteArrayOutputStream bytes = new ByteArrayOutputStream();
            range.write(new DataOutputStream(bytes));
            return bytes.toByteArray();
        }

        @Override
        public Range deserialize(int version, byte[] bytes) throws IOException {
            return Range.read(new DataInputStream(new ByteArrayInputStream(bytes)));
        }
    }

    private static final class RangesSerializer implements SimpleVersionedSerializer<List<Range>> {
        @Override
        public int getVersion() {
            return 1;
        }

        @Override
        public byte[] serialize(List<Range> ranges) throws IOException {
            ByteArrayOutputStream bytes = new ByteArrayOutputStream();
            DataOutputStream out = new DataOutputStream(bytes);
            out.writeInt(ranges.size());
            for (Range range : ranges) {
                range.write(out);
            }
            return bytes.toByteArray();
        }

        @Override
        public List<Range> deserialize(int version, byte[] bytes) throws IOException {
            DataInputStream in = new DataInputStream(new ByteArrayInputStream(bytes));
            List<Range> ranges = new ArrayList<>();
            for (int left = in.readInt(); left > 0; left--) {
                ranges.add(Range.read(in));
            }
            return ranges;
        }
    }
}
