// Reads the values of the run's variables. The format: docs/DRIVERS.md, "Values".
#include "/palisade/vars.hpp"
#include <cstdlib>
#include <fstream>
#include <sstream>

// Before every static of the program.
#define __PALISADE_FIRST __attribute__((init_priority(101)))

// @define@

namespace palisade {

std::string all __PALISADE_FIRST;
std::size_t next;

std::string line() {
    std::size_t end = all.find('\n', next);
    if (end == std::string::npos) std::abort();
    std::string found = all.substr(next, end - next);
    next = end + 1;
    return found;
}

std::string of_length(const std::string &told) {
    std::size_t length = std::strtoul(told.c_str() + 1, nullptr, 10);
    std::string found = all.substr(next, length);
    next += length + 1;
    return found;
}

[[maybe_unused]] std::string text() { return of_length(line()); }
[[maybe_unused]] std::string word() { return line().substr(1); }
[[maybe_unused]] bool boolean() { return line() == "t"; }
[[maybe_unused]] long integer() { return std::strtol(line().c_str() + 1, nullptr, 10); }
[[maybe_unused]] double number() { return std::strtod(line().c_str() + 1, nullptr); }
[[maybe_unused]] void skip() { line(); }
[[maybe_unused]] vars::Value nested() { return vars::Value::read(); }

template <typename T> std::vector<T> list(T (*read)()) {
    std::vector<T> found;
    for (std::size_t left = std::strtoul(line().c_str() + 1, nullptr, 10); left > 0; left--) found.push_back(read());
    return found;
}

}  // namespace palisade

const vars::Value &vars::Value::nothing() {
    static const Value none;
    return none;
}

vars::Value vars::Value::read() {
    std::string told = ::palisade::line();
    Value value;
    switch (told[0]) {
    case 't': case 'f': value.kind_ = Bool; value.truth_ = told[0] == 't'; break;
    case 'i': value.kind_ = Int; value.integer_ = std::strtol(told.c_str() + 1, nullptr, 10); value.number_ = double(value.integer_); break;
    case 'I': value.kind_ = Big; value.text_ = told.substr(1); break;
    case 'd': value.kind_ = Double; value.number_ = std::strtod(told.c_str() + 1, nullptr); break;
    case 's': value.kind_ = Text; value.text_ = ::palisade::of_length(told); break;
    case '[': case '{':
        value.kind_ = told[0] == '[' ? List : Map;
        for (std::size_t left = std::strtoul(told.c_str() + 1, nullptr, 10); left > 0; left--) {
            std::string key = value.kind_ == Map ? ::palisade::text() : std::string();
            value.items_.emplace_back(std::move(key), read());
        }
        break;
    default: break;
    }
    return value;
}

namespace palisade {

struct Bind {
    Bind();
} bind __PALISADE_FIRST;

Bind::Bind() {
    std::ifstream file("/palisade/variables", std::ios::binary);
    if (!file) std::abort();
    std::ostringstream content;
    content << file.rdbuf();
    all = content.str();
// @bind@
}

}  // namespace palisade
