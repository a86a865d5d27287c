import java.util.Locale;

public class Main {
    record Row(String name, double price, int count) {}

    public static void main(String[] args) {
        Row[] rows = {new Row("apple", 1.5, 10), new Row("pear", 0.25, 4), new Row("watermelon", 12, 1)};
        double total = 0;
        for (Row row : rows) {
            System.out.printf(Locale.ROOT, "%-12s|%8.2f|%4d%n", row.name(), row.price(), row.count());
            total += row.price() * row.count();
        }
        System.out.printf(Locale.ROOT, "%-12s %7.2f%n", "total", total);
        System.out.printf("%07d %x%n", 255, 255);
    }
}
