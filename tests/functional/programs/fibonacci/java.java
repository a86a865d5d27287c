import java.util.HashMap;
import java.util.Map;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

public class Main {
    private static final Map<Integer, Long> KNOWN = new HashMap<>(Map.of(0, 0L, 1, 1L));

    static long fibonacci(int n) {
        Long value = KNOWN.get(n);
        if (value == null) {
            value = fibonacci(n - 1) + fibonacci(n - 2);
            KNOWN.put(n, value);
        }
        return value;
    }

    public static void main(String[] args) {
        System.out.println(IntStream.rangeClosed(0, 10).mapToObj(n -> String.valueOf(fibonacci(n))).collect(Collectors.joining(" ")));
        System.out.println(fibonacci(70));
    }
}
