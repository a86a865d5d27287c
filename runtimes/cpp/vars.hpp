// Variables of the run, in the namespace `vars`. Their values are read before main begins. docs/COMPILED.md
#ifndef PALISADE_VARS_HPP
#define PALISADE_VARS_HPP
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace vars {

// Nested data. What is not there is null.
class Value {
public:
    enum Kind { Null, Bool, Int, Big, Double, Text, List, Map };
    Kind kind() const { return kind_; }
    bool is_null() const { return kind_ == Null; }
    bool boolean() const { return truth_; }
    long integer() const { return integer_; }
    double number() const { return number_; }
    const std::string &text() const { return text_; }  // Text, and Big in decimal
    std::size_t size() const { return items_.size(); }
    const Value &operator[](std::size_t index) const { return index < items_.size() ? items_[index].second : nothing(); }
    const Value &operator[](int index) const { return (*this)[static_cast<std::size_t>(index)]; }
    const Value &operator[](const char *key) const { return (*this)[std::string(key)]; }
    const Value &operator[](const std::string &key) const {
        for (const auto &item : items_)
            if (kind_ == Map && item.first == key) return item.second;
        return nothing();
    }
    // Pairs of key and value; a list's keys are empty.
    const std::vector<std::pair<std::string, Value>> &items() const { return items_; }
    static const Value &nothing();
    static Value read();

private:
    Kind kind_ = Null;
    bool truth_ = false;
    long integer_ = 0;
    double number_ = 0;
    std::string text_;
    std::vector<std::pair<std::string, Value>> items_;
};

// @declare@

}  // namespace vars
#endif
