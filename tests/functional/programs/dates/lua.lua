local DAY = 86400
local day = os.time({ year = 2024, month = 2, day = 29, hour = 12 })
print((day - os.time({ year = 2000, month = 1, day = 1, hour = 12 })) // DAY)
print(os.date("!%A", day))
print(os.date("!%Y-%m-%d", day + 100 * DAY))
local words = {}
for _, year in ipairs({ 1900, 2000, 2023, 2024 }) do
  local is_leap = year % 4 == 0 and year % 100 ~= 0 or year % 400 == 0
  words[#words + 1] = year .. " " .. (is_leap and "yes" or "no")
end
print(table.concat(words, " "))
