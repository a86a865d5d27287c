-- Looks at a program without running it: `check.lua SOURCE` (docs/DRIVERS.md, "The check").
-- Lua compiles the program, which runs nothing of it.

local source = arg[1]
local program, mistake = loadfile(source)
if not program then
  local place = "^" .. source:gsub("%p", "%%%0") .. ":(%d+): (.*)$"
  local line, text = mistake:match(place)
  io.write("4\0error\0", line or "", "\0\0", (text or mistake):gsub("\0", ""), "\0")
end
