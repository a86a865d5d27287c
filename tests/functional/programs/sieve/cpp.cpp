#include <iostream>
#include <vector>

std::vector<int> primes_below(int limit) {
    std::vector<bool> crossed(limit);
    std::vector<int> primes;
    for (int n = 2; n < limit; n++) {
        if (crossed[n]) continue;
        primes.push_back(n);
        for (int m = n * n; m < limit; m += n) crossed[m] = true;
    }
    return primes;
}

int main() {
    const char *separator = "";
    for (int n : primes_below(50)) {
        std::cout << separator << n;
        separator = " ";
    }
    std::cout << "\n" << primes_below(10000).size() << "\n";
}
