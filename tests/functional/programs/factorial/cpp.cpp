#include <algorithm>
#include <iostream>
#include <numeric>
#include <string>

int main() {
    std::string digits = "1";
    for (int n = 2; n <= 30; n++) {
        int carry = 0;
        for (char &digit : digits) {
            carry += (digit - '0') * n;
            digit = static_cast<char>('0' + carry % 10);
            carry /= 10;
        }
        for (; carry; carry /= 10) digits += static_cast<char>('0' + carry % 10);
    }
    std::reverse(digits.begin(), digits.end());
    int sum = std::accumulate(digits.begin(), digits.end(), 0, [](int total, char digit) { return total + digit - '0'; });
    std::cout << digits << "\n" << sum << "\n";
}
