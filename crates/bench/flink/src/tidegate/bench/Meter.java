package tidegate.bench;

import org.apache.flink.api.common.functions.RuntimeContext;

/**
 * Counts the records of one subtask, and how fast they came once it had warmed up: from a quarter
 * of what it is to see up to the last.
 *
 * <p>The clock is read every {@link #STRIDE} records, so the last ones may be missing from the
 * rate. They are never missing from the count. Each subtask adds its own rate to that of the job.
 */
final class Meter {
    /** A power of two. */
    private static final long STRIDE = 4096;

    private final long warm;
    private long records;
    private long sinceRecords;
    private long sinceNanos;
    private long lastRecords;
    private long lastNanos;

    Meter(long expectedRecords) {
        this.warm = expectedRecords / 4;
    }

    void count() {
        if ((++records & (STRIDE - 1)) == 0) {
            look();
        }
    }

    private void look() {
        long now = System.nanoTime();
        if (sinceRecords == 0 && records >= warm) {
            sinceRecords = records;
            sinceNanos = now;
        }
        lastRecords = records;
        lastNanos = now;
    }

    private long perSecond() {
        long nanos = lastNanos - sinceNanos;
        return sinceRecords == 0 || nanos <= 0
                ? 0
                : (long) ((lastRecords - sinceRecords) * 1e9 / nanos);
    }

    /** Adds this subtask's figures to the job's accumulators, where the driver reads them. */
    void report(RuntimeContext context) {
        context.getLongCounter("records").add(records);
        context.getLongCounter("steady-records-per-second").add(perSecond());
    }
}
