package tidegate.bench;

import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;

/** Counts the records of each key and emits each new count, as Tidegate's {@code count} does. */
final class CountPerKey<K> extends KeyedProcessFunction<K, K, Long> {
    private static final long serialVersionUID = 1;

    private final long expectedRecords;
    private transient ValueState<Long> count;
    private transient Meter meter;

    /** @param expectedRecords how many records each subtask is about to see */
    CountPerKey(long expectedRecords) {
        this.expectedRecords = expectedRecords;
    }

    @Override
    public void open(OpenContext context) {
        count = getRuntimeContext().getState(new ValueStateDescriptor<>("count", Types.LONG));
        meter = new Meter(expectedRecords);
    }

    @Override
    public void processElement(K record, Context context, Collector<Long> output)
            throws Exception {
        Long before = count.value();
        long now = before == null ? 1 : before + 1;
        count.update(now);
        meter.count();
        output.collect(now);
    }

    @Override
    public void close() {
        if (meter != null) {
            meter.report(getRuntimeContext());
        }
    }
}
