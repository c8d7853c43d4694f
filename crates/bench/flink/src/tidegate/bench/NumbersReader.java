package tidegate.bench;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;

import org.apache.flink.api.connector.source.ReaderOutput;
import org.apache.flink.api.connector.source.SourceReader;
import org.apache.flink.api.connector.source.SourceReaderContext;
import org.apache.flink.core.io.InputStatus;

/**
 * Makes records in runs of {@link #RUN}, so that what Flink does between two calls of
 * {@code pollNext} (looking for barriers, for one) is shared by many.
 */
final class NumbersReader<T> implements SourceReader<T, Numbers.Range> {
    private static final int RUN = 512;

    private final SourceReaderContext context;
    private final Numbers.Maker<T> maker;
    private final ArrayDeque<Numbers.Range> waiting = new ArrayDeque<>();
    private CompletableFuture<Void> news = new CompletableFuture<>();
    private boolean noMore;
    private int index = -1;
    private long next;
    private long end;

    NumbersReader(SourceReaderContext context, Numbers.Maker<T> maker) {
        this.context = context;
        this.maker = maker;
    }

    @Override
    public void start() {
        if (waiting.isEmpty()) {
            context.sendSplitRequest();
        }
    }

    @Override
    public InputStatus pollNext(ReaderOutput<T> output) {
        if (next == end && !begin()) {
            return noMore ? InputStatus.END_OF_INPUT : InputStatus.NOTHING_AVAILABLE;
        }
        long stop = Math.min(end, next + RUN);
        for (long number = next; number < stop; number++) {
            output.collect(maker.make(number));
        }
        next = stop;
        if (next == end) {
            index = -1;
            context.sendSplitRequest();
        }
        return InputStatus.MORE_AVAILABLE;
    }

    private boolean begin() {
        Numbers.Range range = waiting.poll();
        if (range == null) {
            if (news.isDone()) {
                news = new CompletableFuture<>();
            }
            return false;
        }
        index = range.index();
        next = range.from();
        end = range.to();
        return next < end;
    }

    @Override
    public List<Numbers.Range> snapshotState(long checkpoint) {
        List<Numbers.Range> ranges = new ArrayList<>(waiting);
        if (index >= 0) {
            ranges.add(new Numbers.Range(index, next, end));
        }
        return ranges;
    }

    @Override
    public CompletableFuture<Void> isAvailable() {
        return news;
    }

    @Override
    public void addSplits(List<Numbers.Range> ranges) {
        waiting.addAll(ranges);
        news.complete(null);
    }

    @Override
    public void notifyNoMoreSplits() {
        noMore = true;
        news.complete(null);
    }

    @Override
    public void close() {}
}
