local function quicksort(items, low, high)
  if low >= high then return end
  local pivot, i = items[high], low
  for j = low, high - 1 do
    if items[j] < pivot then
      items[i], items[j] = items[j], items[i]
      i = i + 1
    end
  end
  items[i], items[high] = items[high], items[i]
  quicksort(items, low, i - 1)
  quicksort(items, i + 1, high)
end

local items = { 33, -4, 15, 0, 99, 7, 7, -21, 58, 2, 41, 13 }
quicksort(items, 1, #items)
print(table.concat(items, " "))
