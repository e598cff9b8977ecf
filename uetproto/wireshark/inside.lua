-- SPDX-License-Identifier: GPL-2.0-only
-- What no code announces --------------------------------------------------------------------------------------------
--
-- Written by hand; `tools/generate` puts it where "@inside" stands in prelude.lua. SHARP messages, their management and
-- the immediates of multicast, as `wire/inside.py` finds them.

local message_over_uet, message_words -- for the dissector of UET
local take_from_others -- comes with the port

do
  local SHARP, JOIN_REQ, AM = forms["sharp"], forms["sharp.join_req"], forms["sharp.am"]
  local BIT = by_name(Flag)

  local function has(flags, bit)
    return floor(flags / bit) % 2 == 1
  end

  -- What is wrong in a base header by itself; nil where nothing is.
  local function contradiction(base)
    local version, opcode = get(base, "ver"), get(base, "opcode")
    local flags, words = get(base, "flags"), get(base, "ext_words")
    local wanted = (has(flags, BIT.UDH) and 2 or 0) + (has(flags, BIT.TGT) and 6 or 0)
    if version ~= 1 then
      return format("sharp.ver %d is not 1", version)
    elseif not SharpOpcode[opcode] then
      return format("sharp.opcode 0x%02x is unknown", opcode)
    elseif get(base, "job_id") > 16777215 then
      return format("sharp.job_id 0x%08x has more than 24 bits", get(base, "job_id"))
    elseif flags % BIT.FINAL ~= 0 then
      return format("sharp.flags 0x%04x has reserved bits", flags)
    elseif words ~= wanted then
      return format("sharp.ext_words %d and sharp.flags 0x%04x contradict", words, flags)
    end
    return nil
  end

  -- The headers of the message at `at` of `raw`, where its body ends, and why it is none, or nil. It has `least` to
  -- `most` bytes.
  local function read_message(raw, at, least, most)
    local there = #raw - at
    if there < SHARP.size then
      return {}, #raw, format("sharp needs %d bytes, %d are there", SHARP.size, there)
    end
    local base = { form = SHARP, at = at, raw = raw }
    local layers, size = { base }, get(base, "payload_len")
    local body_end = at + SHARP.size + 4 * get(base, "ext_words") + size
    local total = body_end + -size % 4 - at
    local reason = contradiction(base)
    if not reason and (total < least or total > most) then
      reason = format("sharp.payload_len implies %d bytes, not %d", total, least)
    end
    if reason then
      return layers, #raw, reason
    end

    local names, flags, body = {}, get(base, "flags"), SHARP_BODIES[get(base, "opcode")]
    names[1] = has(flags, BIT.UDH) and "sharp.ext.udh" or nil
    names[#names + 1] = has(flags, BIT.TGT) and "sharp.ext.tgt" or nil
    names[#names + 1] = body
    local next_at = at + SHARP.size
    for _, name in ipairs(names) do
      local made, left = forms[name], body_end - next_at - forms[name].size
      if name == body and (left < 0 or left > 0 and made ~= JOIN_REQ) then
        reason = reason or format("sharp.payload_len %d is not that of %s", size, name)
      end
      if reason or #raw < next_at + made.size then
        break
      end
      local layer = { form = made, at = next_at, raw = raw }
      layers[#layers + 1] = layer
      next_at = next_at + made.size
      for _, row in ipairs(made) do
        if row[1]:match("^rsvd") and get(layer, row[1]) ~= 0 then
          reason = reason or format("%s.%s is not zero", name, row[1])
        end
      end
      if made == JOIN_REQ and left ~= 2 * get(layer, "member_count") then
        reason = reason or format("%s.member_count is not %d bytes of ranks", name, left)
      end
    end
    if raw:sub(body_end + 1, at + total):match("[^\0]") then
      reason = reason or "the pad is not zero"
    end
    return reason and { base } or layers, reason and #raw or body_end, reason
  end

  function message_words(layers)
    local base = find(layers, "sharp")
    if not base or base.form ~= SHARP then
      return nil
    end
    local opcode, status = get(base, "opcode"), get(base, "status")
    local words = { "SHARP " .. code(SharpOpcode, opcode, "opcode") }
    words[2] = format("tree %d group %d seq %d", get(base, "tree_id"), get(base, "group_id"), get(base, "seq"))
    local coll = get(base, "coll")
    if coll ~= 255 then
      words[#words + 1] = code(Coll, coll, "collective")
      if get(base, "op") ~= 12 then
        words[#words + 1] = code(Op, get(base, "op"), "op") .. " " .. code(Dtype, get(base, "dtype"), "dtype")
      end
      words[#words + 1] = format("%d elements", get(base, "count"))
    end
    if status ~= 0 then
      words[#words + 1] = code(Status, status, "status")
    end
    return table.concat(words, " ")
  end

  -- A message behind the headers of a packet of UET: they say so, and no ordinary PDC is established (sharp.md §2.1).
  function message_over_uet(packet, raw)
    local request, pds = packet.layers[#packet.layers], find(packet.layers, "pds")
    if not request or request.form.name ~= "ses.send_std.som" or get(request, "opcode") ~= OPCODE.SEND then
      return
    end
    local row, info = request.form.by_name.header_data, pds and get(pds, "pdc_info")
    if get(request, "hd") == 0 or number(raw, request.at + row[2], 4) ~= SHARP_MAGIC or (info and info < 8) then
      return
    end
    local length = get(request, "request_length")
    local layers, body_end, reason = read_message(raw:sub(1, packet.stop), packet.at, length, length)
    for _, layer in ipairs(layers) do
      packet.layers[#packet.layers + 1] = layer
      packet.at = layer.at + layer.form.size
    end
    packet.body_end = math.max(packet.at, math.min(body_end, packet.stop))
    if reason and not packet.fault and not packet.lost then
      packet.fault, packet.reason = "short", reason
    end
  end

  local get_opcode, get_qp = Field.new("infiniband.bth.opcode"), Field.new("infiniband.bth.destqp")
  local get_immediate, get_mad = Field.new("infiniband.immdt"), Field.new("infiniband.mad.mgmtclass")
  local get_crc = Field.new("infiniband.invariant.crc")
  local SEND_FIRST, SEND_ONLY, SEND_IMMEDIATE, UD_SEND_ONLY, UD_SEND_IMMEDIATE = 0, 4, 5, 100, 101
  local MULTICAST_QP, ENDLESS = 16777215, 1048576

  -- Over RoCE and InfiniBand a message is known only by rule 1 of sharp.md §2.8: everything in it agrees.
  local function over_roce(tvb, pinfo, tree)
    local opcode, qp = last(get_opcode), last(get_qp)
    opcode, qp = opcode and opcode.value, qp and qp.value
    if not prefs.sharp or tvb:len() < SHARP.size then
      return false
    end
    if opcode ~= SEND_FIRST and opcode ~= SEND_ONLY and not (opcode == UD_SEND_ONLY and qp == MULTICAST_QP) then
      return false
    end
    local raw, least, most = tvb:raw(), tvb:len(), tvb:len()
    if opcode == SEND_FIRST or tvb:reported_len() > #raw then
      least, most = #raw + 1, ENDLESS
    end
    local layers, body_end, reason = read_message(raw, 0, least, most)
    if reason then
      return false
    end
    local words = message_words(layers)
    pinfo.cols.protocol = "SHARP"
    pinfo.cols.info = words
    begin(pinfo, tree)
    local top, at = tree:add(uetp, tvb()):append_text(", " .. words), 0
    for _, layer in ipairs(layers) do
      show_experts(layer, show(layer, tvb, top))
      at = layer.at + layer.form.size
    end
    show_body(layers, tvb, top, at, math.min(body_end, #raw), #raw)
    return true
  end

  uetp:register_heuristic("infiniband.payload", over_roce)

  local function add(name, range, tree)
    local branch = tree:add(uetp, range)
    local layer = { form = forms[name], at = 0, raw = range:raw() }
    show(layer, range:tvb(), branch)
    return layer, branch
  end

  -- A chunk, or a message of the recovery ring (collectives.md §3.10.1).
  local function immediate(info, tree)
    local opcode, qp, range = last(get_opcode), last(get_qp), info.range
    if opcode.value == UD_SEND_IMMEDIATE and qp.value == MULTICAST_QP then
      add("mcast", range, tree)
    elseif opcode.value == SEND_IMMEDIATE then
      local crc, value = last(get_crc), number(range:raw(), 0, 4)
      local empty = crc and crc.offset == info.offset + 4
      if empty and (value % 8 == 0 or value == 0xDEAD * 8 + 1) then
        add("mcast.ring", range, tree)
      end
    end
  end

  -- A MAD of the Aggregation Management class, which Wireshark leaves to vendors.
  local function management(info, tree)
    local at = info.offset - 1
    local buffer = info.source
    if info.value ~= 11 or buffer:len() < at + 256 then
      return
    end
    local head, branch = add("sharp.am", buffer(at, AM.size), tree)
    local body = AM_BODIES[get(head, "attr_id")]
    if body then
      local range = buffer(at + AM.size, forms[body].size)
      show({ form = forms[body], at = 0, raw = range:raw() }, range:tvb(), branch)
    end
  end

  -- Beside what Wireshark shows of the same bytes.
  local beside = Proto("uetp_inside", "Ultra Ethernet Transport, inside InfiniBand")

  function beside.dissector(tvb, pinfo, tree)
    take_from_others(pinfo, tree)
    analysis.finish(tvb, pinfo, tree)
    local info = prefs.mcast and last(get_immediate)
    if info then
      begin(pinfo, tree)
      immediate(info, tree)
    end
    info = prefs.sharp and last(get_mad)
    if info then
      begin(pinfo, tree)
      management(info, tree)
    end
  end

  register_postdissector(beside)
end

