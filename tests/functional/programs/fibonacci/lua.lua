local fibonacci = setmetatable({ [0] = 0, [1] = 1 }, {
  __index = function(known, n)
    known[n] = known[n - 1] + known[n - 2]
    return known[n]
  end,
})

local first = {}
for n = 0, 10 do first[#first + 1] = fibonacci[n] end
print(table.concat(first, " "))
print(fibonacci[70])
