import java.util.Comparator;
import java.util.Map;
import java.util.TreeMap;

public class Main {
    public static void main(String[] args) {
        Map<String, Integer> counts = new TreeMap<>();
        for (String word : "the cat and the dog and the bird".split(" ")) counts.merge(word, 1, Integer::sum);
        counts.entrySet().stream()
            .sorted(Map.Entry.<String, Integer>comparingByValue(Comparator.reverseOrder()).thenComparing(Map.Entry.comparingByKey()))
            .forEach(entry -> System.out.println(entry.getKey() + " " + entry.getValue()));
    }
}
