function by_count_then_word(a, m, b, n) { return m != n ? n - m : a < b ? -1 : a > b }

BEGIN {
  n = split("the cat and the dog and the bird", words)
  for (i = 1; i <= n; i++) counts[words[i]]++
  PROCINFO["sorted_in"] = "by_count_then_word"
  for (word in counts) print word, counts[word]
}
