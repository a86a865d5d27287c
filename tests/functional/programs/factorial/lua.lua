local digits = { 1 }
for n = 2, 30 do
  local carry = 0
  for i, digit in ipairs(digits) do
    carry = carry + digit * n
    digits[i] = carry % 10
    carry = carry // 10
  end
  while carry > 0 do
    digits[#digits + 1] = carry % 10
    carry = carry // 10
  end
end
local sum = 0
for _, digit in ipairs(digits) do sum = sum + digit end
print(table.concat(digits):reverse())
print(sum)
