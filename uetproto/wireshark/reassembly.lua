-- SPDX-License-Identifier: GPL-2.0-only
-- The bytes of messages -----------------------------------------------------------------------------------------------
--
-- Written by hand; `tools/generate` puts it where "@reassembly" stands in prelude.lua. The analysis says which bytes of which
-- message a packet has. With the preference `reassemble` they are put together at the packet with the last of them.

local reassembly = {}

do
  local whole_of, place_of, open, queue, first, kept, dropped, told -- by frame, by frame, by message; oldest first

  function reassembly.reset()
    whole_of, place_of, open, queue, first, kept, dropped, told = {}, {}, {}, {}, 1, 0, {}, {}
  end

  reassembly.reset()

  -- Drop the bytes of the oldest messages until all that is kept fits.
  local function drop(frame)
    local most = prefs.reassemble_most
    while kept > most and first <= #queue do
      local message = queue[first]
      queue[first], first = false, first + 1
      kept = kept - message.have
      if message.whole then
        whole_of[message.whole].data = nil
      else
        told[frame] = (told[frame] or 0) + 1
      end
      open[message.index], dropped[message.index] = nil, true
    end
  end

  -- Take the bytes of a packet of message `index`: of `total` bytes those from `offset` on.
  function reassembly.take(index, total, offset, raw, at, size, frame)
    if not prefs.reassemble or size <= 0 or size >= total or not offset or dropped[index] then
      return
    end
    local data = raw:sub(at + 1, at + size)
    local message = open[index]
    if not message then
      message = { index = index, chunks = {}, offsets = {}, frames = {}, have = 0 }
      open[index], queue[#queue + 1] = message, message
    end
    if message.whole or message.chunks[offset] or #data < size or offset + size > total then
      return
    end
    message.chunks[offset], message.offsets[#message.offsets + 1] = data, offset
    message.frames[#message.frames + 1] = frame
    message.have, kept = message.have + size, kept + size
    if message.have >= total then
      table.sort(message.offsets)
      local parts, next_offset = {}, 0
      for i, place in ipairs(message.offsets) do
        if place ~= next_offset then
          return -- two packets overlap
        end
        parts[i] = message.chunks[place]
        next_offset = place + #parts[i]
      end
      for _, one in ipairs(message.frames) do
        place_of[one] = frame
      end
      message.whole, message.chunks, message.offsets = frame, nil, nil
      whole_of[frame] = { data = table.concat(parts), frames = message.frames, size = next_offset }
    end
    drop(frame)
  end

  -- Payload -------------------------------------------------------------------------------------------------------------

  local MOST_NUMBERS = 256 -- that are shown of one payload

  local function half(range, little, bias)
    local word = little and range:le_uint() or range:uint()
    local sign = word >= 32768 and -1 or 1
    local bits = bias == 15 and 10 or 7
    local scale = 2 ^ bits
    local exponent, fraction = floor(word % 32768 / scale), word % scale
    if exponent == 0 then
      return sign * fraction * 2 ^ (1 - bias - bits)
    elseif exponent == 32768 / scale - 1 then
      return fraction == 0 and sign * math.huge or 0 / 0
    end
    return sign * (1 + fraction / scale) * 2 ^ (exponent - bias)
  end

  -- By the value of the preference: size of a number, and a function of a range.
  local NUMBERS = {
    [2] = { 4, function(range, little) return little and range:le_float() or range:float() end },
    [3] = { 8, function(range, little) return little and range:le_float() or range:float() end },
    [4] = { 2, function(range, little) return half(range, little, 15) end },
    [5] = { 2, function(range, little) return half(range, little, 127) end },
    [6] = { 4, function(range, little) return little and range:le_int() or range:int() end },
    [7] = { 8, function(range, little) return (little and range:le_int64() or range:int64()):tonumber() end },
    [8] = { 1, function(range) return range:int() end },
  } -- stylua: ignore

  -- Show payload as data, and as the preference says.
  function reassembly.show_payload(tree, range, field)
    local item = tree:add(field, range)
    local how = prefs.payload
    if how == 1 then
      item:add(reassembly.text, range, range:string(ENC_UTF_8))
    elseif NUMBERS[how] then
      local size, number_at = NUMBERS[how][1], NUMBERS[how][2]
      local count = floor(range:len() / size)
      for i = 0, math.min(count, MOST_NUMBERS) - 1 do
        local one = range(i * size, size)
        item:add(reassembly.number, one, number_at(one, prefs.little_endian))
      end
      if count > MOST_NUMBERS then
        item:append_text(format(" [%d of %d numbers are shown]", MOST_NUMBERS, count))
      end
    end
  end

  -- Show the message that ends with this packet, or where the message of this packet is.
  function reassembly.show(pinfo, tree)
    local frame = pinfo.number
    if told[frame] then
      local text = format("The bytes of %d unfinished messages were dropped: preference reassemble_most", told[frame])
      tree:add_proto_expert_info(reassembly.e_dropped, text)
    end
    local found = whole_of[frame]
    if found then
      local branch = tree:add(reassembly.segments):set_generated()
      for _, one in ipairs(found.frames) do
        branch:add(reassembly.segment, one):set_generated()
      end
      branch:append_text(format(": %d frames, %d bytes", #found.frames, found.size))
      branch:add(reassembly.length, found.size):set_generated()
      if found.data then
        local bytes = ByteArray.new(found.data, true):tvb("Reassembled UET message")
        reassembly.show_payload(branch, bytes(), reassembly.data)
      else
        branch:add_proto_expert_info(reassembly.e_dropped, "The bytes were dropped: preference reassemble_most")
      end
    elseif place_of[frame] then
      tree:add(reassembly.place, place_of[frame]):set_generated()
    end
  end
end
