-- SPDX-License-Identifier: GPL-2.0-only
-- Written by hand; `tools/generate` puts the tables where "@tables" stands, inside.lua where "@inside" does, and writes
-- uetproto.lua.
--
-- The code runs in Lua 5.2 (Wireshark up to 4.2) and 5.4 (from 4.4 on): it uses no integer division and no native bit
-- operators. All arithmetic stays below 2^53, where both versions agree.

-- The plugin may be loaded twice: from the personal plugin folder, and by -X lua_script.
local found, there = pcall(Dissector.get, "uetp")
if found and there then
  return
end

-- Lua of Wireshark collects garbage when there is as much of it as there is of the rest. What is kept of a long capture is
-- much, and what a packet leaves behind is little, so that it is collected earlier once much is kept.
collectgarbage("setstepmul", 1000)

local function set_pause()
  collectgarbage("setpause", collectgarbage("count") > 16384 and 110 or 150)
end

set_pause()

local floor, byte, format = math.floor, string.byte, string.format

-- The protocol is called `uetp`, so that a dissector named `uet` can be loaded as well.
local uetp = Proto("uetp", "Ultra Ethernet Transport")

-- Preferences -------------------------------------------------------------------------------------------------------

local CRC_AUTO, CRC_ON, CRC_OFF = 0, 1, 2

uetp.prefs.port = Pref.uint("UDP port", 4793, "Destination port of UET over UDP; 0: none")
uetp.prefs.heuristic = Pref.bool(
  "Look for UET on other UDP ports",
  false,
  "Where no other protocol has the ports: headers, reserved bits, codes and lengths or CRC32C have to be right"
)
uetp.prefs.protocol = Pref.uint("IP protocol", 253, "Protocol number of UET directly over IP; 0: none")
uetp.prefs.crc = Pref.enum(
  "CRC32C trailer",
  CRC_AUTO,
  "Whether a CRC32C ends each packet that is not sealed; auto: it matches, the headers account for all but 4 bytes, or "
    .. "others of its flow have one",
  { { 1, "auto", CRC_AUTO }, { 2, "on", CRC_ON }, { 3, "off", CRC_OFF } },
  false
)
uetp.prefs.verify = Pref.bool(
  "Verify the CRC32C",
  true,
  "Compute it for every packet; off: only where nothing else tells whether the packet ends in one"
)
uetp.prefs.trimmed = Pref.string("DSCP of trimmed packets", "16,18", "Classes into which switches put what they cut")
uetp.prefs.sharp = Pref.bool(
  "Look for SHARP in what RoCE sends",
  false,
  "No code announces these messages: they are known by whether all that is in them agrees"
)
uetp.prefs.mcast = Pref.bool(
  "Immediates are those of multicast",
  false,
  "Of broadcast and all-gather to multicast groups, and of their recovery ring"
)

uetp.prefs.reassemble = Pref.bool(
  "Put messages together",
  false,
  "Keep the bytes of messages of several packets, and show them with the packet that has the last of them"
)
uetp.prefs.reassemble_most =
  Pref.uint("Bytes kept for messages", 67108864, "Of all messages together; beyond them those of the oldest are dropped")
uetp.prefs.payload = Pref.enum(
  "Show payload as",
  0,
  "Of packets, and of messages that are put together",
  {
    { 1, "data", 0 }, { 2, "text", 1 }, { 3, "float32", 2 }, { 4, "float64", 3 }, { 5, "float16", 4 },
    { 6, "bfloat16", 5 }, { 7, "int32", 6 }, { 8, "int64", 7 }, { 9, "int8", 8 },
  }, -- stylua: ignore
  false
)
uetp.prefs.little_endian = Pref.bool("Numbers are little-endian", true, "Of the payload that is shown as numbers")
uetp.prefs.headers = Pref.enum(
  "Place of the headers",
  0,
  "At the top of the tree Wireshark draws them as packet diagrams and counts them in the protocol hierarchy; beneath the "
    .. "protocol one option of tshark, -O uetp, shows all; auto: at the top in Wireshark, beneath in tshark",
  { { 1, "auto", 0 }, { 2, "at the top", 1 }, { 3, "beneath the protocol", 2 } },
  false
)

-- The values of the preferences. To read one of `uetp.prefs` takes as long as to add a field to the tree.
local prefs = {}

local told = {} -- what was said to be wrong; Wireshark asks for the preferences several times

local function say_wrong(name, value, legal)
  local text = format("uetp: preference uetp.%s: %s is not legal; legal: %s\n", name, value, legal)
  if not told[text] then
    told[text] = true
    io.stderr:write(text)
  end
end

local function read_preferences()
  for _, name in ipairs({ "port", "heuristic", "protocol", "crc", "verify", "sharp", "mcast", "reassemble",
                          "reassemble_most", "payload", "little_endian", "headers" }) do -- stylua: ignore
    prefs[name] = uetp.prefs[name]
  end
  for _, limit in ipairs({ { "port", 65535, 4793 }, { "protocol", 255, 253 } }) do
    local name, most, usual = limit[1], limit[2], limit[3]
    if prefs[name] > most then
      say_wrong(name, prefs[name], format("0 to %d; %d is used", most, usual))
      prefs[name] = usual
    end
  end
  prefs.trimmed = {} -- by DSCP
  for word in tostring(uetp.prefs.trimmed):gmatch("[^%s,]+") do
    local number = word:match("^%d+$") and tonumber(word)
    if number and number < 64 then
      prefs.trimmed[number] = true
    else
      say_wrong("trimmed", word, "0 to 63, with commas between them")
    end
  end
end

local function headers_at_top()
  return prefs.headers == 1 or prefs.headers == 0 and gui_enabled()
end

-- What the tables are made with -------------------------------------------------------------------------------------

local fields = {} -- every ProtoField of the protocol itself
local known = {} -- every ProtoField of a header, by name and by what distinguishes several of one name
local fresh = {} -- ProtoFields that the next header owns
local protos = {} -- by filter name of the headers: their Proto, and its ProtoFields
local forms = {} -- by name
local names = {} -- the ProtoField of each name over forms
local filter_of = {} -- the display filter of each ProtoField
local verdicts = {} -- the expert info, and its text, of each rule

local function keep(field, key, name)
  fresh[#fresh + 1] = field
  known[key] = field
  filter_of[field] = "uetp." .. name
  return field
end

-- Make a field that is a number: `kind` is a constructor of ProtoField. Variants of a form share equal fields.
local function F(kind, name, label, display, values, mask, doc)
  local key = format("%s %s %s", name, kind, tostring(mask))
  return known[key] or keep(ProtoField[kind]("uetp." .. name, label, display, values, mask, doc), key, name)
end

-- Make a field of bytes.
local function B(name, label, doc)
  local key = name .. " bytes"
  return known[key] or keep(ProtoField.bytes("uetp." .. name, label, base.NONE, doc), key, name)
end

-- Make a field of the protocol itself, which is in no header.
local function own(kind, name, ...)
  local made = ProtoField[kind]("uetp." .. name, ...)
  fields[#fields + 1] = made
  filter_of[made] = "uetp." .. name
  return made
end

-- Make the field of a name over forms. `values` has the codes, or the unit.
local function N(kind, name, display, values, doc)
  if kind == "framenum" or kind == "bool" then
    names[name] = own(kind, name, name, base.NONE, nil, nil, doc)
  elseif kind == "relative_time" or kind == "none" then
    names[name] = own(kind, name, name, doc)
  else
    names[name] = own(kind, name, name, display, values, nil, doc)
  end
end

local experts = {}

local function own_expert(name, text, group, severity)
  local made = ProtoExpert.new("uetp.expert." .. name, text, expert.group[group], expert.severity[severity])
  experts[#experts + 1] = made
  return made
end

-- Make the expert info of a rule.
local function V(name, text, group)
  verdicts[name] = { expert = own_expert(name, text, group, "ERROR"), text = text }
end

local NEGATIVE = setmetatable({}, {
  __index = function(_, value)
    return value < 0
  end,
})

-- Define a form: { name, filter name, title, spec, size, only, names, row, row … }.
-- A row is { name, first byte, bytes, field, divisor, modulus, signed }: the value is that many bytes as one number,
-- divided, modulo. Rows of more than four bytes have no divisor; they have `bit` and `bits` where the mask would be
-- wider than Wireshark can apply; `within` marks one bit of the row before. `origin`, of a form or a row, says that it is
-- not published. `only`: the values by which the form is known, { divisor, modulus, values } of its first two bytes.
-- `names`: the names over forms that have a value here, { name, field, plus, sign, absent, codes }. `judged`: the fields
-- that have a rule, { field, verdict, legal values, field and value without which there is no rule }; a legal code that is
-- not in `named` is a vendor's.
local function form(made)
  local owner = protos[made.filter]
  if not owner then
    owner = { proto = Proto("uetp." .. made.filter, "UET: " .. made.title), fields = {} }
    protos[made.filter] = owner
  end
  for _, field in ipairs(fresh) do
    owner.fields[#owner.fields + 1] = field
  end
  fresh = {}
  made.item, made.by_name, made.after = owner.proto, {}, {}
  made.kind, made.item_name = made.filter:match("^pds%.(.*)"), "uetp." .. made.filter
  for _, row in ipairs(made) do
    made.by_name[row[1]] = row
    row.masked = row[6] and row[6] < 256 ^ row[3]
  end
  for _, name in ipairs(made.names) do
    name.field, name.row = names[name[1]], made.by_name[name[2]]
    name.plus, name.absent = made.by_name[name.plus], made.by_name[name.absent]
  end
  made.ahead = {} -- by the first word, what follows, where nothing else decides it; false: nothing
  made.good, made.late = {}, {} -- first words without a verdict; the fields behind the first word
  for _, judged in ipairs(made.judged) do
    judged.row, judged.verdict, judged.only_if = made.by_name[judged[1]], verdicts[judged[2]], made.by_name[judged[4]]
    if judged.row[2] + judged.row[3] > 2 then
      made.late[#made.late + 1] = judged
    end
  end
  forms[made.name] = made
end

local RESERVED, NOTHING = false, {}

local function matches(candidate, word)
  for _, condition in ipairs(candidate.only) do
    if not condition[3][floor(word / condition[1]) % condition[2]] then
      return false
    end
  end
  return true
end

local choices = {}

-- Return a table that finds one of the candidates `names` by the first two bytes: the form, or false.
local function choice(names)
  if not names or #names == 0 then
    return names and NOTHING
  end
  local key = table.concat(names, " ")
  if choices[key] then
    return choices[key]
  end
  local first = forms[names[1]]
  local made = { name = #names > 1 and first.name:match("^%a+") or first.name, size = first.size }
  for _, name in ipairs(names) do
    made.size = math.min(made.size, forms[name].size)
  end
  made.of = setmetatable({}, {
    __index = function(of, word)
      of[word] = false
      for _, name in ipairs(names) do
        if matches(forms[name], word) then
          of[word] = forms[name]
          break
        end
      end
      return of[word]
    end,
  })
  choices[key] = made
  return made
end

-- Say what follows each form of `after`, by the value of its field `by`: `match[value]`, else `otherwise`.
local function follows(after, by, match, otherwise)
  local row = { by = by, match = {}, otherwise = choice(otherwise) }
  for value, names in pairs(match) do
    row.match[value] = choice(names)
  end
  for _, name in ipairs(after) do
    local made = forms[name]
    table.insert(made.after, { of = by and made.by_name[by], match = row.match, otherwise = row.otherwise, by = by })
  end
end

-- @tables

-- Fields that are not in a header -----------------------------------------------------------------------------------

local CRC_STATUS = { [0] = "bad", [1] = "good", [2] = "unverified" }
local BAD, GOOD, UNVERIFIED = 0, 1, 2

local f_payload = own("bytes", "payload", "payload", base.NONE, "What the headers carry; sealed: the ciphertext")
local f_rest = own("bytes", "rest", "not decoded", base.NONE, "Bytes that fit no header")
local f_crc = own("uint32", "crc", "crc32c", base.HEX, nil, nil, "Most significant byte first (UE 1.0.1 §3.5.25)")
local f_crc_status =
  own("uint8", "crc.status", "crc32c status", base.DEC, CRC_STATUS, nil, "Whether the CRC32C was computed, and is right")
local f_crc_computed =
  own("uint32", "crc.computed", "crc32c computed", base.HEX, nil, nil, "What the CRC32C would have to be")
local f_icv = own("bytes", "icv", "icv", base.NONE, "AES-GCM tag (UE 1.0.1 §3.7)")
local f_origin = own("string", "origin", "origin", base.NONE, "Who laid this header out, where it is not published")
local f_rank = own("uint16", "sharp.rank", "rank", base.DEC, nil, nil, "Rank of a member that joins")
local f_pad = own("bytes", "sharp.pad", "pad", base.NONE, "Zeros up to whole words")
local f_request_in =
  own("framenum", "request_in", "request in", base.NONE, frametype.REQUEST, nil, "The frame that this packet answers")
local f_answer_in =
  own("framenum", "answer_in", "answered in", base.NONE, frametype.RESPONSE, nil, "The frame that answers this packet")

-- @reassembly
reassembly.place = own("framenum", "reassembled_in", "reassembled in", base.NONE, nil, nil, "The frame with the whole message")
reassembly.segments = own("none", "segments", "Reassembled message", "The frames of the message, and its bytes")
reassembly.segment = own("framenum", "segment", "segment", base.NONE, nil, nil, "A frame with bytes of the message")
reassembly.length = own("uint32", "reassembled.length", "length", base.DEC, nil, nil, "Number of bytes of the message")
reassembly.data = own("bytes", "reassembled.data", "data", base.NONE, "The bytes of the message")
reassembly.text = own("string", "payload.text", "text", base.NONE, "The payload as text in UTF-8")
reassembly.number = own("double", "payload.number", "number", base.NONE, "A number of the payload")

local f_analysis = own("none", "analysis", "Analysis", "What the packets around this one say of it")
local f_names = own("none", "names", "Names over forms", "The fields by names that are the same in all headers")

uetp.fields = fields
for _, owner in pairs(protos) do
  owner.proto.fields = owner.fields
end

local e_malformed = own_expert("malformed", "Malformed", "MALFORMED", "ERROR")
local e_reserved = own_expert("reserved", "Reserved value", "MALFORMED", "ERROR")
local e_short = own_expert("short", "Payload shorter than the headers imply", "MALFORMED", "ERROR")
local e_crc = own_expert("crc", "CRC32C is wrong", "CHECKSUM", "ERROR")
local e_suspect = own_expert("crc_suspect", "A payload MTU and 4 bytes: perhaps a wrong CRC32C", "CHECKSUM", "WARN")
local e_trimmed = own_expert("trimmed", "Trimmed by a switch", "SEQUENCE", "WARN")
local e_nack = own_expert("nack", "NACK", "SEQUENCE", "WARN")
local e_retx = own_expert("retx", "Retransmission", "SEQUENCE", "NOTE")
reassembly.e_dropped = own_expert("reassembly", "Bytes of messages were dropped", "REASSEMBLE", "WARN")
local e_error = own_expert("error", "Error response", "RESPONSE_CODE", "WARN")

-- By the flag beneath uetp.analysis; those without an entry are no news.
local analysis_experts = {
  spurious_retransmission = own_expert("spurious", "Sent again after its ACK", "SEQUENCE", "NOTE"),
  duplicate = own_expert("duplicate", "The same PSN again, not marked as sent again", "SEQUENCE", "NOTE"),
  duplicate_ack = own_expert("duplicate_ack", "An ACK that says nothing new", "SEQUENCE", "NOTE"),
  out_of_order = own_expert("out_of_order", "A newer PSN came before", "SEQUENCE", "NOTE"),
  lost_segment = own_expert("lost", "A CACK beyond a PSN that was not seen", "SEQUENCE", "WARN"),
  window_full = own_expert("window_full", "The window of the receiver is full", "SEQUENCE", "NOTE"),
  ack_unseen = own_expert("ack_unseen", "An ACK of a PSN that was not seen", "SEQUENCE", "WARN"),
  opcode_change = own_expert("opcode_change", "The packets of the message differ in their opcode", "PROTOCOL", "ERROR"),
  job_change = own_expert("job_change", "The packets of the message differ in their job", "PROTOCOL", "ERROR"),
  key_change = own_expert("key_change", "The packets of the message differ in their key or tag", "PROTOCOL", "ERROR"),
  response_wrong_id = own_expert("response_wrong_id", "The id is not that of the request", "PROTOCOL", "ERROR"),
  offset_overlap = own_expert("offset_overlap", "Another PSN has this offset of the message", "PROTOCOL", "ERROR"),
  som_twice = own_expert("som_twice", "The message has begun before", "PROTOCOL", "ERROR"),
  psn_two_contents = own_expert("psn_two_contents", "The PSN had another content before", "PROTOCOL", "ERROR"),
  clear_falls = own_expert("clear_falls", "CLEAR_PSN is below that of an earlier PSN", "PROTOCOL", "ERROR"),
}

uetp.experts = experts

-- Numbers -----------------------------------------------------------------------------------------------------------

-- Return the big-endian number of the `size` (up to four) bytes of `raw` behind the first `at`.
local function number(raw, at, size)
  local a, b, c, d = byte(raw, at + 1, at + size)
  if size == 1 then
    return a
  elseif size == 2 then
    return a * 256 + b
  elseif size == 3 then
    return a * 65536 + b * 256 + c
  end
  return a * 16777216 + b * 65536 + c * 256 + d
end

-- Return the value of a row, of up to four bytes, of a layer.
local function value_of(layer, row)
  local size, at, value = row[3], layer.at + row[2] + 1, nil
  if size == 1 then
    value = byte(layer.raw, at)
  elseif size == 2 then
    local a, b = byte(layer.raw, at, at + 1)
    value = a * 256 + b
  else
    value = number(layer.raw, at - 1, size)
  end
  if row.masked then
    local divisor = row[5]
    value = (value - value % divisor) / divisor % row[6]
  end
  if row[7] and value >= row[6] / 2 then
    value = value - row[6]
  end
  return value
end

-- Return the value of the field `name` of a layer; nil where its form has no such field.
local function get(layer, name)
  local row = layer.form.by_name[name]
  return row and value_of(layer, row)
end

local function add32(a, b)
  return (a + b) % 4294967296
end

-- @crc

-- @asked

local ONES = {} -- for each byte the places of its bits that are 1, from the lowest on

for value = 0, 255 do
  ONES[value] = {}
  for bit = 0, 7 do
    if floor(value / 2 ^ bit) % 2 == 1 then
      table.insert(ONES[value], bit)
    end
  end
end

-- What lies below ---------------------------------------------------------------------------------------------------

local get_ip4, get_ip6, get_udp = Field.new("ip.src"), Field.new("ipv6.src"), Field.new("udp.length")
local get_icmp4, get_icmp6 = Field.new("icmp"), Field.new("icmpv6")

-- Return the innermost of the fields that an extractor finds.
local function last(extractor)
  local all = { extractor() }
  return all[#all]
end

local function bytes_of_address(text)
  if text:match("^%d+%.%d+%.%d+%.%d+$") then
    return (text:gsub("(%d+)%.?", function(part) return string.char(tonumber(part)) end))
  end
  text = text:gsub("(%d+)%.(%d+)%.(%d+)%.(%d+)$", function(a, b, c, d) -- an IPv4 address at the end
    return format("%x:%x", a * 256 + b, c * 256 + d)
  end)
  local words = {}
  local function add(part)
    for word in part:gmatch("%x+") do
      local value = tonumber(word, 16)
      words[#words + 1] = string.char(floor(value / 256) % 256, value % 256)
    end
  end
  local before, behind = text:match("^(.-)::(.*)$")
  add(before or text)
  local first = #words
  add(behind or "")
  while before and #words < 8 do
    table.insert(words, first + 1, "\0\0")
  end
  return table.concat(words)
end

-- Return the bytes that the CRC covers before UET if there are no IP options or extension headers. In a first pass without
-- a tree, no field tells where the IP header is.
local function assume_covered(tvb, pinfo, udp)
  local ends = bytes_of_address(tostring(pinfo.net_src)) .. bytes_of_address(tostring(pinfo.net_dst))
  if not udp or (#ends ~= 8 and #ends ~= 32) then
    return ends
  end
  local ports = { pinfo.src_port, pinfo.dst_port, tvb:len() + 8 }
  for i, port in ipairs(ports) do
    ports[i] = string.char(floor(port / 256), port % 256)
  end
  return ends .. table.concat(ports) .. "\0\0"
end

-- The packet of UDP to our port that stands in the outermost Ethernet frame: number of the frame, where its payload starts,
-- the first bytes of the frame, where in them IP and UDP are, whether it is IPv4, and the size of the frame.
local outermost = {} -- port.lua sets it

-- Take note in `below` of what the IP header says. `header` begins with it, `from` bytes before its source address, which is
-- `first` bytes behind the start of `there` bytes. The header ends before UET, which is `start` bytes behind.
local function read_ip(below, header, from, first, start, there)
  below.covered = header:sub(from + 1, below.udp and -3 or -1)
  local size = from == 12 and number(header, 2, 2) - 12 or number(header, 4, 2) + 32 -- from the source address on
  below.short = first + size > there -- IP says that there is more
  if below.udp then
    below.covered = below.covered .. "\0\0" -- the UDP checksum counts as 0
    if below.length and not below.fragmented then
      local more = start - 8 + below.length - first - size
      below.trimmed = below.trimmed or more > 0
      below.excess = more < 0 and -more or nil
    end
  end
end

-- Return the DSCP if it is one of trimmed packets. `header` begins with that of IP.
local function trimmed_class(header, is_ip4)
  local class = is_ip4 and byte(header, 2) or floor(number(header, 0, 2) / 16) % 256
  return prefs.trimmed[floor(class / 4)] or false
end

-- Return what lies below UET. `covered`: the bytes before UET that the CRC covers, from the IP source address on; nil
-- where they are not in the same buffer. `truncated`: the capture kept less than there was. `trimmed`: a switch did.
-- `brief`: only whether UDP is below, and its length.
local function look_below(tvb, pinfo, brief)
  local start = tvb:offset()
  if outermost.start == start and outermost.frame == pinfo.number then
    local ip, udp, is_ip4 = outermost.ip, outermost.udp, outermost.is_ip4
    local below = { udp = true, length = number(outermost.raw, udp + 4, 2), ip4 = is_ip4 }
    if not brief then
      local header, from = outermost.raw:sub(ip + 1, start), is_ip4 and 12 or 8
      below.truncated = pinfo.caplen < pinfo.len
      below.trimmed = trimmed_class(header, is_ip4)
      read_ip(below, header, from, ip + from, start, outermost.size)
    end
    return below
  end
  local length = last(get_udp)
  local below = { trimmed = false }
  if length then
    below.udp = length.offset + 4 == start
  else
    below.udp = pinfo.match_uint ~= prefs.protocol
  end
  below.length = below.udp and length and length.value
  if brief then
    return below
  end
  local all4, all6 = { get_ip4() }, { get_ip6() }
  -- an ICMP error quotes the packet, rarely all of it
  below.quoted = #all4 + #all6 > 1 and (get_icmp4() or get_icmp6())
  below.truncated = below.quoted or pinfo.caplen < pinfo.len or pinfo.fragmented

  local source, is_ip4, source6 = all4[#all4], true, all6[#all6]
  if source6 and not (source and source.offset > source6.offset) then
    source, is_ip4 = source6, false
  end
  local buffer = source and source.source
  if not buffer then
    below.assumed = not below.truncated and assume_covered(tvb, pinfo, below.udp) or nil
    return below
  end
  below.ip4 = is_ip4
  local first, there, from = source.offset, buffer:len(), is_ip4 and 12 or 8
  local inside = first < start and start <= there
  local header = buffer:raw(first - from, inside and start - first + from or from)
  below.trimmed, below.fragmented = trimmed_class(header, is_ip4), pinfo.fragmented
  if inside then
    read_ip(below, header, from, first, start, there)
  end
  return below
end

-- The walk ----------------------------------------------------------------------------------------------------------

local FIRST_AFTER_UDP, FIRST_AFTER_IP = choice(FIRST), choice({ "entropy" })

local function by_name(values)
  local numbers = {}
  for value, name in pairs(values) do
    numbers[name] = value
  end
  return numbers
end

local OPCODE, AMO, RESPONSE = by_name(Opcode), by_name(AtomicOpcode), by_name(ResponseOpcode)
local NACK, LIST = by_name(NackCode), by_name(ResponseList)
local RETURN = by_name(ReturnCode)

-- Return the headers of a packet of `size` bytes, of which `raw` has the first ones, and what ended them: nil, or the
-- kind of fault and its text.
local function walk(raw, size, first)
  local layers, todo, count, at, reserved = {}, { first }, 1, 0, nil
  while count > 0 do
    local wanted = todo[count]
    count = count - 1
    local left = size - at
    if left < 2 then
      return layers, at, "short", format("%s needs %d bytes, %d are there", wanted.name, wanted.size, left)
    end
    local a, b = byte(raw, at + 1, at + 2)
    local made = wanted.of[a * 256 + b]
    if not made then
      return layers, at, "reserved", format("%s of reserved type %d", wanted.name, floor(a / 8))
    end
    if left < made.size then
      return layers, at, "short", format("%s needs %d bytes, %d are there", made.name, made.size, left)
    end
    local layer = { form = made, at = at, raw = raw }
    layers[#layers + 1] = layer
    at = at + made.size
    local after = made.after
    local ahead = made.ahead[a * 256 + b]
    if ahead then
      count = count + 1
      todo[count] = ahead
    end
    for i = ahead == nil and #after or 0, 1, -1 do
      local row = after[i]
      local value = row.of and value_of(layer, row.of)
      local following = row.match[value]
      if following == nil then
        following = row.otherwise
      end
      if following == RESERVED then
        reserved = format("%s.%s %d is reserved", made.name, row.by, value)
      elseif following ~= NOTHING then
        count = count + 1
        todo[count] = following
      end
      if #after == 1 and following ~= RESERVED and (not row.of or row.of[2] + row.of[3] <= 2) then
        made.ahead[a * 256 + b] = following ~= NOTHING and following
      end
    end
  end
  return layers, at, reserved and "reserved", reserved
end

-- Return the first header whose name starts with `prefix`.
local function find(layers, prefix)
  for _, layer in ipairs(layers) do
    if layer.form.name:sub(1, #prefix) == prefix then
      return layer
    end
  end
  return nil
end

local OPEN_ENDED = {
  ["pds.rud_req"] = true,
  ["pds.rod_req"] = true,
  ["pds.req_cc_state"] = true,
  ["pds.rudi_req"] = true,
  ["pds.uud_req"] = true,
}

-- Return the payload bytes that the headers imply; nil where they imply nothing.
local function implied_payload(layers)
  local index, eager, amo, cas = #layers, nil, nil, false
  while layers[index].form.name:match("^ses%.ext%.") do
    eager = eager or get(layers[index], "eager_length")
    amo = amo or get(layers[index], "atomic_opcode")
    cas = cas or layers[index].form.name == "ses.ext.atomic_cas"
    index = index - 1
  end
  local layer = layers[index]
  local response = layer.form.filter:match("^ses%.response")
  local opcode = get(layer, "opcode")
  local length = get(layer, "payload_length")
  if length then
    return opcode == OPCODE.READ and not response and 0 or length
  end
  length = get(layer, "request_length")
  if not length then
    return not OPEN_ENDED[layer.form.filter] and 0 or nil
  end
  if opcode == OPCODE.READ or opcode == OPCODE.DEFERRABLE_RTR or opcode == OPCODE.NO_OP then
    return 0
  end
  if amo == AMO.READ or amo == AMO.INVAL or cas then
    return 0
  end
  if opcode == OPCODE.MSG_ERROR or get(layer, "som") == 0 or get(layer, "eom") == 0 then
    return nil
  end
  return eager or length
end

-- No packet says whether it ends with a CRC: its flow does. One right CRC proves that the flow has CRCs; without one, the
-- first packets decide, of which `placed` leave room for one. All is known from the second pass on.
local flows = {} -- "source destination" -> { right, without, placed, tried }
local PATIENCE, TRIED = 16, 64

local ends_of_packet -- addresses, once they are asked for

local function flow_of(pinfo)
  if not ends_of_packet then
    ends_of_packet = tostring(pinfo.net_src) .. " " .. tostring(pinfo.net_dst)
  end
  return ends_of_packet
end

-- Return whether a packet of the flow had a right CRC.
local function has_crcs(pinfo)
  local flow = flows[flow_of(pinfo)]
  return flow and flow.right
end

-- Take note of a packet whose last bytes are `crc` or payload, and return whether its flow has CRCs.
local function learn_crc(pinfo, raw, crc, below, placed)
  local key = flow_of(pinfo)
  local flow, status = flows[key] or { without = 0, placed = 0, tried = 0 }, crc.status
  flows[key] = flow
  if below.assumed and not flow.right and not pinfo.visited and flow.tried < TRIED then
    flow.tried = flow.tried + 1
    status = crc32c(below.assumed, raw, #raw - 4) == crc.value and GOOD or BAD
  end
  flow.right = flow.right or status == GOOD
  if not pinfo.visited and status ~= GOOD and flow.without < PATIENCE then
    flow.without, flow.placed = flow.without + 1, flow.placed + (placed and 1 or 0)
  end
  local decided = flow.without == PATIENCE or pinfo.visited and flow.without > 0
  return flow.right or decided and flow.placed * 2 >= flow.without
end

-- Return the CRC of the packet: { value, computed, status }, or nil where there is none; and whether one is missing.
-- `verify`: compute it even where all else tells whether it is there.
local function find_crc(raw, at, below, implied, pinfo, verify)
  local mode = prefs.crc
  local length = #raw - at - 4
  if mode == CRC_OFF or #raw < 4 then
    return nil, mode == CRC_ON
  end
  local placed = length >= 0 and length == implied
  local sure = mode == CRC_ON or placed
  local crc = { value = number(raw, #raw - 4, 4), status = UNVERIFIED }
  if below.covered and (verify or length < 0 or not (sure or implied or has_crcs(pinfo))) then
    crc.computed = crc32c(below.covered, raw, #raw - 4)
    crc.status = crc.computed == crc.value and GOOD or BAD
  end
  if mode == CRC_AUTO and (below.covered or below.assumed) then
    sure = learn_crc(pinfo, raw, crc, below, placed) and not below.short or sure
    if length < 0 and crc.status == GOOD then
      return nil, false -- by chance, or the header is one of another revision
    end
  end
  return length >= 0 and sure and crc or nil, sure
end

-- Summaries ----------------------------------------------------------------------------------------------------------

local function code(values, value, what)
  return values[value] or format("%s 0x%02x", what, value)
end

local function bytes(count)
  return format(count == 1 and "%d byte" or "%d bytes", count)
end

-- Return which bytes of a message a packet has; the end is exclusive.
local function span(first, length, total)
  if first == 0 and length == total then
    return bytes(total)
  elseif not length then
    return format("%d–… of %d", first, total)
  end
  return format("%d–%d of %d", first, first + length, total)
end

local function pds_words(layer)
  local kind = layer.form.kind
  local words = { kind:upper() }
  local function add(...)
    words[#words + 1] = format(...)
  end
  if kind:match("^ack") then
    local cack = get(layer, "cack_psn")
    local offset, req = get(layer, "ack_psn_offset"), get(layer, "req")
    local expected = get(layer, "expected_psn")
    if offset then
      add("PSN %d", add32(cack, offset))
    else
      add("of probe 0x%04x", get(layer, "probe_opaque"))
    end
    add("CACK %d", cack)
    if expected then
      add("next start at %d", expected)
    end
    if req ~= 0 then
      add("asks %s", code(AckReq, req, "req"))
    end
  elseif kind:match("^nack") then
    local reason, value = get(layer, "nack_code"), get(layer, "nack_payload")
    local psn = get(layer, "nack_psn")
    add("%s", code(NackCode, reason, "code"))
    if psn then
      add("PSN %d", psn)
    else
      add("pkt_id 0x%08x", get(layer, "nack_pkt_id"))
    end
    if reason == NACK.ROD_OOO then
      add("expects %d", value)
    elseif reason == NACK.NEW_START_PSN then
      add("start at %d", value)
    end
  elseif kind == "cp" then
    local control = get(layer, "ctl_type")
    add("%s", code(CtlType, control, "type"))
    if get(layer, "syn") == 1 then
      add("SYN")
    end
    local row, values = CONTROLS[control] or { "PSN %d", "psn" }, {}
    for number = 2, #row do
      local value = get(layer, row[number])
      values[#values + 1] = row[number] == "ctl_payload" and value % (row.mask + 1) or value
    end
    add(row[1], (table.unpack or unpack)(values))
  else
    local psn, id = get(layer, "psn"), get(layer, "pkt_id")
    if get(layer, "syn") == 1 then
      add("SYN")
    end
    if psn then
      add("PSN %d", psn)
    elseif id then
      add("pkt_id 0x%08x", id)
    end
  end
  if get(layer, "retx") == 1 then
    add("retx")
  end
  return table.concat(words, " ")
end

local function response_words(layer)
  local result = get(layer, "return_code")
  local opcode = get(layer, "opcode")
  local text = code(ReturnCode, result, "return code")
  local length = get(layer, "payload_length")
  if length then
    local psn = get(layer, "original_request_psn")
    local data
    if psn then
      data = format("data of PSN %d %s", psn, bytes(length))
    else
      local offset, total = get(layer, "message_offset"), get(layer, "modified_length")
      data = format("data of id %d %s", get(layer, "read_request_message_id"), span(offset, length, total))
    end
    return result == RETURN.OK and data or data .. " " .. text
  end
  if opcode == RESPONSE.NO_RESPONSE then
    text = "no response yet"
  elseif not ResponseOpcode[opcode] then
    text = format("response opcode 0x%02x %s", opcode, text)
  elseif opcode == RESPONSE.RESPONSE then
    text = format("%s id %d", text, get(layer, "message_id"))
  end
  local list = get(layer, "list")
  return list ~= LIST.EXPECTED and text .. " " .. code(ResponseList, list, "list") or text
end

-- Return the summary. `there`: payload bytes of this packet, nil where its end was lost.
local function request_words(layer, layers, there)
  local opcode, total = get(layer, "opcode"), get(layer, "request_length")
  local id, offset = get(layer, "message_id"), get(layer, "message_offset")
  local words = { code(Opcode, opcode, "opcode") }
  local atomic = find(layers, "ses.ext.atomic")
  if atomic then
    words[#words + 1] = code(AtomicOpcode, get(atomic, "atomic_opcode"), "operation")
    words[#words + 1] = code(AtomicDatatype, get(atomic, "atomic_datatype"), "datatype")
  end
  if id then
    words[#words + 1] = format("id %d", id)
  end
  if offset then
    words[#words + 1] = span(offset, get(layer, "payload_length"), total)
  elseif get(layer, "eom") == 1 or not id or opcode == OPCODE.DEFERRABLE_RTR then
    words[#words + 1] = bytes(total)
  else
    words[#words + 1] = span(0, opcode ~= OPCODE.READ and there or nil, total)
  end
  return table.concat(words, " ")
end

local function words_of(layers, there)
  local words = {}
  local tss, pds, ses = find(layers, "tss"), find(layers, "pds"), find(layers, "ses")
  if tss then
    local ssi = get(tss, "ssi")
    words[1] = format("TSS SDI %d%s AN %d", get(tss, "sdi"), ssi and format(" SSI %d", ssi) or "", get(tss, "an"))
  end
  if pds then
    words[#words + 1] = pds_words(pds)
  end
  if ses then
    words[#words + 1] = ses.form.name:match("^ses%.response") and response_words(ses)
      or request_words(ses, layers, there)
  end
  return table.concat(words, " ")
end

-- @results

-- @analysis

-- Which packet answers which ----------------------------------------------------------------------------------------

local asked, answered, answers = {}, {}, {} -- key -> frame of the request; frame -> frame, both ways

-- Return the key that a request and its answer share, by addresses and PDCIDs of the requester; nil for other packets.
local function key_of(layer, pinfo)
  local kind = layer.form.kind
  local psn, pdcid, is_answer = get(layer, "psn"), get(layer, "spdcid"), false
  if kind:match("^n?ack") then
    local cack = get(layer, "cack_psn")
    is_answer, pdcid = true, get(layer, "dpdcid")
    if cack then
      local offset = get(layer, "ack_psn_offset")
      psn = offset and add32(cack, offset)
    else
      psn = get(layer, "nack_psn") or get(layer, "nack_pkt_id")
      pdcid = get(layer, "nack_psn") and pdcid or -1
    end
  elseif kind:match("^rudi") then
    is_answer, pdcid, psn = kind == "rudi_resp", -1, get(layer, "pkt_id")
  end
  if not psn then
    return nil
  end
  local from, to = tostring(pinfo.net_src), tostring(pinfo.net_dst)
  if is_answer then
    from, to = to, from
  end
  return format("%s %s %d %d", from, to, pdcid, psn), is_answer
end

local function link(layer, pinfo, tree)
  local frame = pinfo.number
  if not pinfo.visited then
    local key, is_answer = key_of(layer, pinfo)
    if key and not is_answer then
      asked[key] = frame
    elseif key and asked[key] then
      answers[frame] = asked[key]
      answered[asked[key]] = frame
    end
  end
  if answers[frame] then
    tree:add(f_request_in, answers[frame]):set_generated()
  end
  if answered[frame] then
    tree:add(f_answer_in, answered[frame]):set_generated()
  end
end

-- The tree ----------------------------------------------------------------------------------------------------------

-- Add the PSNs that a SACK bitmap says were received.
local function show_sack(layer, tvb, tree)
  local row, base = layer.form.by_name.sack_bitmap, add32(get(layer, "cack_psn"), get(layer, "sack_psn_offset"))
  local range = tvb(layer.at + row[2], 8)
  for i = 0, 7 do
    for _, bit in ipairs(ONES[byte(layer.raw, layer.at + row[2] + 8 - i)]) do
      tree:add(names.sack_psn, range, add32(base, 8 * i + bit)):set_generated()
    end
  end
end

local whole_tree -- whether everything is shown of this packet
local lean -- whether nothing is shown but what `only` names
local frame -- the number of this packet
local at_top -- where headers are added, if not beneath the protocol

-- Add a name over forms, on the bytes of its field; nothing where it has no value.
local function show_name(name, layer, tvb, tree)
  local row = name.row
  if name.absent and name.codes[value_of(layer, name.absent)] then
    return
  end
  if lean and row[3] <= 4 then -- nobody sees the bytes
    local value = value_of(layer, row)
    if name.plus then
      value = add32(value, name.sign * value_of(layer, name.plus))
    end
    tree:add(name.field, name.flag and value ~= 0 or not name.flag and value)
    return
  end
  local range = tvb(layer.at + row[2], row[3])
  local item
  if name.plus then
    range = tvb(layer.at + name.plus[2], name.plus[3])
    item = tree:add(name.field, range, add32(value_of(layer, row), name.sign * value_of(layer, name.plus)))
  elseif row.bit then
    item = tree:add(name.field, range, range:bitfield(row.bit, row.bits))
  elseif row[3] > 4 then
    item = tree:add(name.field, range)
  elseif name.flag then
    item = tree:add(name.field, range, value_of(layer, row) ~= 0)
  else
    item = tree:add(name.field, range, value_of(layer, row))
  end
  item:set_generated()
end

-- Take note of how much is shown of a packet.
local function begin(pinfo, tree)
  lean, whole_tree, frame = only ~= nil, tree.visible, pinfo.number
  at_top = not lean and headers_at_top() and tree or nil
end

-- Add the rows of a header: all of them, or those that are asked for.
local function show_rows(layer, tvb, branch, rows)
  local at = layer.at
  local range, first, size, whole
  for i = 1, #rows do
    local row = rows[i]
    if row[2] ~= first or row[3] ~= size then
      first, size = row[2], row[3]
      range = tvb(at + first, size)
    end
    local item
    if row.within then
      item = (whole or branch):add(row[4], range)
    elseif row.bit then
      item = branch:add(row[4], range, range:bitfield(row.bit, row.bits))
    else
      item = branch:add(row[4], range)
      whole = item
    end
    if row.origin then
      item:append_text(" [" .. row.origin .. "]")
    end
  end
end

-- Add a header, and return its item.
local function show(layer, tvb, tree)
  local made = layer.form
  if lean or not whole_tree then
    local rows = asked_rows(made, tree, lean, frame)
    if rows.nothing then
      return tree
    end
    local branch = tree
    if not lean or #rows > 0 or only[made.item_name] then
      branch = (at_top or tree):add(made.item, tvb(layer.at, made.size))
      show_rows(layer, tvb, branch, rows)
    end
    if rows.origin then
      branch:add(f_origin, made.origin)
    end
    for _, name in ipairs(rows.names) do
      show_name(name, layer, tvb, branch)
    end
    if rows.sack then
      show_sack(layer, tvb, branch)
    end
    return branch
  end
  local branch = (at_top or tree):add(made.item, tvb(layer.at, made.size)):set_text(made.title)
  if made.origin then
    branch:append_text(" [" .. made.origin .. "]")
    branch:add(f_origin, made.origin):set_generated()
  end
  show_rows(layer, tvb, branch, made)
  for _, name in ipairs(made.names) do
    if name.plus then
      show_name(name, layer, tvb, branch)
    end
  end
  if made.by_name.sack_bitmap then
    show_sack(layer, tvb, branch)
  end
  return branch
end

-- Add the names over forms of a packet, in a branch of their own. Sums stand beneath their header.
local function show_names(layers, tvb, top)
  local branch
  for _, layer in ipairs(layers) do
    for _, name in ipairs(layer.form.names) do
      if not name.plus then
        branch = branch or top:add(f_names, tvb()):set_generated()
        show_name(name, layer, tvb, branch)
      end
    end
  end
  return branch
end

local function show_experts(layer, branch)
  local made = layer.form
  local rows = made.by_name
  if rows.nack_code then
    branch:add_proto_expert_info(e_nack, "NACK " .. code(NackCode, get(layer, "nack_code"), "code"))
  elseif rows.retx and not rows.cack_psn and value_of(layer, rows.retx) == 1 then
    branch:add_proto_expert_info(e_retx)
  end
  if made.name == "sharp.fault" then
    branch:add_proto_expert_info(e_error, "SHARP refuses: " .. code(Status, get(layer, "code"), "status"))
  end
  local result = rows.return_code and value_of(layer, rows.return_code)
  if result and result ~= RETURN.NULL and result ~= RETURN.OK then
    branch:add_proto_expert_info(e_error, "Error response " .. code(ReturnCode, result, "return code"))
  end
end

local CONSEQUENCES = { reserved_bit = false, clear_positive = false, default_error = false }

-- Show the verdicts of a header. Return whether the meaning of what follows is known, and whether a vendor defines it.
local function show_verdicts(layer, branch)
  local made = layer.form
  if #made.judged == 0 then
    return true, false
  end
  local word = number(layer.raw, layer.at, 2)
  local known, vendors, right = true, false, true
  for _, judged in ipairs(made.good[word] and made.late or made.judged) do
    local value = value_of(layer, judged.row)
    if not judged[3][value] and (not judged.only_if or value_of(layer, judged.only_if) == judged[5]) then
      local verdict = judged.verdict
      branch:add_proto_expert_info(verdict.expert, format("%s: %s is %d", verdict.text, judged[1], value))
      known, right = known and CONSEQUENCES[judged[2]] == false, false
    elseif judged.named and not judged.named[value] then
      vendors, right = true, false
    end
  end
  made.good[word] = made.good[word] or right
  return known, vendors
end

-- Show the body of a SHARP message from `at` to `body_end`, and its pad up to `stop`.
local function show_body(layers, tvb, tree, at, body_end, stop)
  local join = layers[#layers]
  if join.form.name == "sharp.join_req" and body_end - at == 2 * get(join, "member_count") then
    for rank = at, body_end - 2, 2 do
      tree:add(f_rank, tvb(rank, 2))
    end
  elseif body_end > at then
    tree:add(f_payload, tvb(at, body_end - at))
  end
  if stop > body_end then
    tree:add(f_pad, tvb(body_end, stop - body_end))
  end
end

local EXPERT_OF = { short = e_malformed, reserved = e_reserved, payload = e_short }

-- @inside

-- The dissector -----------------------------------------------------------------------------------------------------

-- Find what is behind the headers: payload from `at` to `stop`, then ICV, CRC or bytes not decoded.
local function read_rest(packet, raw, below, pinfo, verify)
  local layers, at, fault = packet.layers, packet.at, packet.fault
  packet.stop, packet.lost = #raw, below.truncated or below.trimmed
  local left = #raw - at
  local function stop(kind, text, ...)
    packet.fault, packet.reason, packet.stop = kind, format(text, ...), at
  end

  if fault then
    packet.stop = at
    if fault == "short" and packet.lost then
      packet.fault = nil
    end
  elseif layers[#layers].form.filter == "tss" then
    packet.sealed = true
    if not packet.lost and left < 16 then
      stop("short", "the ICV needs 16 bytes, %d are there", left)
    elseif not packet.lost then
      packet.icv, packet.stop = true, #raw - 16
    end
  elseif not packet.lost then
    local implied = implied_payload(layers)
    local needed
    packet.crc, needed = find_crc(raw, at, below, implied, pinfo, verify)
    if packet.crc then
      packet.stop = #raw - 4
    elseif prefs.crc == CRC_AUTO and not implied then
      packet.suspect = SUSPECT[left]
    end
    if needed and not packet.crc then
      stop("short", "the CRC needs 4 bytes, %d are there", left)
    elseif implied and packet.stop - at < implied then
      packet.fault = "payload"
      packet.reason = format("payload has %d bytes, the headers imply %d", packet.stop - at, implied)
    elseif implied and packet.stop - at > implied then
      packet.excess = packet.stop - at - implied
    end
  end
  packet.there = not packet.lost and packet.stop - at or nil
  if not fault and not packet.sealed then
    message_over_uet(packet, raw)
  end
end

local function summary(packet, below)
  local words = { words_of(packet.layers, packet.there) }
  words[#words + 1] = message_words(packet.layers)
  if below.trimmed then
    words[#words + 1] = "[trimmed]"
  end
  if packet.sealed then
    words[#words + 1] = "[sealed]"
  end
  if packet.crc and packet.crc.status == BAD then
    words[#words + 1] = "[bad CRC]"
  elseif packet.suspect then
    words[#words + 1] = "[crc-suspect]"
  end
  if packet.fault then
    words[#words + 1] = format("[malformed: %s]", packet.reason)
  end
  return table.concat(words, " ", words[1] == "" and 2 or 1)
end

-- Show what follows the headers.
local function show_rest(packet, below, tvb, tree)
  local at, stop, crc = packet.at, packet.stop, packet.crc
  if below.trimmed then
    tree:add(names.trimmed, true):set_generated():add_proto_expert_info(e_trimmed)
  end
  if packet.sealed then
    tree:add(names.sealed, true):set_generated()
  end
  if stop > at then
    tree:add(names.len, tvb(at, stop - at), stop - at):set_generated()
  end
  if packet.body_end then
    show_body(packet.layers, tvb, tree, at, packet.body_end, stop)
  elseif stop > at and packet.sealed then
    tree:add(f_payload, tvb(at, stop - at))
  elseif stop > at then
    reassembly.show_payload(tree, tvb(at, stop - at), f_payload)
  end
  if packet.icv then
    tree:add(f_icv, tvb(stop, 16))
  elseif crc then
    local item = tree:add(f_crc, tvb(stop, 4))
    item:add(f_crc_status, tvb(stop, 4), crc.status):set_generated()
    if crc.status == BAD then
      item:add(f_crc_computed, tvb(stop, 4), crc.computed):set_generated()
      item:add_proto_expert_info(e_crc)
    end
  elseif tvb:len() > stop then
    tree:add(f_rest, tvb(stop))
  end
  if packet.suspect then
    tree:add_proto_expert_info(e_suspect)
  end
  if packet.fault then
    tree:add_proto_expert_info(EXPERT_OF[packet.fault], (packet.reason:gsub("^%l", string.upper)))
  end
end

-- Show a verdict where lengths contradict each other and no other expert info says so.
local function show_lengths(excess, below, top)
  local text
  if excess then
    text = format("%d bytes behind the payload that the headers imply", excess)
  elseif below.short and not below.truncated and not below.trimmed then
    text = "IP counts more bytes than there are"
  elseif below.excess and not below.truncated then
    text = format("IP and UDP differ by %d bytes", below.excess)
  end
  if text then
    top:add_proto_expert_info(verdicts.length.expert, format("%s: %s", verdicts.length.text, text))
  end
end

-- What is wanted where `only` says that names are looked at, and nothing else.
local needs = (function()
  local rest_fields = {
    f_payload, f_rest, f_crc, f_crc_status, f_crc_computed, f_icv, f_rank, f_pad, names.trimmed, names.sealed, names.len,
    reassembly.text, reassembly.number,
  } -- stylua: ignore
  local message_fields =
    { reassembly.place, reassembly.segments, reassembly.segment, reassembly.length, reassembly.data }
  local analysis_fields = {}
  for name, field in pairs(names) do
    analysis_fields[#analysis_fields + 1] = analysis.value_of(name) and field or nil
  end

  local function names_one_of(list)
    for _, field in ipairs(list) do
      if only[filter_of[field]] then
        return true
      end
    end
    return false
  end

  if not only then
    return {}
  end
  local made = { rest = names_one_of(rest_fields), crc = names_one_of({ f_crc, f_crc_status, f_crc_computed }) }
  for name in pairs(only) do
    made.rest = made.rest or name:match("^uetp%.sharp") ~= nil -- a message that lies in the payload
  end
  local is_put_together = names_one_of(message_fields)
  made.messages = is_put_together or made.rest -- if they are put together
  made.analysis = names_one_of(analysis_fields) or is_put_together
  made.protocol = has_taps or has_read_filter or only.uetp -- the protocol itself
  made.links = only["uetp.request_in"] or only["uetp.answer_in"]
  made.little_again = not (made.rest or has_taps) -- of what lies below, in a second pass
  made.little = made.little_again and not made.analysis
  made.nothing = not has_taps and (next(only) == nil or next(only) == "uetp" and next(only, "uetp") == nil)
  made.may_skip = not (made.rest or made.links or has_read_filter) -- in a first pass of two, without a tree
  return made
end)()

-- Show of a packet what `only` names.
local function dissect_lean(packet, below, tvb, pinfo, tree)
  local top = needs.protocol and tree:add(uetp) or tree
  if needs.rest then
    read_rest(packet, tvb:len() > 0 and tvb:raw() or "", below, pinfo, prefs.verify and needs.crc)
  end
  local pds = needs.links and find(packet.layers, "pds")
  for _, layer in ipairs(packet.layers) do
    local branch = show(layer, tvb, top)
    if layer == pds then
      link(layer, pinfo, branch)
    end
  end
  if needs.analysis then
    analysis.show(frame, top, false, true)
  end
  if needs.rest then
    show_rest(packet, below, tvb, top)
  end
  if needs.messages and prefs.reassemble then
    reassembly.show(pinfo, top)
  end
end

-- @statistics

local shown_frame = 0 -- the last frame that was UET

-- Return how many bytes of the packet are UET, at least 1; nil if it is not UET.
local function dissect(tvb, pinfo, tree)
  local size = tvb:len()
  ends_of_packet = nil
  local below = look_below(tvb, pinfo, needs.little or needs.little_again and pinfo.visited)
  if below.length and below.length < 8 then
    return nil -- the UDP header contradicts itself
  end
  if needs.nothing then
    shown_frame = pinfo.number
    if needs.protocol then
      tree:add(uetp)
    end
    return math.max(1, size)
  end
  local is_whole = not only or prefs.reassemble and needs.messages
  -- all headers lie within 512 bytes
  local raw = size > 0 and tvb:raw(0, is_whole and size or math.min(size, 512)) or ""
  local layers, at, fault, reason = walk(raw, size, below.udp and FIRST_AFTER_UDP or FIRST_AFTER_IP)
  local packet = { layers = layers, at = at, stop = size, fault = fault, reason = reason }
  begin(pinfo, tree)
  local is_observed = observe(layers, below, pinfo)
  shown_frame = frame
  if not lean or needs.analysis or is_observed then
    analysis.take(layers, raw, at, below, tvb, pinfo)
  end
  if lean then
    if whole_tree or not needs.may_skip then
      dissect_lean(packet, below, tvb, pinfo, tree)
    end
    return math.max(1, size)
  end
  pinfo.cols.protocol = "UET"
  read_rest(packet, raw, below, pinfo, prefs.verify)
  local words = summary(packet, below)
  pinfo.cols.info = words

  local top = tree:add(uetp, tvb()):append_text(", " .. words)
  local pds = find(packet.layers, "pds")
  local known = not (packet.crc and packet.crc.status == BAD) and not packet.suspect -- else any bit may be wrong
  local vendors = false
  for _, layer in ipairs(packet.layers) do
    local branch = show(layer, tvb, top)
    show_experts(layer, branch) -- expert items are counted even where the tree is not visible
    if known and packet.fault ~= "reserved" then
      local is_vendors
      known, is_vendors = show_verdicts(layer, branch)
      vendors = vendors or is_vendors
    end
    if layer == pds then
      link(layer, pinfo, branch)
    end
  end
  if whole_tree then
    show_names(packet.layers, tvb, top)
  end
  analysis.show(frame, top, whole_tree)
  show_rest(packet, below, tvb, top)
  if prefs.reassemble then
    reassembly.show(pinfo, top)
  end
  if known and not packet.fault then
    show_lengths(not vendors and packet.excess, below, top)
  end
  return math.max(1, size)
end

-- @port

-- Registration ------------------------------------------------------------------------------------------------------

local registered = {} -- name of a table -> { number taken, dissector that had it before }

-- Another dissector may have the number, for instance a native one: it gets it back when the preference changes.
local function register_at(name, wanted)
  local dissectors = DissectorTable.get(name)
  local old = registered[name]
  if old and old.number == wanted then
    return
  end
  if old then
    dissectors:remove(old.number, uetp)
    if old.before then
      dissectors:add(old.number, old.before)
    end
  end
  registered[name] = nil
  if wanted > 0 then
    local has, before = pcall(dissectors.get_dissector, dissectors, wanted)
    registered[name] = { number = wanted, before = has and before or nil }
    dissectors:add(wanted, uetp)
  end
end

local function apply_preferences()
  read_preferences()
  register_at("udp.port", prefs.port)
  register_at("ip.proto", prefs.protocol)
end

uetp.prefs_changed = apply_preferences
apply_preferences()
DissectorTable.get("udp.port"):add_for_decode_as(uetp)
DissectorTable.get("ip.proto"):add_for_decode_as(uetp)
