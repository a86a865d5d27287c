import java.util.BitSet;
import java.util.stream.Collectors;

public class Main {
    static BitSet primesBelow(int limit) {
        BitSet primes = new BitSet(limit);
        primes.set(2, limit);
        for (int n = 2; n * n < limit; n++) {
            if (!primes.get(n)) continue;
            for (int m = n * n; m < limit; m += n) primes.clear(m);
        }
        return primes;
    }

    public static void main(String[] args) {
        System.out.println(primesBelow(50).stream().mapToObj(String::valueOf).collect(Collectors.joining(" ")));
        System.out.println(primesBelow(10000).cardinality());
    }
}
