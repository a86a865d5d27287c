import java.util.ArrayList;
import java.util.List;
import java.util.stream.Collectors;

public class Main {
    static List<Integer> quicksort(List<Integer> items) {
        if (items.size() < 2) return items;
        int pivot = items.get(0);
        List<Integer> rest = items.subList(1, items.size());
        List<Integer> sorted = new ArrayList<>(quicksort(rest.stream().filter(x -> x < pivot).collect(Collectors.toList())));
        sorted.add(pivot);
        sorted.addAll(quicksort(rest.stream().filter(x -> x >= pivot).collect(Collectors.toList())));
        return sorted;
    }

    public static void main(String[] args) {
        List<Integer> sorted = quicksort(List.of(33, -4, 15, 0, 99, 7, 7, -21, 58, 2, 41, 13));
        System.out.println(sorted.stream().map(String::valueOf).collect(Collectors.joining(" ")));
    }
}
