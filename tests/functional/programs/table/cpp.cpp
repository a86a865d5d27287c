#include <iomanip>
#include <iostream>
#include <string>
#include <tuple>
#include <vector>

int main() {
    std::vector<std::tuple<std::string, double, int>> rows{{"apple", 1.5, 10}, {"pear", 0.25, 4}, {"watermelon", 12, 1}};
    double total = 0;
    std::cout << std::fixed << std::setprecision(2);
    for (const auto &[name, price, count] : rows) {
        std::cout << std::left << std::setw(12) << name << "|" << std::right << std::setw(8) << price << "|" << std::setw(4) << count << "\n";
        total += price * count;
    }
    std::cout << std::left << std::setw(12) << "total" << " " << std::right << std::setw(7) << total << "\n";
    std::cout << std::setfill('0') << std::setw(7) << 255 << " " << std::hex << 255 << "\n";
}
