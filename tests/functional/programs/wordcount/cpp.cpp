#include <algorithm>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

int main() {
    std::istringstream text("the cat and the dog and the bird");
    std::map<std::string, int> counts;
    for (std::string word; text >> word;) counts[word]++;
    std::vector<std::pair<std::string, int>> pairs(counts.begin(), counts.end());
    std::stable_sort(pairs.begin(), pairs.end(), [](const auto &a, const auto &b) { return a.second > b.second; });
    for (const auto &[word, count] : pairs) std::cout << word << " " << count << "\n";
}
