-- Runs programs in this Lua on behalf of the guest (protocol: docs/DRIVERS.md).
--
-- Mode last only: a second run never comes. Lua by itself can open files and start commands, but has no way to
-- descriptor 3: small commands read and write the channel for it. They also mean that what a program executes
-- inherits the channel, on which nobody believes it anything.
--
-- Holds: variables are bound as values, never as text; the program's globals are Lua's own and its variables.

-- Their place does not depend on the PATH that the program was given.
local RECEIVE = "PATH=/usr/local/bin:/usr/bin:/bin exec dd bs=65536 count=1 <&3 2>/dev/null"
local SEND = "PATH=/usr/local/bin:/usr/bin:/bin exec cat >&3 2>/dev/null"
local READY = "printf '1\\0ready\\0' >&3"
local FIELD_BYTES_MAX = 65536

-- -- the channel --------------------------------------------------------------------------------------

local pending, at = "", 1

-- Says that it is ready together with the first question: each command takes a millisecond.
local function more()
  local pipe = assert(io.popen((READY and READY .. "; " or "") .. RECEIVE, "r"))
  READY = nil
  local part = pipe:read("a")
  pipe:close()
  if part == "" then os.exit(0) end
  pending, at = pending:sub(at) .. part, 1
end

local function field()
  while true do
    local nul = pending:find("\0", at, true)
    if nul then
      local text = pending:sub(at, nul - 1)
      at = nul + 1
      return text
    end
    more()
  end
end

local function receive()
  local fields = {}
  for i = 1, tonumber(field()) or 0 do fields[i] = field() end
  return fields
end

local function send(...)
  local fields = { ... }
  for i, text in ipairs(fields) do
    text = text:gsub("\0", "")
    if #text > FIELD_BYTES_MAX then text = text:sub(1, FIELD_BYTES_MAX):gsub("[\xC0-\xFF]?[\x80-\xBF]*$", "") end
    fields[i] = text
  end
  local pipe = io.popen(SEND, "w")
  if pipe then
    pipe:write(#fields, "\0", table.concat(fields, "\0"), "\0")
    pipe:close()
  end
end

-- -- variables ----------------------------------------------------------------------------------------

-- A table cannot hold nil: where null stands inside of something, it is this. Programs know it as `null`.
local null = setmetatable({}, { __tostring = function() return "null" end, __name = "null" })
local has_null = false

local ESCAPES = { b = "\b", f = "\f", n = "\n", r = "\r", t = "\t", ['"'] = '"', ["\\"] = "\\", ["/"] = "/" }

local function unescape(text)
  text = text:gsub("\\u([dD][89abAB]%x%x)\\u([dD][c-fC-F]%x%x)", function(high, low)
    return utf8.char(0x10000 + ((tonumber(high, 16) - 0xD800) << 10) + tonumber(low, 16) - 0xDC00)
  end)
  text = text:gsub("\\(.)(%x?%x?%x?%x?)", function(kind, digits)
    if kind == "u" then return utf8.char(tonumber(digits, 16)) end
    return ESCAPES[kind] .. digits
  end)
  return text
end

local function parse_string(text, from)
  local start = from
  while true do
    local stop = text:find('["\\]', from)
    if text:sub(stop, stop) == '"' then
      local raw = text:sub(start, stop - 1)
      return raw:find("\\", 1, true) and unescape(raw) or raw, stop + 1
    end
    from = stop + 2
  end
end

-- An integer that 64 bits cannot hold stays exact: it is a string of its digits.
local function parse_number(text, from)
  local word = text:match("^[-+%d.eE]+", from)
  local value = word
  if word:find("[.eE]") then
    value = tonumber(word)
  else
    local integer = math.tointeger(tonumber(word))
    if integer and ("%d"):format(integer) == word then value = integer end
  end
  return value, from + #word
end

local WORDS = { t = { true, 4 }, f = { false, 5 }, n = { null, 4 } }

local function skip(text, from)
  return text:find("[^ \t\r\n]", from) or #text + 1
end

local parse

local function parse_items(text, from, close)
  local items, n = {}, 0
  from = skip(text, from)
  if text:sub(from, from) == close then return items, from + 1 end
  while true do
    local key, value
    n = n + 1
    key = n
    if close == "}" then
      key, from = parse_string(text, skip(text, from) + 1)
      from = skip(text, from) + 1
    end
    value, from = parse(text, from)
    items[key] = value
    has_null = has_null or value == null
    from = skip(text, from)
    local mark = text:sub(from, from)
    from = from + 1
    if mark == close then return items, from end
    if mark ~= "," then error("the variables are not JSON") end
  end
end

function parse(text, from)
  from = skip(text, from)
  local mark = text:sub(from, from)
  if mark == '"' then return parse_string(text, from + 1) end
  if mark == "{" then return parse_items(text, from + 1, "}") end
  if mark == "[" then return parse_items(text, from + 1, "]") end
  local word = WORDS[mark]
  if word then return word[1], from + word[2] end
  return parse_number(text, from)
end

local function bind(json)
  has_null = false
  for name, value in pairs((parse(json, 1))) do
    if value == null then value = nil end
    _G[name] = value
  end
  if has_null and _G.null == nil then _G.null = null end
end

-- -- the program --------------------------------------------------------------------------------------

local message = receive()
if message[1] ~= "run" then os.exit(0) end
local id, source, count = message[2], message[4], tonumber(message[7])
if count > 0 then bind(message[8]) end
local interpreter = arg[-1]
arg = { [-1] = interpreter, [0] = source, table.unpack(message, 8 + count) }
-- What a program said before it was stopped is worth more than the writes saved.
io.stdout:setvbuf("line")

-- As the interpreter shows an error, without the driver's frames.
local function describe(problem)
  local text
  if type(problem) == "string" or type(problem) == "number" then
    text = tostring(problem)
  else
    local meta = getmetatable(problem)
    if type(meta) == "table" and meta.__tostring then
      text = tostring(problem)
    else
      text = ("(error object is a %s value)"):format(type(problem))
    end
  end
  local line = ""
  for level = 2, 250 do
    local info = debug.getinfo(level, "Sl")
    if not info then break end
    if info.source == "@" .. source and info.currentline > 0 then
      line = tostring(info.currentline)
      break
    end
  end
  local trace = debug.traceback(text, 2):gsub("\n%s*%[C%]: in function 'xpcall'.*$", "\n\t[C]: in ?")
  return { text = text, line = line, trace = trace }
end

local function fail(problem)
  local place = "^" .. source:gsub("%p", "%%%0") .. ":(%d+): "
  local line = problem.text:match(place) or problem.line
  io.stdout:flush()
  io.stderr:write("lua: ", problem.trace, "\n")
  send("done", id, "error", "1", (problem.text:gsub(place, "")), line, "", "", "", "")
  os.exit(1, true)
end

local program, mistake = loadfile(source)
if not program then fail({ text = mistake, line = "", trace = mistake }) end
local ok, problem = xpcall(program, describe, table.unpack(arg))
if not ok then fail(type(problem) == "table" and problem or { text = tostring(problem), line = "", trace = tostring(problem) }) end
os.exit(true, true)
