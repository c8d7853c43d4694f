package tidegate.bench;

/**
 * Records that are strings of 1 to 40 letters, as Tidegate's side of the suite makes them: the
 * number of the key, in hexadecimal, and a filler that begins with what no number contains.
 *
 * <p>Each string is made once and then handed out again and again, which costs less.
 */
final class Texts implements Numbers.Maker<String> {
    private static final long serialVersionUID = 1;
    private static final int LENGTH_MAX = 40;
    private static final String FILLER = "-the-quick-brown-fox-jumps-over-the-lazy";

    private final int keys;
    private transient String[] texts;

    /** @param keys how many different ones */
    Texts(long keys) {
        this.keys = Math.toIntExact(keys);
    }

    @Override
    public String make(long number) {
        if (texts == null) {
            texts = new String[keys];
        }
        int key = (int) Keys.key(number, keys);
        String text = texts[key];
        if (text == null) {
            text = text(key);
            texts[key] = text;
        }
        return text;
    }

    private static String text(long key) {
        String digits = Long.toHexString(key);
        int length = 1 + (int) ((Keys.mix(key) >>> 32) % LENGTH_MAX);
        return digits + FILLER.substring(0, Math.max(0, length - digits.length()));
    }
}
