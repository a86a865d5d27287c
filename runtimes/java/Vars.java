/** Variables of the run: {@code Vars.name}. Their values are read when the first is used. docs/COMPILED.md */
final class Vars {
    // @declare@

    static {
        // @bind@
    }

    private Vars() {}
}

/** Apart, so that no name of a variable is in scope. The format: docs/DRIVERS.md, "Values". */
final class __PalisadeInput {
    private static final byte[] all;
    private static int next;

    static {
        try {
            all = java.nio.file.Files.readAllBytes(java.nio.file.Path.of("/palisade/variables"));
        } catch (java.io.IOException error) {
            throw new java.io.UncheckedIOException(error);
        }
    }

    private static String line() {
        int start = next;
        while (all[next] != '\n') next++;
        return new String(all, start, next++ - start, java.nio.charset.StandardCharsets.UTF_8);
    }

    private static int count() {
        return Integer.parseInt(line().substring(1));
    }

    static Object value() {
        String told = line();
        String rest = told.substring(1);
        switch (told.charAt(0)) {
            case 't': return true;
            case 'f': return false;
            case 'i': return Long.parseLong(rest);
            case 'I': return new java.math.BigInteger(rest);
            case 'd': return Double.parseDouble(rest);
            case 's': {
                int length = Integer.parseInt(rest);
                String text = new String(all, next, length, java.nio.charset.StandardCharsets.UTF_8);
                next += length + 1;
                return text;
            }
            case '[': {
                java.util.List<Object> list = new java.util.ArrayList<>();
                for (int left = Integer.parseInt(rest); left > 0; left--) list.add(value());
                return list;
            }
            case '{': {
                java.util.Map<String, Object> map = new java.util.LinkedHashMap<>();
                for (int left = Integer.parseInt(rest); left > 0; left--) {
                    String key = (String) value();
                    map.put(key, value());
                }
                return map;
            }
            default: return null;
        }
    }

    static boolean[] booleans() {
        boolean[] list = new boolean[count()];
        for (int i = 0; i < list.length; i++) list[i] = (Boolean) value();
        return list;
    }

    static long[] integers() {
        long[] list = new long[count()];
        for (int i = 0; i < list.length; i++) list[i] = (Long) value();
        return list;
    }

    static double[] floats() {
        double[] list = new double[count()];
        for (int i = 0; i < list.length; i++) list[i] = ((Number) value()).doubleValue();
        return list;
    }

    static String[] texts() {
        String[] list = new String[count()];
        for (int i = 0; i < list.length; i++) list[i] = (String) value();
        return list;
    }
}
