package tidegate.bench;

import org.apache.flink.api.java.functions.KeySelector;

/** The keys of the generated records: the same for every system that is compared. */
final class Keys {
    private Keys() {}

    /** Spreads consecutive numbers: SplitMix64's finaliser. */
    static long mix(long number) {
        long z = (number ^ (number >>> 30)) * 0xBF58476D1CE4E5B9L;
        z = (z ^ (z >>> 27)) * 0x94D049BB133111EBL;
        return z ^ (z >>> 31);
    }

    /**
     * The key of a record if there are {@code keys} of them. Java's signed remainder is the fast
     * one, so one bit less of the number decides than elsewhere; keys are spread all the same.
     */
    static long key(long number, long keys) {
        return (mix(number) >>> 1) % keys;
    }

    /** The record is its own key. */
    static final class Itself<T> implements KeySelector<T, T> {
        private static final long serialVersionUID = 1;

        @Override
        public T getKey(T record) {
            return record;
        }
    }
}
