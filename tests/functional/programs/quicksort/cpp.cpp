#include <algorithm>
#include <iostream>
#include <vector>

template <typename Iterator> void quicksort(Iterator first, Iterator last) {
    if (last - first < 2) return;
    auto pivot = *(first + (last - first) / 2);
    auto middle = std::partition(first, last, [pivot](auto x) { return x < pivot; });
    auto above = std::partition(middle, last, [pivot](auto x) { return !(pivot < x); });
    quicksort(first, middle);
    quicksort(above, last);
}

int main() {
    std::vector<int> items{33, -4, 15, 0, 99, 7, 7, -21, 58, 2, 41, 13};
    quicksort(items.begin(), items.end());
    for (size_t i = 0; i < items.size(); i++) std::cout << (i ? " " : "") << items[i];
    std::cout << "\n";
}
