-- SPDX-License-Identifier: GPL-2.0-only
-- CRC32C ------------------------------------------------------------------------------------------------------------
--
-- Written by hand; `tools/generate` puts it where "@crc" stands in prelude.lua. The CRC takes 32 bytes a step, with one
-- table for each of them. The function is made as text: it uses native operators where Lua has them, and older versions
-- cannot parse them. It is made when the first packet needs it.

local crc32c -- a function of bytes, of more bytes, and of how many of the latter count

do
  local STEP = 32

  -- Return the text of a list: `text` with each number from 1 to STEP in place of "#".
  local function list(text, separator)
    local parts = {}
    for k = 1, STEP do
      parts[k] = text:gsub("#", k):gsub("@", STEP + 1 - k)
    end
    return table.concat(parts, separator)
  end

  local function text_of(native)
    local parts = {
      "local T, byte, bxor = ...\nlocal " .. list("T#", ", ") .. " = " .. list("T[#]", ", "),
      "\nlocal function go_on(crc, data, last)\n  local whole = last - last % " .. STEP,
      "\n  for i = 1, whole, " .. STEP .. " do\n    local " .. list("b#", ", "),
      " = byte(data, i, i + " .. STEP - 1 .. ")\n    ",
    }
    if native then
      parts[#parts + 1] = "local x = crc ~ (b1 | b2 << 8 | b3 << 16 | b4 << 24)\n    "
        .. "b1, b2, b3, b4 = x & 255, x >> 8 & 255, x >> 16 & 255, x >> 24\n    "
      parts[#parts + 1] = "crc = " .. list("T@[b#]", " ~ ")
    else
      parts[#parts + 1] = "local x = bxor(crc, b1 + b2 * 256 + b3 * 65536 + b4 * 16777216)\n    "
        .. "b1 = x % 256; x = (x - b1) / 256; b2 = x % 256; x = (x - b2) / 256; b3 = x % 256; b4 = (x - b3) / 256\n    "
      parts[#parts + 1] = "crc = bxor(" .. list("T@[b#]", ", ") .. ")"
    end
    parts[#parts + 1] = "\n  end\n  for i = whole + 1, last do\n    "
      .. (native and "crc = crc >> 8 ~ T1[(crc ~ byte(data, i)) & 255]" or "local low = crc % 256\n    "
        .. "crc = bxor((crc - low) / 256, T1[bxor(low, byte(data, i))])")
    parts[#parts + 1] = "\n  end\n  return crc\nend\nreturn function(before, data, last)\n"
      .. "  return bxor(go_on(go_on(4294967295, before, #before), data, last), 4294967295)\nend"
    return table.concat(parts)
  end

  local function make()
    local native = load("return function(a, b) return a ~ b end")
    local bxor = native and native() or bit32.bxor
    local tables = {}
    for k = 1, STEP do
      tables[k] = {}
      for i = 0, 255 do
        local crc = k == 1 and i or tables[k - 1][i]
        if k > 1 then
          crc = bxor(floor(crc / 256), tables[1][crc % 256])
        end
        for _ = 1, k == 1 and 8 or 0 do
          local low = crc % 2
          crc = bxor(floor(crc / 2), low * 0x82F63B78)
        end
        tables[k][i] = crc
      end
    end
    return load(text_of(native), "crc32c")(tables, byte, bxor)
  end

  function crc32c(before, data, last)
    crc32c = make()
    return crc32c(before, data, last)
  end
end
