function swap(items, i, j,    kept) { kept = items[i]; items[i] = items[j]; items[j] = kept }

function quicksort(items, first, last,    i, border) {
  if (first >= last) return
  border = first
  for (i = first + 1; i <= last; i++) if (items[i] < items[first]) swap(items, ++border, i)
  swap(items, first, border)
  quicksort(items, first, border - 1)
  quicksort(items, border + 1, last)
}

BEGIN {
  n = split("33 -4 15 0 99 7 7 -21 58 2 41 13", items)
  quicksort(items, 1, n)
  for (i = 1; i <= n; i++) printf "%s%s", items[i], i < n ? " " : "\n"
}
