#include <stdio.h>

/* Days since 1970-01-01 in the Gregorian calendar; March is the first month, so that the leap day is the last. */
static long days_from_civil(int year, int month, int day) {
    year -= month <= 2;
    int era = year / 400, of_era = year % 400;
    int of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
    return era * 146097L + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

static void print_civil(long days) {
    days += 719468;
    long era = days / 146097, of_era = days % 146097;
    long year = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
    long of_year = of_era - (365 * year + year / 4 - year / 100);
    long month = (5 * of_year + 2) / 153, day = of_year - (153 * month + 2) / 5 + 1;
    month += month < 10 ? 3 : -9;
    printf("%04ld-%02ld-%02ld\n", year + era * 400 + (month <= 2), month, day);
}

int main(void) {
    const char *names[] = {"Thursday", "Friday", "Saturday", "Sunday", "Monday", "Tuesday", "Wednesday"};
    long day = days_from_civil(2024, 2, 29);
    printf("%ld\n%s\n", day - days_from_civil(2000, 1, 1), names[day % 7]);
    print_civil(day + 100);
    int years[] = {1900, 2000, 2023, 2024};
    for (int i = 0; i < 4; i++) {
        int is_leap = days_from_civil(years[i], 3, 1) - days_from_civil(years[i], 2, 28) == 2;
        printf("%s%d %s", i ? " " : "", years[i], is_leap ? "yes" : "no");
    }
    putchar('\n');
}
