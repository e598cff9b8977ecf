-- SPDX-License-Identifier: GPL-2.0-only
-- The port is ours --------------------------------------------------------------------------------------------------
--
-- Written by hand; `tools/generate` puts it where "@port" stands in prelude.lua. The source port of a packet of UET is an
-- entropy value and may be the port of some other protocol. Wireshark asks the lower of two ports first, so that the
-- other protocol would take the packet. No dissector is asked between IP and UDP that would not show in
-- `frame.protocols`, but heuristic dissectors of Ethernet are asked before. Ours looks at the ports there, and for this
-- packet alone it enters our protocol at the source port. Ethernet in VXLAN, GENEVE, GRE and MPLS is asked as well. Where
-- there is no Ethernet header, or IP puts fragments together, a post-dissector shows UET beneath the other protocol.
-- Whoever was chosen by Decode As, for our port or for the source port, keeps the packet.

do
  local ports = DissectorTable.get("udp.port")
  local takers = {} -- by port below ours: the name of the dissector that has it as Wireshark starts
  local lent -- { port, dissector }: the port at which ours stands for the present packet
  local ETHERTYPES = { [0x8100] = true, [0x88A8] = true, [0x9100] = true }
  local EXTENSIONS = { [0] = true, [43] = true, [60] = true } -- of IPv6

  local function taker(port)
    local found, dissector = pcall(ports.get_dissector, ports, port)
    return found and dissector or nil
  end

  for port = 1, 8191 do -- a registered port below ours, wherever a preference puts that
    local dissector = taker(port)
    takers[port] = dissector and tostring(dissector)
  end

  -- Return whether our port is ours, and the source port is still that of the protocol that is entered by default.
  local function may_take(source)
    local here, there = taker(prefs.port), taker(source)
    return here and tostring(here) == "UETP" and there and tostring(there) == takers[source] and there
  end

  local function give_back()
    if lent then
      ports:add(lent.port, lent.dissector)
      lent = nil
    end
  end

  -- Return the offsets of the headers of IP and UDP of an Ethernet frame, and whether it is IPv4; nil where there is no UDP.
  local function udp_of(raw)
    local at, kind = 12, number(raw, 12, 2)
    while ETHERTYPES[kind] and at + 6 <= #raw do
      at = at + 4
      kind = number(raw, at, 2)
    end
    at = at + 2
    if at + 28 > #raw then
      return nil
    elseif kind == 0x0800 then
      local first, protocol = byte(raw, at + 1), byte(raw, at + 10)
      local fragment = number(raw, at + 6, 2) % 16384
      if protocol == 17 and fragment == 0 then
        return at, at + first % 16 * 4, true
      end
    elseif kind == 0x86DD then
      local protocol, udp = byte(raw, at + 7), at + 40
      while EXTENSIONS[protocol] and udp + 10 <= #raw do
        protocol, udp = byte(raw, udp + 1), udp + 8 * (byte(raw, udp + 2) + 1)
      end
      if protocol == 17 then
        return at, udp, false
      end
    end
    return nil
  end

  uetp:register_heuristic("eth", function(tvb, pinfo)
    give_back()
    outermost.start = nil
    local size, wanted = tvb:len(), prefs.port
    if wanted == 0 or size < 42 then
      return false
    end
    local raw = tvb:raw(0, math.min(size, 256))
    local ip, udp, is_ip4 = udp_of(raw)
    if udp and udp + 8 <= #raw and number(raw, udp + 2, 2) == wanted then
      if tvb:offset() == 0 then
        outermost.start, outermost.frame, outermost.raw, outermost.size = udp + 8, pinfo.number, raw, size
        outermost.ip, outermost.udp, outermost.is_ip4 = ip, udp, is_ip4
      end
      local source = number(raw, udp, 2)
      local dissector = source < wanted and takers[source] and may_take(source)
      if dissector then
        lent = { port = source, dissector = dissector }
        ports:add(source, uetp)
      end
    end
    return false
  end)

  function uetp.dissector(tvb, pinfo, tree)
    local source = pinfo.src_port
    if lent and lent.port == source then
      give_back()
    elseif pinfo.match_uint == source and source ~= pinfo.dst_port then
      return 0 -- chosen by the source port, which is only an entropy value
    end
    return dissect(tvb, pinfo, tree) or 0
  end

  -- Return whether all that can be checked of a packet says that it is UET.
  local function is_plausible(tvb, pinfo)
    local size = tvb:len()
    local raw = size > 0 and tvb:raw() or ""
    local layers, at, fault = walk(raw, size, FIRST_AFTER_UDP)
    local head = layers[1]
    if fault or not head.form.kind then
      return false
    end
    for _, layer in ipairs(layers) do
      for _, judged in ipairs(layer.form.judged) do
        if judged[2] ~= "default_error" and not judged[3][value_of(layer, judged.row)] then
          return false
        end
      end
    end
    local implied, below = implied_payload(layers), look_below(tvb, pinfo)
    if implied and (size - at == implied or size - at == implied + 4) then
      return true
    end
    return below.covered and size > at + 4 and crc32c(below.covered, raw, size - 4) == number(raw, size - 4, 4)
  end

  -- With the preference udp.try_heuristic_first this comes before the dissectors of ports.
  uetp:register_heuristic("udp", function(tvb, pinfo, tree)
    if prefs.port ~= 0 and pinfo.dst_port == prefs.port then
      local here = taker(prefs.port)
      return here ~= nil and tostring(here) == "UETP" and dissect(tvb, pinfo, tree) ~= nil
    end
    return prefs.heuristic and is_plausible(tvb, pinfo) and dissect(tvb, pinfo, tree) ~= nil
  end)

  -- Show a packet to our port that another protocol took by its source port.
  function take_from_others(pinfo, tree)
    if shown_frame == pinfo.number then
      return
    end
    local source, wanted = pinfo.src_port, prefs.port
    if pinfo.dst_port ~= wanted or source >= wanted then
      return
    end
    local length = last(get_udp)
    if length and may_take(source) and length.offset + 4 < length.source:len() then
      local rest = length.source:len() - length.offset - 4
      dissect(length.source(length.offset + 4, math.max(0, math.min(rest, length.value - 8))):tvb(), pinfo, tree)
    end
  end

  function uetp.init()
    give_back()
    asked, answered, answers, flows, shown_frame = {}, {}, {}, {}, 0
    analysis.reset()
  end
end
