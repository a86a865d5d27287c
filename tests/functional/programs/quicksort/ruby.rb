def quicksort(items)
  return items if items.size < 2
  pivot, *rest = items
  below, above = rest.partition { |x| x < pivot }
  quicksort(below) + [pivot] + quicksort(above)
end

puts quicksort([33, -4, 15, 0, 99, 7, 7, -21, 58, 2, 41, 13]).join(" ")
