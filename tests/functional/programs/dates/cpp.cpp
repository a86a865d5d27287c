#include <ctime>
#include <iostream>

static std::time_t at(int year, int month, int day) {
    std::tm parts{};
    parts.tm_year = year - 1900;
    parts.tm_mon = month - 1;
    parts.tm_mday = day;
    return timegm(&parts);
}

static void print(const char *format, std::time_t time) {
    char text[64];
    std::strftime(text, sizeof text, format, std::gmtime(&time));
    std::cout << text << "\n";
}

int main() {
    constexpr std::time_t day_s = 86400;
    auto day = at(2024, 2, 29);
    std::cout << (day - at(2000, 1, 1)) / day_s << "\n";
    print("%A", day);
    print("%Y-%m-%d", day + 100 * day_s);
    const char *separator = "";
    for (int year : {1900, 2000, 2023, 2024}) {
        bool is_leap = at(year, 3, 1) - at(year, 2, 28) == 2 * day_s;
        std::cout << separator << year << (is_leap ? " yes" : " no");
        separator = " ";
    }
    std::cout << "\n";
}
