-- SPDX-License-Identifier: GPL-2.0-only
-- What somebody asks for --------------------------------------------------------------------------------------------
--
-- Written by hand; `tools/generate` puts it where "@asked" stands in prelude.lua. Where the tree is not visible, Wireshark
-- says of each field whether a filter or a column refers to it. With `tshark -T fields` the tree is visible, so that
-- everything counts as asked for. There, on Linux, the command line tells which of our fields are printed or filtered.

local has_taps, has_read_filter -- whether the command line asks for statistics, or filters in a first pass
local only -- the names that the command line has, where nothing else is looked at; else nil
local comes_again -- whether a frame may be dissected, or statistics may ask for it, after later frames

do
  -- Options with which tshark shows more than the fields that are named, and those that may hide names.
  local function shows_more(words)
    local scripts, fields_wanted = 0, false
    for i, word in ipairs(words) do
      local behind = words[i + 1] or ""
      if word:match("^%-%w*[VOPS]$") or word:match("^%-O") or word:match("^%-%-color") or word:match("[$*@]") then
        return true
      elseif word:match("expert") or word:match("_ws%.") or word:match("^%-G") then
        return true
      elseif word == "-T" or word:match("^%-T%a") then
        fields_wanted = (word == "-T" and behind or word:sub(3)) == "fields"
      elseif word:match("lua_script:") then
        scripts = scripts + 1 -- a script of somebody else may ask for fields, too
      end
    end
    return scripts > 1 or not fields_wanted
  end

  local function read_command_line()
    local file = not gui_enabled() and io.open("/proc/self/cmdline", "rb")
    local words, found = {}, {}
    for word in (file and file:read("*a") or ""):gmatch("%Z+") do
      words[#words + 1] = word
    end
    if file then
      file:close()
    end
    if not (words[1] or ""):match("tshark$") then
      return nil
    end
    local has_two_passes = false
    for _, word in ipairs(words) do
      has_taps = has_taps or word:match("^%-%w*z") ~= nil
      has_read_filter = has_read_filter or word:match("^%-%w*R") ~= nil or word:match("^%-%-re") ~= nil
      has_two_passes = has_two_passes or word:match("^%-%w*2") ~= nil
    end
    comes_again = has_taps or has_two_passes
    if shows_more(words) then
      return nil
    end
    for i, word in ipairs(words) do
      if words[i - 1] ~= "-o" and words[i - 1] ~= "-X" then
        for name in word:gmatch("uetp[%w_.]*") do
          found[name] = true
        end
      end
    end
    return found
  end

  local there, result = pcall(read_command_line)
  only = there and result or nil
  comes_again = comes_again ~= false
end

-- Return whether the results of any of these names, behind "uetp.", are wanted.
local function is_wanted(...)
  for _, name in ipairs({ ... }) do
    if not only or has_taps or only["uetp." .. name] then
      return true
    end
  end
  return false
end

local function is_asked(tree, field, lean)
  if lean then
    return only[filter_of[field]]
  end
  return tree:referenced(field)
end

-- What is asked for does not change while packets come in order: it is found out once a form and pass.
local asked_of, last_frame = {}, 0

-- Return the rows, and the names over forms, that are asked for of a form.
local function asked_rows(made, tree, lean, frame)
  if frame < last_frame then
    asked_of = {}
  end
  last_frame = frame
  local found = asked_of[made]
  if not found then
    found = { names = {} }
    for _, row in ipairs(made) do
      found[#found + 1] = is_asked(tree, row[4], lean) and row or nil
    end
    for _, name in ipairs(made.names) do
      found.names[#found.names + 1] = is_asked(tree, name.field, lean) and name or nil
    end
    found.origin = made.origin and is_asked(tree, f_origin, lean)
    found.sack = made.by_name.sack_bitmap and is_asked(tree, names.sack_psn, lean)
    found.nothing = lean and #found + #found.names == 0 and not (found.origin or found.sack or only[made.item_name])
    asked_of[made] = found
  end
  return found
end
