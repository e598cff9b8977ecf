-- SPDX-License-Identifier: GPL-2.0-only
-- Statistics ---------------------------------------------------------------------------------------------------------
--
-- Written by hand; `tools/generate` puts it where "@statistics" stands in prelude.lua. `tshark -q -z uetp,pdc` and the
-- menu Statistics, UET show them. What the packets around a packet say comes from analysis.lua.

-- A function of its own, since Lua limits the local variables of one. It returns what the dissector calls.
local observe = (function()
  local active = 0 -- statistics that are open
  local seen -- what the dissector read of the latest packet

  local function analysis_of(name, frame)
    return analysis.value_of(name)(frame)
  end

  local function diff(a, b)
    local d = (a - b) % 4294967296
    return d < 2147483648 and d or d - 4294967296
  end

  -- Take note of a packet, for the taps that come after its dissection. Return whether a statistic is open.
  local function take_note(layers, below, pinfo)
    if active > 0 and layers and not below.quoted then
      seen = { frame = pinfo.number, layers = layers, trimmed = below.trimmed }
    end
    return active > 0
  end

  -- Texts -----------------------------------------------------------------------------------------------------------

  local function time_text(seconds)
    if seconds < 1e-3 then
      return format("%.3f us", seconds * 1e6)
    end
    return seconds < 1 and format("%.3f ms", seconds * 1e3) or format("%.3f s", seconds)
  end

  -- Return the texts of a list of times: how many, min, mean, p50, p99, max. Percentiles are those of the nearest rank.
  local function times_texts(times)
    local count, sum = #times, 0
    if count == 0 then
      return { "0", "-", "-", "-", "-", "-" }
    end
    table.sort(times)
    for _, time in ipairs(times) do
      sum = sum + time
    end
    local function rank(share)
      return times[math.max(1, math.ceil(count * share / 100))]
    end
    local texts = { tostring(count) }
    for _, time in ipairs({ times[1], sum / count, rank(50), rank(99), times[count] }) do
      texts[#texts + 1] = time_text(time)
    end
    return texts
  end

  local TIMES = { "count", "min", "mean", "p50", "p99", "max" }

  -- Return rows, the first of which are titles, as lines of columns. Columns from `right` on are aligned to the right.
  local function columns(rows, right)
    local widths, lines = {}, {}
    for _, row in ipairs(rows) do
      for i, text in ipairs(row) do
        widths[i] = math.max(widths[i] or 0, #text)
      end
    end
    for _, row in ipairs(rows) do
      local words = {}
      for i, text in ipairs(row) do
        local gap = (" "):rep(widths[i] - #text)
        words[i] = i >= right and gap .. text or text .. gap
      end
      lines[#lines + 1] = (table.concat(words, "  "):gsub(" +$", ""))
    end
    return table.concat(lines, "\n") .. "\n"
  end

  local function joined(first, second)
    local all = {}
    for _, list in ipairs({ first, second }) do
      for _, value in ipairs(list) do
        all[#all + 1] = value
      end
    end
    return all
  end

  local function sorted_keys(of)
    local keys = {}
    for key in pairs(of) do
      keys[#keys + 1] = key
    end
    table.sort(keys)
    return keys
  end

  -- Return counts by name as text, the largest first.
  local function counts_text(counts)
    local keys, words = sorted_keys(counts), {}
    table.sort(keys, function(a, b)
      return counts[a] > counts[b] or counts[a] == counts[b] and a < b
    end)
    for _, key in ipairs(keys) do
      words[#words + 1] = format("%s %d", key, counts[key])
    end
    return #words > 0 and table.concat(words, ", ") or "-"
  end

  local function count(of, key, more)
    of[key] = (of[key] or 0) + (more or 1)
  end

  local function head_of(packet)
    return find(packet.layers, "pds")
  end

  -- Return the SES header that is a request, and the one that is a response.
  local function ses_of(packet)
    for _, layer in ipairs(packet.layers) do
      local rows = layer.form.by_name
      if rows.return_code then
        return nil, layer
      elseif rows.opcode and rows.request_length then
        return layer, nil
      end
    end
  end

  -- What is counted -------------------------------------------------------------------------------------------------
  --
  -- Each of these makes a statistic: a function that takes a packet, and one that returns the text.

  local make = {}

  -- Return whether a NACK demanded that the range of PSNs with this one be sent again, after its latest transmission.
  local function is_rewound(way, psn)
    local rewound = way.rewound
    if not rewound or diff(psn, rewound.psn) < 0 or diff(rewound.newest, psn) < 0 then
      return false
    end
    return not way.time[psn] or way.time[psn] <= rewound.time
  end

  -- Why a PSN is sent again, in the words of `uetproto stats`: the code of a NACK for it, or in ROD for one before it;
  -- trimmed where a trimmed copy was seen; RTO? where only an earlier copy was seen; unknown.
  local function cause_of(way, psn)
    local refused, was_cut = way.refused[psn], way.cut[psn]
    way.refused[psn], way.cut[psn] = nil, nil
    if refused then
      return refused
    elseif is_rewound(way, psn) then
      return way.rewound.code
    elseif was_cut then
      return "trimmed"
    end
    return way.time[psn] and "RTO?" or "unknown"
  end

  function make.pdc()
    local pdcs = {}

    local function way_of(pdc, source, destination)
      local way = pdc.ways[source]
      if not way then
        way = { ends = source .. " -> " .. destination, packets = 0, bytes = 0, resent = {}, rtts = {}, refused = {},
                cut = {}, time = {} } -- stylua: ignore
        pdc.ways[source] = way
        pdc.order[#pdc.order + 1] = way
      end
      return way
    end

    local function take(packet, pinfo)
      local index, head = analysis_of("pdc", packet.frame), head_of(packet)
      if not index or not head then
        return
      end
      local pdc = pdcs[index] or { ways = {}, order = {} }
      pdcs[index] = pdc
      local source, destination = tostring(pinfo.src), tostring(pinfo.dst)
      local way = way_of(pdc, source, destination)
      way.packets, way.bytes = way.packets + 1, way.bytes + pinfo.len
      local rtt = analysis_of("analysis.rtt", packet.frame)
      if rtt then
        local times = way_of(pdc, destination, source).rtts -- of the packets that are answered
        times[#times + 1] = rtt
      end
      local reason, psn = get(head, "nack_code"), get(head, "psn")
      if reason and get(head, "nack_psn") then
        local other, name = way_of(pdc, destination, source), code(NackCode, reason, "code")
        local first = get(head, "nack_psn")
        other.refused[first] = name
        if other.is_rod then -- all later packets are sent again, too
          first = reason == NACK.ROD_OOO and get(head, "nack_payload") or first
          local newest = other.newest and diff(other.newest, first) >= 0 and other.newest or first
          other.rewound = { code = name, psn = first, newest = newest, time = pinfo.rel_ts }
        end
      elseif psn and packet.trimmed then
        way.cut[psn] = true
      elseif psn then
        local is_again = analysis_of("analysis.retransmission", packet.frame)
        if is_again then
          count(way.resent, cause_of(way, psn))
        elseif not way.newest or diff(psn, way.newest) > 0 then
          way.newest = psn
        end
        if not analysis_of("analysis.duplicate", packet.frame) then
          way.time[psn] = pinfo.rel_ts
        end
        way.is_rod = way.is_rod or head.form.kind:match("^rod") ~= nil
      end
    end

    local function text()
      local rows = { joined({ "PDC", "direction", "packets", "bytes", "sent again" }, TIMES) }
      for _, index in ipairs(sorted_keys(pdcs)) do
        for _, way in ipairs(pdcs[index].order) do
          local first = { tostring(index), way.ends, tostring(way.packets), tostring(way.bytes), counts_text(way.resent) }
          rows[#rows + 1] = joined(first, times_texts(way.rtts))
        end
      end
      return columns(rows, 6)
    end
    return take, text, "UET PDCs: packets, bytes, retransmissions by cause, round-trip times of the packets of a direction"
  end

  function make.msg()
    local messages = {}

    local function take(packet)
      local index, request = analysis_of("msg", packet.frame), ses_of(packet)
      if index and request and not messages[index] then
        local opcode = code(Opcode, get(request, "opcode"), "opcode")
        messages[index] = { opcode = opcode, frame = packet.frame, bytes = get(request, "request_length") }
      end
    end

    local function text()
      local operations = {}
      for _, message in pairs(messages) do
        local row = operations[message.opcode] or { messages = 0, bytes = 0, times = {} }
        operations[message.opcode] = row
        row.messages, row.bytes = row.messages + 1, row.bytes + message.bytes
        row.times[#row.times + 1] = analysis_of("msg.time", message.frame) or nil
      end
      local rows = { joined({ "operation", "messages", "bytes" }, TIMES) }
      for _, opcode in ipairs(sorted_keys(operations)) do
        local row = operations[opcode]
        rows[#rows + 1] = joined({ opcode, tostring(row.messages), tostring(row.bytes) }, times_texts(row.times))
      end
      return columns(rows, 2)
    end
    return take, text, "UET messages by operation: how many, their bytes, and the times of those that are complete"
  end

  function make.srt()
    local requests, times = {}, {}

    local function take(packet, pinfo)
      local request = ses_of(packet)
      times[packet.frame] = pinfo.rel_ts
      if request then
        requests[packet.frame] = code(Opcode, get(request, "opcode"), "opcode")
      end
    end

    local function text()
      local operations = {}
      for frame, opcode in pairs(requests) do
        local response = analysis_of("response_in", frame)
        local list = operations[opcode] or {}
        operations[opcode] = list
        if response and times[response] then
          list[#list + 1] = times[response] - times[frame]
        end
      end
      local rows = { joined({ "operation" }, TIMES) }
      for _, opcode in ipairs(sorted_keys(operations)) do
        rows[#rows + 1] = joined({ opcode }, times_texts(operations[opcode]))
      end
      return columns(rows, 2)
    end
    return take, text, "UET service response times: from a request to the response to it, by operation"
  end

  function make.nack()
    local kinds = { "NACK", "return code", "trimmed" }
    local counts = { {}, {}, {} }

    local function take(packet)
      local head, _, response = head_of(packet), ses_of(packet)
      local reason = head and get(head, "nack_code")
      if reason then
        count(counts[1], code(NackCode, reason, "code"))
      end
      if response then
        count(counts[2], code(ReturnCode, get(response, "return_code"), "return code"))
      end
      if packet.trimmed then
        count(counts[3], head and head.form.kind:upper() or "other")
      end
    end

    local function text()
      local rows = { { "kind", "code", "packets" } }
      for i, kind in ipairs(kinds) do
        for _, key in ipairs(sorted_keys(counts[i])) do
          rows[#rows + 1] = { kind, key, tostring(counts[i][key]) }
        end
      end
      return columns(rows, 3)
    end
    return take, text, "UET NACKs, return codes of responses, and trimmed packets"
  end

  -- Where it is shown -----------------------------------------------------------------------------------------------

  -- Open a statistic over the packets that `filter` passes. `show` takes its text. Return the tap.
  local function open(name, filter, show)
    local take, text, title = make[name]()
    local tap = Listener.new("frame", filter or "uetp") -- with a filter there is a tree, also while Wireshark reads
    active = active + 1
    function tap.packet(pinfo)
      if seen and seen.frame == pinfo.number then
        take(seen, pinfo)
      end
    end
    function tap.reset()
      take, text, title = make[name]()
    end
    function tap.draw()
      show(title .. "\n\n" .. text())
    end
    return tap
  end

  local MENU = { pdc = "PDCs", msg = "Messages", srt = "Service response times", nack = "NACKs and return codes" }

  local function open_window(name, filter)
    local window = TextWindow.new("UET: " .. MENU[name])
    local tap = open(name, filter, function(text)
      window:set(text)
    end)
    window:set_atclose(function()
      tap:remove()
      active = active - 1
    end)
    retap_packets()
  end

  local line = ("="):rep(100)
  for name, label in pairs(MENU) do
    register_stat_cmd_arg("uetp," .. name, function(argument)
      local filter = (argument or ""):match("^uetp,%a+,(.+)$")
      if gui_enabled() then
        open_window(name, filter)
        return
      end
      open(name, filter, function(text)
        print(line .. "\n" .. text .. line)
      end)
    end)
    if gui_enabled() then
      register_menu("UET/" .. label, function()
        open_window(name)
      end, MENU_STAT_UNSORTED)
    end
  end

  return take_note
end)()

