-- Describes this Lua to the host, once, outside any sandbox (docs/DRIVERS.md, "The probe").

local version = _VERSION:match("%d+%.%d+")
if version ~= "5.3" and version ~= "5.4" then
  io.stderr:write("Lua 5.3 or 5.4 is needed, this is ", tostring(version), "\n")
  os.exit(1)
end

local function ask(command)
  local pipe = assert(io.popen(command, "r"))
  local answer = pipe:read("l")
  pipe:close()
  return answer
end

-- The running file itself, whatever links led to it: the shell's parent is this process.
local executable = assert(ask("exec readlink /proc/$PPID/exe"), "the path of this Lua is unknown")
if executable:find("[%c]") then
  io.stderr:write("the path of Lua has control characters\n")
  os.exit(1)
end

local function quote(text)
  return '"' .. text:gsub('[\\"]', "\\%0") .. '"'
end

-- One file that needs nothing beyond the system's libraries; somebody's own build is shown with its folder.
local binds = ""
local folder = executable:match("^(.*)/[^/]+$")
local prefix = folder:match("^(.+)/bin$") or folder
if not (folder:find("^/usr/") or folder:find("^/bin")) then
  binds = quote(prefix)
end
print(('{"version":%s,"executable":%s,"binds":[%s],"env":{},"packages":{}}'):format(quote(version), quote(executable), binds))
