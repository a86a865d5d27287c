local rows = { { "apple", 1.5, 10 }, { "pear", 0.25, 4 }, { "watermelon", 12, 1 } }
local total = 0
for _, row in ipairs(rows) do
  print(("%-12s|%8.2f|%4d"):format(table.unpack(row)))
  total = total + row[2] * row[3]
end
print(("%-12s %7.2f"):format("total", total))
print(("%07d %x"):format(255, 255))
