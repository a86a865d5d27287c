local Rectangle = { name = "rectangle" }
Rectangle.__index = Rectangle
function Rectangle.new(width, height) return setmetatable({ width = width, height = height }, Rectangle) end
function Rectangle:show() return self.name .. " " .. self.width * self.height end

local Square = setmetatable({ name = "square" }, { __index = Rectangle })
Square.__index = Square
function Square.new(side) return setmetatable(Rectangle.new(side, side), Square) end

local function counter(step)
  local count = 0
  return function()
    count = count + step
    return count
  end
end

local ones, tens = counter(1), counter(10)
local seen = {}
for _, each in ipairs({ ones, ones, tens, ones, tens }) do seen[#seen + 1] = each() end
print(table.concat(seen, " "))
print(Square.new(3):show())
print(Rectangle.new(2, 5):show())
