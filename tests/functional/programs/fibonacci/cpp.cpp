#include <cstdint>
#include <iostream>
#include <unordered_map>

std::int64_t fibonacci(int n) {
    static std::unordered_map<int, std::int64_t> known{{0, 0}, {1, 1}};
    if (auto found = known.find(n); found != known.end()) return found->second;
    std::int64_t value = fibonacci(n - 1) + fibonacci(n - 2);
    return known[n] = value;
}

int main() {
    for (int n = 0; n <= 10; n++) std::cout << (n ? " " : "") << fibonacci(n);
    std::cout << "\n" << fibonacci(70) << "\n";
}
