import java.time.LocalDate;
import java.time.Year;
import java.time.format.TextStyle;
import java.time.temporal.ChronoUnit;
import java.util.Locale;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

public class Main {
    public static void main(String[] args) {
        LocalDate day = LocalDate.of(2024, 2, 29);
        System.out.println(ChronoUnit.DAYS.between(LocalDate.of(2000, 1, 1), day));
        System.out.println(day.getDayOfWeek().getDisplayName(TextStyle.FULL, Locale.ENGLISH));
        System.out.println(day.plusDays(100));
        System.out.println(IntStream.of(1900, 2000, 2023, 2024).mapToObj(year -> year + (Year.isLeap(year) ? " yes" : " no")).collect(Collectors.joining(" ")));
    }
}
