-- SPDX-License-Identifier: GPL-2.0-only
-- What the packets around a packet say ------------------------------------------------------------------------------
--
-- Written by hand; `tools/generate` puts it where "@analysis" stands in prelude.lua. docs/reference/analysis.md has the rules, and
-- uetproto/audit/per_packet does the same in Python. Everything is computed when a packet comes for the first time; results.lua
-- keeps it.

local analysis = {} -- what others call

local function make_analysis() -- a function of its own, since Lua limits the local variables of one
  local HISTORY, RECENT, FAR, HALF, M32 = 32768, 1024, 65536, 2147483648, 4294967296
  local WINDOW, MOST, BYTES = 0.001, 65536, 64 -- of copies
  local get_interface = Field.new("frame.interface_id")

  -- What somebody wants to know; the rest is not computed.
  local NEED = {
    copies = is_wanted("analysis.copy_of"),
    flight = is_wanted("analysis.packets_in_flight", "analysis.bytes_in_flight"),
    unseen = is_wanted("analysis.lost_segment", "analysis.ack_unseen"),
    acks = is_wanted("acks"),
    responses = is_wanted("response_in", "response_to"),
    messages = is_wanted("reassembled_in", "segments", "segment", "reassembled.length", "reassembled.data") or is_wanted("msg", "msg.first", "msg.last", "msg.missing", "msg.time", "response_in", "response_to"),
  }
  -- Contradictions between packets have no names, only expert infos. Where `only` names are looked at, there are none.
  local CONTRADICTS = not only

  local function diff(a, b)
    local d = (a - b) % M32
    return d < HALF and d or d - M32
  end

  -- Messages, by index: the first frame, and the latest one with the PSN of that; the frame with the last bytes; the time; the
  -- opcode of one that fetches; of the first packet opcode and job, and the key.
  local first_of, sent_of, last_of, time_of, fetch_of, head_of, key_of
  -- State.
  local pairs_of, taps, pdc_count, message_count, waiting, newest
  local copies, copy_count, several, first_tap, old, young
  local blind -- the interfaces of a second pass, if the first one knew none
  local stream_of, alias, directions, stream_count, newest_stream -- of RoCE

  function analysis.reset()
    results.reset()
    reassembly.reset()
    first_of, sent_of, last_of, time_of, fetch_of, head_of, key_of = {}, {}, {}, {}, {}, {}, {}
    pairs_of, taps, pdc_count, message_count = {}, {}, 0, 0
    waiting, newest, blind = nil, 0, nil
    stream_of, alias, directions, stream_count, newest_stream = {}, {}, {}, 0, 0
    copies, copy_count, several, first_tap, old, young = {}, 0, false, nil, {}, {}
  end

  analysis.reset()

  -- Flags of a packet, as bits.
  local RETRANSMISSION, SPURIOUS, DUPLICATE, DUPLICATE_ACK, OUT_OF_ORDER = 1, 2, 4, 8, 16
  local LOST, TRIMMED, FULL, UNSEEN = 32, 64, 128, 256
  local FLAGS = {
    { RETRANSMISSION, "retransmission" },
    { SPURIOUS, "spurious_retransmission" },
    { DUPLICATE, "duplicate" },
    { DUPLICATE_ACK, "duplicate_ack" },
    { OUT_OF_ORDER, "out_of_order" },
    { LOST, "lost_segment" },
    { TRIMMED, "trimmed" },
    { FULL, "window_full" },
    { UNSEEN, "ack_unseen" },
  }

  -- Contradictions, as bits.
  local OPCODE_CHANGE, JOB_CHANGE, KEY_CHANGE, WRONG_ID, OVERLAP, SOM_TWICE, TWO_CONTENTS, CLEAR_FALLS =
    1, 2, 4, 8, 16, 32, 64, 128
  local CONTRADICTIONS = {
    { OPCODE_CHANGE, "opcode_change" },
    { JOB_CHANGE, "job_change" },
    { KEY_CHANGE, "key_change" },
    { WRONG_ID, "response_wrong_id" },
    { OVERLAP, "offset_overlap" },
    { SOM_TWICE, "som_twice" },
    { TWO_CONTENTS, "psn_two_contents" },
    { CLEAR_FALLS, "clear_falls" },
  }

  local flag, contradict = results.flag, results.contradict

  -- Records of PSNs and packet ids -------------------------------------------------------------------------------------
  --
  -- A record is a list. One that is acknowledged, and whose message is complete, is packed into a number once newer ones came.

  local NUMBER, TIME, FLYING, MESSAGE, CUT, AGAIN, ACKED, NAMED, REFUSED, COUNTED = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10
  local FIRST = 11 -- whether the message began with it
  local ID, CONTENT = 12, 13 -- the id that responses have, -1: none; the CRC32C of the headers from SES on; false: not known
  local FRESH, LATE = 64, 512 -- how many are newer when a record is packed; and when it is tried again
  local M21, M26 = 2097152, 67108864

  local function new_record(p, acked)
    if CONTRADICTS then
      return { p.frame, p.time, 0, false, p.trimmed, p.retx, acked, false, false, false, false, false, false }
    end
    return { p.frame, p.time, 0, false, p.trimmed, p.retx, acked, false, false, false, false }
  end

  -- Return what holds packed records, by a number.
  local function new_past()
    return { packed = {}, ids = {}, contents = {} }
  end

  -- Return a message of which nothing is missing any more.
  local function complete_message(index)
    return { index = index, missing = 0, begun = true, fetches = fetch_of[index], read = fetch_of[index] == OPCODE.READ }
  end

  -- Pack a record of a table into `past`, where that is possible.
  local function put_away(records, key, past, place)
    local record = records[key]
    if not record or not record[ACKED] then
      return
    end
    local number_of, message = record[NUMBER], record[MESSAGE]
    local index = message and message.index + 1 or 0
    if message and not time_of[message.index] or number_of >= M26 or index >= M21 then
      return
    end
    local bits = (record[CUT] and 1 or 0) + (record[NAMED] and 2 or 0) + (record[COUNTED] and 4 or 0)
    past.packed[place] = (number_of * M21 + index) * 16 + bits + (record[FIRST] and 8 or 0)
    if CONTRADICTS then
      past.ids[place], past.contents[place] = record[ID], record[CONTENT]
    end
    records[key] = nil
  end

  -- Make a packed record a list again, if there is one.
  local function bring_back(records, key, past, place)
    local packed = past.packed[place]
    if not packed then
      return nil
    end
    past.packed[place] = nil
    local bits, rest = packed % 16, floor(packed / 16)
    local index = rest % M21
    local message = index > 0 and complete_message(index - 1)
    local record = { floor(rest / M21), 0, 0, message, bits % 2 == 1, false, true, floor(bits / 2) % 2 == 1, false,
                     floor(bits / 4) % 2 == 1, bits >= 8, past.ids[place], past.contents[place] } -- stylua: ignore
    records[key] = record
    return record
  end

  -- PDCs ------------------------------------------------------------------------------------------------------------

  -- Return the number of a sender and a receiver, whose addresses are `ends`; that of the other way is in `pairs_of`.
  local function pair_of(tap, ends)
    local pair = tap.pairs[ends]
    if not pair then
      local half = #ends / 2
      local opposite = ends:sub(half + 1) .. ends:sub(1, half)
      pair = #pairs_of + 1
      tap.pairs[ends] = pair
      if opposite == ends then
        pairs_of[pair] = pair
      else
        tap.pairs[opposite] = pair + 1
        pairs_of[pair], pairs_of[pair + 1] = pair + 1, pair
      end
    end
    return pair
  end

  local function table_of(tap)
    local found = taps[tap]
    if not found then
      found = { pairs = {}, links = {}, own = {}, both = {}, rudi = {}, rudi_messages = {}, uud_messages = {} }
      taps[tap] = found
    end
    return found
  end

  local function new_sender(use, pair)
    return { use = use, pair = pair, next = 0, sent = {}, past = new_past(), cack = 0, checked = 0, mpr = 0, packets = 0,
             bytes = 0, messages = {} } -- stylua: ignore
  end

  local function is_near(sender, psn)
    return not sender.base or math.abs(diff(psn, sender.next)) < FAR
  end

  -- What a packet is by its PDS header, and where its PSN and PDCIDs are; nil for other headers.
  local CLASS = {}
  for _, made in pairs(forms) do
    local rows, kind = made.by_name, nil
    if made.filter:match("^pds%.rudi_re") or made.filter == "pds.uud_req" or rows.nack_pkt_id then
      kind = "datagram"
    elseif rows.spdcid and made.filter:match("^pds%.") then
      kind = rows.cack_psn and "ack" or rows.nack_psn and "nack" or rows.psn_offset and "opening"
      kind = kind or rows.ctl_type and "control" or "sent"
    end
    local psn = rows.psn or rows.cack_psn or rows.nack_psn
    CLASS[made] = kind
      and { kind = kind, psn = psn and psn[2], ids = rows.spdcid and rows.spdcid[2], retx = rows.retx, clears = rows.clear_psn_offset }
  end

  local IS_SES = {}
  for name, made in pairs(forms) do
    IS_SES[made] = name:match("^ses%.") and true or nil
  end

  -- Return where a PSN is among the packed records.
  local function place_of(sender, psn)
    return (psn - sender.base) % RECENT + 1
  end

  local function is_past(sender, psn)
    local behind = diff(sender.next, psn)
    return sender.base and 0 < behind and behind <= RECENT and sender.past.packed[place_of(sender, psn)] ~= nil
  end

  -- Return the record of a PSN; nil where there is none.
  local function record_of(sender, psn)
    local record = sender.sent[psn]
    if not record and is_past(sender, psn) then
      return bring_back(sender.sent, psn, sender.past, place_of(sender, psn))
    end
    return record
  end

  local function was_seen(sender, psn)
    return sender.sent[psn] or is_past(sender, psn)
  end

  local function is_acked(sender, psn)
    if not sender.base then
      return false
    end
    local record = sender.sent[psn]
    return diff(psn, sender.cack) <= 0 or record and record[ACKED] or not record and is_past(sender, psn)
  end

  local function is_closed(use)
    return use.close_psn and is_acked(use.closer, use.close_psn)
  end

  local function own_key(pair, pdcid)
    return pair * 65536 + pdcid
  end

  local function both_key(pair, own, other)
    return (pair * 65536 + own) * 65536 + other
  end

  local function join(tap, sender, own, other)
    sender.id, sender.other.id = own, other
    for i = 1, 2 do
      local one = i == 1 and sender or sender.other
      local key = own_key(one.pair, i == 1 and own or other)
      local old = tap.own[key]
      if old and old ~= one then
        old.before, one.before = nil, old
      end
      tap.own[key] = one
    end
    tap.both[both_key(sender.pair, own, other)] = sender
    tap.both[both_key(sender.other.pair, other, own)] = sender.other
    return sender
  end

  local function new_pdc(tap, pair, own, other, start)
    local use = { index = pdc_count }
    pdc_count = pdc_count + 1
    local sender, opposite = new_sender(use, pair), new_sender(use, pairs_of[pair])
    sender.other, opposite.other = opposite, sender
    sender.id, sender.start = own, start
    if other then
      return join(tap, sender, own, other)
    end
    local key = own_key(pair, own)
    sender.before = tap.own[key]
    if sender.before then
      sender.before.before = nil
    end
    tap.own[key] = sender
    return sender
  end

  local function found(tap, pair, own, other)
    local sender = tap.both[both_key(pair, own, other)]
    if sender then
      return sender
    end
    sender = tap.own[own_key(pair, own)]
    if sender and not sender.other.id then
      return join(tap, sender, own, other)
    end
    local opposite = tap.own[own_key(pairs_of[pair], other)]
    if opposite and not opposite.other.id then
      return join(tap, opposite.other, own, other)
    end
    return nil
  end

  local function known_pdc(tap, pair, own, other)
    return found(tap, pair, own, other) or new_pdc(tap, pair, own, other)
  end

  local function opened(tap, pair, own, psn, start, retx)
    local sender = tap.own[own_key(pair, own)]
    if not sender or is_closed(sender.use) and not retx then
      return new_pdc(tap, pair, own, nil, start)
    end
    if not sender.start and (not sender.base or math.abs(diff(psn, sender.next)) < FAR) then
      sender.start = start
    end
    return sender.start == start and sender or new_pdc(tap, pair, own, nil, start)
  end

  local function sent_by(tap, pair, own, other, psn)
    local sender = found(tap, pair, own, other)
    if not sender then
      return new_pdc(tap, pair, own, other)
    elseif not is_near(sender, psn) then
      local before = sender.before
      return before and is_near(before, psn) and before or new_pdc(tap, pair, own, other)
    end
    return sender
  end

  local function answered(tap, pair, own, other, psn)
    local sender = tap.own[own_key(pairs_of[pair], other)]
    if own ~= 0 and (not sender or sender.other.id and sender.other.id ~= own) then
      return known_pdc(tap, pair, own, other).other
    elseif not sender then
      return nil
    end
    local before = sender.before
    if before and not was_seen(sender, psn) and was_seen(before, psn) then
      return before
    end
    if own ~= 0 and not sender.other.id then
      join(tap, sender.other, own, other)
    end
    return sender
  end

  -- What is sent ----------------------------------------------------------------------------------------------------

  local function land(sender, record)
    if record[FLYING] > 0 then
      sender.packets, sender.bytes = sender.packets - 1, sender.bytes - record[FLYING]
      record[FLYING] = 0
    end
  end

  -- Forget what is old, up to the PSN that follows the newest one.
  local function advance(sender, following)
    local sent, past, first = sender.sent, sender.past, sender.next
    for step = 0, diff(following, first) - 1 do
      local psn = (first + step - HISTORY) % M32
      local record = sent[psn]
      if record then
        sent[psn] = nil
        land(sender, record)
      end
      psn = (first + step - RECENT) % M32
      record = sent[psn]
      if record and record[ACKED] then
        sent[psn] = nil
      end
      local place = place_of(sender, psn)
      if past.packed[place] then
        past.packed[place] = nil
      end
      psn = (first + step - LATE) % M32
      put_away(sent, psn, past, place_of(sender, psn))
      psn = (first + step - FRESH) % M32
      put_away(sent, psn, past, place_of(sender, psn))
    end
    sender.next = following
  end

  -- Note a retransmission of what has a record.
  local function repeated(record, p, acked)
    flag(p.frame, RETRANSMISSION)
    if acked then
      flag(p.frame, SPURIOUS)
    end
    results.set_again(p.frame, record[NUMBER])
    record[NUMBER], record[TIME], record[CUT], record[AGAIN], record[REFUSED] = p.frame, p.time, p.trimmed, true, false
    if record[FIRST] then
      sent_of[record[MESSAGE].index] = p.frame
    end
  end

  local function send(sender, psn, p)
    if not sender.base then
      local ahead = sender.start and diff(psn, sender.start)
      sender.base = ahead and 0 <= ahead and ahead < HISTORY and sender.start or psn
      sender.next, sender.cack = sender.base, add32(sender.base, -1)
      sender.checked = sender.cack
    end
    local ahead, record = diff(psn, sender.next), record_of(sender, psn)
    if not record then
      if p.retx then
        flag(p.frame, RETRANSMISSION)
        if is_acked(sender, psn) then
          flag(p.frame, SPURIOUS)
        end
      end
      local forgotten = ahead < -RECENT and diff(psn, sender.cack) <= 0
      if not p.retx and ahead < 0 and not forgotten then
        flag(p.frame, OUT_OF_ORDER)
      end
      if ahead < -HISTORY or forgotten then
        return nil
      end
      record = new_record(p, diff(psn, sender.cack) <= 0)
      sender.sent[psn] = record
      if ahead >= 0 then
        advance(sender, add32(psn, 1))
      end
    elseif p.retx then
      repeated(record, p, is_acked(sender, psn))
    elseif not p.trimmed then
      flag(p.frame, DUPLICATE)
    end
    if p.trimmed then
      flag(p.frame, TRIMMED)
      return record
    end
    if NEED.flight then
      if record[FLYING] == 0 and not record[REFUSED] and not record[CUT] and not is_acked(sender, psn) then
        record[FLYING] = p.size
        sender.packets, sender.bytes = sender.packets + 1, sender.bytes + p.size
      end
      results.set_flight(p.frame, sender.packets, sender.bytes)
    end
    if sender.mpr > 0 and diff(psn, sender.cack) >= sender.mpr * 128 then
      flag(p.frame, FULL)
    end
    return record
  end

  -- Messages --------------------------------------------------------------------------------------------------------

  local function finish(message, time)
    if not time_of[message.index] then
      time_of[message.index] = math.max(0, time - message.since)
      message.parts = nil
      if message.id and message.within[message.id] == message then
        message.within[message.id] = message.index
      end
    end
  end

  local function arrive(message, size, frame)
    message.missing = math.max(0, message.missing - size)
    if message.missing == 0 and not last_of[message.index] then
      last_of[message.index] = frame
    end
  end

  -- Return what a request carries: opcode, message_id, som, bytes of the message, bytes of the packet.
  local function part_of(p, ses)
    local opcode, id, total, som = get(ses, "opcode"), get(ses, "message_id"), get(ses, "request_length"), get(ses, "som")
    if opcode == OPCODE.READ or opcode == OPCODE.MSG_ERROR then
      return opcode, id, som == 1, total, 0
    end
    if som == 0 and id and p.layers[#p.layers] == ses then
      return opcode, id, false, total, get(ses, "payload_length") or implied_payload(p.layers) or 0
    end
    local implied = implied_payload(p.layers)
    if not id or som == 1 and get(ses, "eom") == 1 then
      return opcode, id, true, implied or 0, implied or 0
    end
    local rendezvous = find(p.layers, "ses.ext.rendezvous")
    total = rendezvous and get(rendezvous, "eager_length") or total
    return opcode, id, som == 1, total, implied or (SUSPECT[p.left] and p.left - 4 or p.left)
  end

  local FETCHES = {
    [OPCODE.READ] = true,
    [OPCODE.FETCHING_ATOMIC] = true,
    [OPCODE.TSEND_FETCH_ATOMIC] = true,
  }

  -- Compare the SES headers of a packet with those of an earlier one with the same PSN.
  local function compare_content(record, p)
    local ses = p.ses
    local content = crc32c("", ses.raw:sub(ses.at + 1, p.at), p.at - ses.at)
    if record[CONTENT] and record[CONTENT] ~= content then
      contradict(p.frame, TWO_CONTENTS)
      p.other = true -- than the message of this PSN
    elseif not record[CONTENT] then
      record[CONTENT] = content
      local form_rows = ses.form.by_name
      local id = form_rows.response_message_id and "response_message_id" or form_rows.message_id and "message_id"
      if id then
        record[ID] = get(ses, id)
      elseif form_rows.request_length then
        record[ID] = -1
      end
    end
  end

  local NO_JOB = 16777216 -- job ids have 24 bits

  -- Compare a request with the first packet of its message that was seen. Which of both is wrong is not known.
  local function compare_message(message, ses, psn, frame, som)
    local key, rows = nil, ses.form.by_name
    local row = rows.memory_key or rows.match_bits
    if row then
      key = ses.raw:sub(ses.at + row[2] + 1, ses.at + row[2] + 8)
    end
    local opcode, job = get(ses, "opcode"), get(ses, "job_id") or NO_JOB
    local index = message.index
    local first, head = first_of[index], head_of[index]
    if first == frame then
      head_of[index], key_of[index] = opcode * (NO_JOB + 1) + job, key
      message.psn, message.parts = psn, {}
    elseif head and opcode ~= OPCODE.MSG_ERROR then
      if opcode ~= floor(head / (NO_JOB + 1)) then
        contradict(frame, OPCODE_CHANGE)
        contradict(first, OPCODE_CHANGE)
      end
      if job ~= head % (NO_JOB + 1) then
        contradict(frame, JOB_CHANGE)
        contradict(first, JOB_CHANGE)
      end
      if key and key_of[index] and key ~= key_of[index] then
        contradict(frame, KEY_CHANGE)
        contradict(first, KEY_CHANGE)
      end
    end
    local offset = get(ses, "message_offset") or som and 0
    if offset and message.parts then
      local known_psn = message.parts[offset]
      if known_psn and known_psn ~= psn and not message.read then
        contradict(frame, OVERLAP)
      end
      message.parts[offset] = known_psn or psn
    end
  end

  local function note_request(messages, record, p)
    local opcode, id, som, total, size = part_of(p, p.ses)
    local message = record[MESSAGE]
    if not message then
      message = id and messages[id]
      message = type(message) == "table" and message or nil
      if message and som and message.begun and message.missing > 0 and message.total == total and message.part then
        local packets = math.ceil(total / message.part) -- of the message, so that this PSN is one of its own
        local ahead = message.psn and diff(p.psn, message.psn)
        if ahead and 0 < ahead and ahead < packets then
          contradict(p.frame, SOM_TWICE)
        end
      end
      if not message or som and message.begun or message.missing == 0 or message.total ~= total then
        message = { index = message_count, within = messages, id = id, since = p.time, total = total, missing = total,
                    unacked = 0, read = opcode == OPCODE.READ, fetches = FETCHES[opcode], begun = false,
                    part = false } -- stylua: ignore
        first_of[message_count], sent_of[message_count] = p.frame, record[NUMBER]
        fetch_of[message_count] = message.fetches and opcode
        record[FIRST] = true
        message_count = message_count + 1
        if id then
          messages[id] = message
        end
      end
      message.begun = message.begun or som
      record[MESSAGE] = message
      if not record[ACKED] then
        message.unacked = message.unacked + 1
      end
    end
    if not record[COUNTED] and not p.trimmed then
      record[COUNTED] = true
      if not message.read then
        arrive(message, size, p.frame)
        reassembly.take(message.index, total, som and 0 or get(p.ses, "message_offset"), p.ses.raw, p.at, size, p.frame)
      end
    end
    results.set_part(p.frame, message.index, message.missing)
    message.part = message.part or size > 0 and size or nil
    if CONTRADICTS and id and not p.other then
      compare_message(message, p.ses, p.psn, p.frame, som)
    end
  end

  local function note_acked(record, time)
    local message = record[MESSAGE]
    if message then
      message.unacked = message.unacked - 1
      if message.unacked == 0 and message.missing == 0 and not message.fetches then
        finish(message, time)
      end
    end
  end

  -- Note the response to the frame `number_of`, and to its message if there is one.
  local function note_response(message, number_of, p, first)
    local is_none = not p.ses or get(p.ses, "opcode") == RESPONSE.NO_RESPONSE
    if not is_none and NEED.responses then
      results.set_response(number_of, p.frame)
    end
    if not message then
      return
    end
    local length = not is_none and message.fetches and get(p.ses, "payload_length")
    if length and message.read and first then
      arrive(message, length, p.frame)
      reassembly.take(message.index, message.total, get(p.ses, "message_offset"), p.ses.raw, p.at, length, p.frame)
    end
    results.set_part(p.frame, message.index, length and message.read and message.missing or nil)
    if length and message.missing == 0 then
      finish(message, p.time)
    end
  end

  -- What is answered ------------------------------------------------------------------------------------------------

  -- Add a record that is not acknowledged yet to `new`.
  local function take_new(new, record)
    if record and not record[ACKED] then
      record[ACKED] = true
      new[#new + 1] = record
    end
  end

  local function cumulative(sender, cack, new)
    local newest_psn = add32(sender.next, -1)
    if diff(cack, newest_psn) > 0 then
      if diff(cack, newest_psn) >= FAR then
        return
      end
      cack = newest_psn
    end
    local first = sender.cack
    local steps = diff(cack, first)
    if steps <= 0 then
      return
    end
    for step = math.max(1, steps - HISTORY), steps do
      take_new(new, sender.sent[(first + step) % M32])
    end
    sender.cack = cack
  end

  -- `named` begins with the CACK_PSN: it says that all before it arrived; a PSN that a SACK leaves out may still come.
  local function look_for_unseen(sender, named, frame)
    local top = sender.checked
    local unseen, lost = false, false
    for i, psn in ipairs(named) do
      local behind = diff(sender.next, psn)
      if behind <= RECENT and diff(psn, sender.base) >= 0 and behind > -FAR then
        unseen = unseen or not was_seen(sender, psn)
        local last_psn = behind > 0 and psn or sender.next
        if i == 1 and diff(last_psn, top) > 0 then
          top = last_psn
        end
      end
    end
    local steps = diff(top, sender.checked)
    for step = math.max(1, steps - HISTORY), steps - 1 do
      lost = lost or not was_seen(sender, add32(sender.checked, step))
    end
    local newest_psn = add32(sender.next, -1)
    sender.checked = diff(top, newest_psn) > 0 and newest_psn or top
    if unseen then
      flag(frame, UNSEEN)
    end
    if lost then
      flag(frame, LOST)
    end
  end

  -- Take an ACK of what `sender` sent; it answers the PSN `exact`, whose record is `answer`, unless it answers a probe.
  local function acknowledge(sender, head, cack, exact, answer, p)
    if not sender.base then
      return
    end
    local row = head.form.by_name.sack_bitmap
    local new, named = {}, { cack, exact }
    if row then
      local raw, at = head.raw, head.at + row[2]
      local base_psn = add32(cack, get(head, "sack_psn_offset"))
      for i = 0, 7 do
        local ones = ONES[byte(raw, at + 8 - i)]
        for j = 1, #ones do
          named[#named + 1] = (base_psn + 8 * i + ones[j]) % M32
        end
      end
      local mpr = get(head, "mpr")
      sender.mpr = mpr > 0 and mpr or sender.mpr
    end

    cumulative(sender, cack, new)
    for i = 2, #named do
      take_new(new, sender.sent[named[i]])
    end
    local is_new, told = false, NEED.acks and {}
    for i = 1, #new do
      local record = new[i]
      land(sender, record)
      is_new = is_new or record == answer
      if not record[CUT] then
        results.set_acked(record[NUMBER], p.frame, p.time - record[TIME])
        if told then
          told[#told + 1] = record[NUMBER]
        end
      end
    end
    if answer then
      if is_new and not answer[AGAIN] then
        results.set_rtt(p.frame, p.time - answer[TIME])
      end
      if answer[NAMED] and #new == 0 then
        flag(p.frame, DUPLICATE_ACK)
      end
      answer[NAMED] = true
      if told and not is_new and not answer[CUT] then
        told[#told + 1] = answer[NUMBER]
      end
    end
    if told then
      table.sort(told)
      results.set_acks(p.frame, told)
    end
    if NEED.unseen then
      look_for_unseen(sender, named, p.frame)
    end
    for i = 1, #new do
      note_acked(new[i], p.time)
    end
  end

  local function refuse(record, frame)
    if record and not record[ACKED] then
      if not record[REFUSED] then
        results.set_refused(record[NUMBER], frame)
      end
      record[REFUSED] = true
      return record
    end
    return nil
  end

  -- Packets ---------------------------------------------------------------------------------------------------------

  -- Return the message that a response answers, if any, and the latest transmission of the request: it names a message or a
  -- PSN, or its ACK answers the packet of the record `exact`.
  local function asked_by(sender, ses, exact)
    local id, psn = get(ses, "read_request_message_id"), get(ses, "original_request_psn")
    if id then
      local message = sender.messages[id]
      message = type(message) == "number" and complete_message(message) or message
      return message, message and sent_of[message.index]
    end
    local record = exact
    if psn then
      record = record_of(sender, psn)
    end
    if record then
      return record[MESSAGE], record[NUMBER]
    end
    return nil, nil
  end

  local CTL = by_name(CtlType)

  -- A READ names its rendezvous by a key, a restart what it restarts by a token. Of each pair of hosts the last `LINKS` are
  -- remembered.
  local LINKS = 4096

  local function bytes_at(layer, row)
    return row and layer.raw:sub(layer.at + row[2] + 1, layer.at + row[2] + row[3])
  end

  -- Remember the message of a request by what names it.
  local function remember(links, key, index)
    if links[key] then
      for i = links.first, links.last do
        if links.order[i] == key then
          for j = i, links.last do
            links.order[j] = links.order[j + 1]
          end
          links.last = links.last - 1
          break
        end
      end
    elseif links.last - links.first + 1 >= LINKS then
      links[links.order[links.first]], links.order[links.first] = nil, nil
      links.first = links.first + 1
    end
    links.last = links.last + 1
    links.order[links.last], links[key] = key, index
  end

  local function find_link(links, ses)
    local rows = ses.form.by_name
    if rows.receiver_token then
      return links["deferrable " .. get(ses, "receiver_token")]
    elseif rows.target_restart_token then
      local token = get(ses, "target_restart_token")
      return token > 0 and links["restart " .. token] or nil
    elseif rows.memory_key and rows.buffer_offset and get(ses, "opcode") == OPCODE.READ then
      return links["rendezvous " .. bytes_at(ses, rows.memory_key) .. bytes_at(ses, rows.buffer_offset)]
    end
    return nil
  end

  local function note_links(links, p, index)
    local rows = p.ses.form.by_name
    local extension = get(p.ses, "opcode") ~= OPCODE.READ and find(p.layers, "ses.ext.rendezvous")
    if extension then
      local made = extension.form.by_name
      local key = bytes_at(extension, made.read_memory_key) .. bytes_at(extension, made.read_offset)
      remember(links, "rendezvous " .. key, index)
    end
    if rows.sender_token then
      remember(links, "restart " .. get(p.ses, "sender_token"), index)
    elseif rows.initiator_restart_token and get(p.ses, "target_restart_token") == 0 then
      local token = get(p.ses, "initiator_restart_token")
      if token > 0 then
        remember(links, "deferrable " .. token, index)
      end
    end
  end

  local function links_of(tap, pair)
    local links = tap.links[pair]
    if not links then
      links = { order = {}, first = 1, last = 0 }
      tap.links[pair] = links
    end
    return links
  end

  local function take_sent(sender, head, psn, p)
    local record = send(sender, psn, p)
    results.set_place(p.frame, sender.use.index, diff(psn, sender.base))
    if head.form.by_name.ctl_type and get(head, "ctl_type") == CTL.CLOSE_CMD then
      sender.use.closer, sender.use.close_psn = sender, psn
    end
    if CONTRADICTS and record and not p.retx and record[NUMBER] == p.frame and CLASS[head.form].clears then
      local clear = add32(psn, get(head, "clear_psn_offset"))
      local top = sender.clear
      if top and diff(psn, sender.clear_at) > 0 and diff(clear, top) < 0 then
        contradict(p.frame, CLEAR_FALLS)
      elseif not top or diff(clear, top) > 0 then
        sender.clear, sender.clear_at = clear, psn
      end
    end
    if not record or not p.ses or not (NEED.messages or CONTRADICTS) then
      return
    end
    p.psn = psn
    if CONTRADICTS and not p.trimmed and not p.truncated then
      compare_content(record, p)
    end
    if not get(p.ses, "return_code") then
      note_request(sender.messages, record, p)
      if NEED.responses then
        local index = find_link(links_of(p.tap, pairs_of[sender.pair]), p.ses)
        if index then
          results.set_response(sent_of[index], p.frame)
        end
        index = record[MESSAGE].index
        if first_of[index] == p.frame then
          note_links(links_of(p.tap, sender.pair), p, index)
        end
      end
      return
    end
    local message, number_of = asked_by(sender.other, p.ses)
    if number_of then
      local first = not record[COUNTED] and not p.trimmed
      record[COUNTED] = record[COUNTED] or first
      note_response(message, number_of, p, first)
    end
  end

  -- Compare a response with the request that its ACK answers. A response that PDS makes has id 0, or the id of the request.
  local function compare_id(expected, ses, psn, frame)
    local original = get(ses, "original_request_psn")
    local id = get(ses, "message_id") or get(ses, "read_request_message_id")
    local opcode = get(ses, "opcode")
    local result = get(ses, "return_code")
    local by_pds = opcode == RESPONSE.DEFAULT_RESPONSE and (result == RETURN.NULL or result == RETURN.OK)
    local asked = expected < 0 and result == RETURN.NULL
    if original and psn and original ~= psn then
      contradict(frame, WRONG_ID)
    elseif id and id ~= math.max(expected, 0) and not (by_pds and (id == 0 or asked)) then
      contradict(frame, WRONG_ID)
    end
  end

  local function take_ack(tap, pair, own, other, head, cack, p)
    local offset = get(head, "ack_psn_offset")
    local psn = add32(cack, offset or 0)
    local sender = answered(tap, pair, own, other, psn)
    if not sender then
      return
    end
    results.set_place(p.frame, sender.use.index)
    local exact = offset and record_of(sender, psn)
    acknowledge(sender, head, cack, offset and psn, exact, p)
    if exact and p.ses and exact[ID] and not p.truncated then
      compare_id(exact[ID], p.ses, psn, p.frame)
    end
    if not NEED.messages then
      return
    end
    local message, number_of = exact and exact[MESSAGE], exact and exact[NUMBER]
    if p.ses then
      message, number_of = asked_by(sender, p.ses, exact)
    end
    if number_of then
      note_response(message, number_of, p, not p.trimmed)
    end
  end

  local function take_pdc(tap, pair, head, p)
    local class, raw, at = CLASS[head.form], head.raw, head.at
    local psn = number(raw, at + class.psn, 4)
    local ids = number(raw, at + class.ids, 4) -- SPDCID, and DPDCID if there is one
    local other = ids % 65536
    local own = (ids - other) / 65536
    if class.kind == "sent" then
      take_sent(sent_by(tap, pair, own, other, psn), head, psn, p)
    elseif class.kind == "ack" then
      take_ack(tap, pair, own, other, head, psn, p)
    elseif class.kind == "opening" then
      take_sent(opened(tap, pair, own, psn, add32(psn, -get(head, "psn_offset")), p.retx), head, psn, p)
    elseif class.kind == "nack" then
      local sender = answered(tap, pair, own, other, psn)
      if sender then
        results.set_place(p.frame, sender.use.index)
        local record = refuse(sender.sent[psn], p.frame)
        if record then
          land(sender, record)
        end
      end
    else
      local control = CONTROLS[get(head, "ctl_type")] or {}
      if control.consumes then
        take_sent(sent_by(tap, pair, own, other, psn), head, psn, p)
        return
      end
      local sender = known_pdc(tap, pair, own, other)
      local rel_psn = sender.base and control.names_psn and diff(psn, sender.base) or nil
      results.set_place(p.frame, sender.use.index, rel_psn)
    end
  end

  local function inner(of, key)
    local there = of[key]
    if not there then
      there = {}
      of[key] = there
    end
    return there
  end

  -- Return the requests of RUDI that a pair of hosts sent.
  local function rudi_of(tap, pair)
    local records = tap.rudi[pair]
    if not records then
      records = { sent = {}, past = new_past(), order = {}, count = 0 }
      tap.rudi[pair] = records
    end
    return records
  end

  local function rudi_record(records, id)
    return records.sent[id] or bring_back(records.sent, id, records.past, id)
  end

  local function send_rudi(records, id, p)
    local record = rudi_record(records, id)
    if p.trimmed then
      flag(p.frame, TRIMMED)
    end
    if not record then
      if p.retx then
        flag(p.frame, RETRANSMISSION)
      end
      record = new_record(p, false)
      local order, place = records.order, records.count % HISTORY + 1
      local oldest, recent = order[place], order[(records.count - FRESH) % HISTORY + 1]
      if oldest then
        records.sent[oldest], records.past.packed[oldest] = nil, nil
      end
      if recent then
        put_away(records.sent, recent, records.past, recent)
      end
      order[place], records.count = id, records.count + 1
      records.sent[id] = record
    elseif p.retx then
      repeated(record, p, record[ACKED])
    elseif not p.trimmed then
      flag(p.frame, DUPLICATE)
    end
    return record
  end

  local function take_datagram(tap, pair, head, p)
    local kind = head.form.kind
    local is_request = p.ses and not get(p.ses, "return_code")
    p.psn = get(head, "pkt_id") or 0
    if kind == "rudi_req" then
      local record = send_rudi(rudi_of(tap, pair), get(head, "pkt_id"), p)
      if CONTRADICTS and p.ses and not p.trimmed and not p.truncated then
        compare_content(record, p)
      end
      if is_request then
        note_request(inner(tap.rudi_messages, pair), record, p)
      end
      return
    elseif kind == "uud_req" then
      if is_request then
        note_request(inner(tap.uud_messages, pair), new_record(p, false), p)
      end
      return
    end
    local asked = rudi_record(rudi_of(tap, pairs_of[pair]), get(head, "pkt_id") or get(head, "nack_pkt_id"))
    if not asked then
      return
    elseif kind ~= "rudi_resp" then
      refuse(asked, p.frame)
      return
    end
    if p.ses and asked[ID] and not p.truncated then
      compare_id(asked[ID], p.ses, nil, p.frame)
    end
    if not asked[CUT] then
      results.set_acks(p.frame, { asked[NUMBER] })
    end
    if asked[ACKED] then
      flag(p.frame, DUPLICATE_ACK)
    else
      asked[ACKED] = true
      local since = p.time - asked[TIME]
      if not asked[AGAIN] then
        results.set_rtt(p.frame, since)
      end
      if not asked[CUT] then
        results.set_acked(asked[NUMBER], p.frame, since)
      end
      note_acked(asked, p.time)
    end
    note_response(asked[MESSAGE], asked[NUMBER], p, not asked[NAMED])
    asked[NAMED] = true
  end

  local function find_copy(key, frame, interface, time)
    local known_copy = copies[key]
    if known_copy and known_copy[2] ~= interface and math.abs(time - known_copy[3]) <= WINDOW then
      results.set_copy(frame, known_copy[1])
      return
    end
    if not known_copy then
      if copy_count >= MOST then
        local kept, count = {}, 0
        for old, one in pairs(copies) do
          if math.abs(time - one[3]) <= WINDOW then
            kept[old], count = one, count + 1
          end
        end
        copies, copy_count = kept, count
        if count >= MOST then
          copies, copy_count = {}, 0
        end
      end
      copy_count = copy_count + 1
    end
    copies[key] = { frame, interface, time }
  end

  local function copy_key(start, ends, more)
    return format("%s %d ", ends, more) .. start
  end

  -- Most captures have one interface. Until there is another one, packets wait in two lists, five entries a packet: those
  -- of the last `WINDOW` are in one of them.
  local function look_for_copy(p, head)
    local start = head.raw:sub(head.at + 1, head.at + BYTES)
    local more = p.entropy * 65536 + p.size % 65536
    if several then
      find_copy(copy_key(start, p.ends, more), p.frame, p.interface, p.time)
      return
    end
    first_tap = first_tap or p.interface
    if p.interface == first_tap then
      local count = #young
      if count >= 5 * MOST or count > 0 and p.time - young[5] > WINDOW then
        old, young, count = young, {}, 0
      end
      young[count + 1], young[count + 2], young[count + 3], young[count + 4], young[count + 5] =
        start, p.ends, more, p.frame, p.time
      return
    end
    several = true
    for _, list in ipairs({ old, young }) do
      for i = 1, #list, 5 do
        find_copy(copy_key(list[i], list[i + 1], list[i + 2]), list[i + 3], first_tap, list[i + 4])
      end
    end
    old, young = {}, {}
    look_for_copy(p, head)
  end

  local function take(p, head)
    local tap, class = table_of(p.interface), CLASS[head.form]
    local pair = pair_of(tap, p.ends)
    p.tap, p.retx = tap, class.retx and value_of(head, class.retx) == 1
    if NEED.copies then
      look_for_copy(p, head)
    end
    if class.kind == "datagram" then
      take_datagram(tap, pair, head, p)
    else
      take_pdc(tap, pair, head, p)
    end
  end

  -- Say once that a first pass without a tree took several interfaces as one. Only a filter makes tshark build one.
  local function warn_of_several()
    local interface = get_interface()
    if interface then
      blind[interface.value] = true
      if next(blind, next(blind)) then
        io.stderr:write("uetp: -2 without a filter takes all interfaces as one: add -Y frame\n")
        blind = nil
      end
    end
  end

  local p = {} -- the present packet

  -- Take note of a packet whose headers are `layers`, up to `at` of `raw`.
  function analysis.take(layers, raw, at, below, tvb, pinfo)
    local frame, index = pinfo.number, 1
    if pinfo.visited or frame <= newest or below.quoted then
      if blind and not gui_enabled() then
        warn_of_several()
      end
      return
    end
    if layers[1] and layers[1].form.filter == "entropy" then
      index = 2
    end
    local head = layers[index]
    if not head or not CLASS[head.form] then
      return
    end
    results.forget(newest)
    newest = frame
    if frame % 4096 == 0 then
      set_pause()
    end
    local size, interface = tvb:reported_len() - head.at, get_interface()
    p.frame, p.time, p.layers, p.ses, p.trimmed = frame, pinfo.rel_ts, layers, nil, below.trimmed
    p.size, p.at, p.truncated, p.left = size, at, below.truncated, size + head.at - at
    p.interface, p.psn, p.other = interface and interface.value or 0, nil, false
    blind = blind or not interface and {}
    p.entropy = NEED.copies and (below.udp and pinfo.src_port or get(layers[1], "entropy"))
    for i = index + 1, #layers do
      if IS_SES[layers[i].form] then
        p.ses = layers[i]
        break
      end
    end
    if below.covered then
      p.ends = below.covered:sub(1, below.ip4 and 8 or 32)
      take(p, head)
    else
      p.ends = bytes_of_address(tostring(pinfo.net_src)) .. bytes_of_address(tostring(pinfo.net_dst))
      waiting = { head, raw, tvb:offset(), below.udp }
    end
  end

  -- Streams of RoCE ------------------------------------------------------------------------------------------------

  local get_qp_opcode, get_qp = Field.new("infiniband.bth.opcode"), Field.new("infiniband.bth.destqp")
  local get_qp_psn, get_source_qp = Field.new("infiniband.bth.psn"), Field.new("infiniband.deth.srcqp")
  local RC, CNP, NEAR, M24 = 0, 4, 4096, 16777216
  local READ_FIRST, READ_MIDDLE, READ_LAST, READ_ONLY, QP_ACK, ATOMIC_ACK = 13, 14, 15, 16, 17, 18
  local ANSWERS = { [READ_FIRST] = true, [READ_ONLY] = true, [QP_ACK] = true, [ATOMIC_ACK] = true }
  local IN_ANSWERS = { [READ_MIDDLE] = true, [READ_LAST] = true }

  local function next_stream()
    stream_count = stream_count + 1
    return stream_count - 1
  end

  -- Return the direction of a packet, joined with the other one if it answers a request of exactly one.
  local function joined(direction, opposite, psn, answers)
    local fits, count = nil, 0
    for _, one in pairs(opposite) do
      if answers and not one.joined and one.newest and (one.newest - psn) % M24 < NEAR then
        fits, count = one, count + 1
      end
    end
    if count ~= 1 then
      return direction or { index = next_stream() }
    end
    if not direction then
      direction = { index = fits.index }
    elseif direction.index < fits.index then
      alias[fits.index] = direction.index
    else
      alias[direction.index] = fits.index
    end
    direction.joined, fits.joined = true, true
    return direction
  end

  local function take_stream(pinfo, opcode)
    local interface, source = get_interface(), last(get_source_qp)
    local tap = tostring(interface and interface.value or 0) .. " "
    local from, to, qp = tostring(pinfo.net_src), tostring(pinfo.net_dst), last(get_qp).value
    if source then -- of UD, which names both queue pairs
      local one, other = from .. " " .. source.value, to .. " " .. qp
      local key = tap .. (one < other and one .. " " .. other or other .. " " .. one)
      directions[key] = directions[key] or { index = next_stream() }
      return directions[key]
    end
    local there, opposite = inner(directions, tap .. from .. " " .. to), inner(directions, tap .. to .. " " .. from)
    local direction, operation, psn = there[qp], opcode % 32, last(get_qp_psn).value
    local transport, answers = floor(opcode / 32), ANSWERS[operation]
    if not direction or transport == RC and answers and not direction.joined then
      direction = joined(direction, opposite, psn, answers)
      there[qp] = direction
    end
    if transport ~= CNP and not answers and not IN_ANSWERS[operation] then
      if not direction.newest or (psn - direction.newest) % M24 < 8388607 then
        direction.newest = psn
      end
    end
    return direction
  end

  -- Show the stream of a packet of RoCE, whose fields the tree has.
  local function show_stream(pinfo, tree)
    local field = names.qp_stream
    if only and not only["uetp.qp_stream"] then
      return
    end
    local opcode = last(get_qp_opcode)
    if not opcode then
      return
    end
    local frame = pinfo.number
    if frame > newest_stream then
      newest_stream = frame
      stream_of[frame] = take_stream(pinfo, opcode.value).index
    end
    local index = stream_of[frame]
    if index and (tree.visible or tree:referenced(field)) then
      tree:add(field, alias[index] or index):set_generated()
    end
  end

  -- Take note of the whole frame `tvb` behind all protocols. Without a tree, the IP header of UET is found in its bytes. With
  -- one, that of `tree`, the stream of RoCE is shown.
  function analysis.finish(tvb, pinfo, tree)
    if tree then
      show_stream(pinfo, tree)
    end
    if not waiting then
      return
    end
    local head, raw, start, udp = table.unpack(waiting)
    waiting = nil
    local all, ends = tvb:raw(), start - (udp and 8 or 0)
    if all:sub(start + 1, start + #raw) == raw then
      for size = 20, 60, 4 do
        local at = ends - size
        if at >= 0 and byte(all, at + 1) == 64 + size / 4 and number(all, at + 2, 2) >= size then
          p.trimmed = prefs.trimmed[floor(byte(all, at + 2) / 4)] or udp and start - 8 + number(all, start - 4, 2) > at + number(all, at + 2, 2)
          break
        end
      end
      if ends >= 40 and floor(byte(all, ends - 39) / 16) == 6 and byte(all, ends - 33) == (udp and 17 or prefs.protocol) then
        p.trimmed = prefs.trimmed[floor(number(all, ends - 40, 2) / 64) % 64] or udp and number(all, start - 4, 2) > number(all, ends - 36, 2)
      end
    end
    take(p, head)
  end

  -- What is shown ---------------------------------------------------------------------------------------------------

  local function time_value(seconds)
    local whole = floor(seconds)
    local ns = floor((seconds - whole) * 1e9 + 0.5)
    if ns >= 1e9 then
      whole, ns = whole + 1, ns - 1e9
    end
    return NSTime.new(whole, ns)
  end

  local function of_bit(has, bit)
    return function(frame)
      return has(frame, bit)
    end
  end

  local function of_message(get_table)
    return function(frame)
      local index = results.message(frame)
      return index and get_table()[index]
    end
  end

  -- What is shown: the name, the value by frame, and for some a note, a warning and its text.
  local SHOWN = {
    { "pdc", results.pdc },
    { "rel_psn", results.rel_psn },
    { "acked_in", results.acked_in },
    { "ack_time", results.ack_time },
    { "acks", results.acks },
    { "nacked_in", results.refused_in },
    { "retransmission_of", results.again_of },
    { "response_in", results.response_in },
    { "response_to", results.response_to },
    { "msg", results.message },
    { "msg.first", of_message(function() return first_of end) },
    { "msg.last", of_message(function() return last_of end) },
    { "msg.missing", results.missing },
    { "msg.time", of_message(function() return time_of end) },
    { "analysis.packets_in_flight", function(frame) return (results.flight(frame)) end },
    { "analysis.bytes_in_flight", function(frame) return select(2, results.flight(frame)) end },
    { "analysis.rtt", results.rtt },
    { "analysis.copy_of", results.copy_of },
  } -- stylua: ignore
  for _, one in ipairs(FLAGS) do
    SHOWN[#SHOWN + 1] = { "analysis." .. one[2], of_bit(results.has_flag, one[1]), expert = analysis_experts[one[2]] }
  end
  local WRONG = {}
  for _, one in ipairs(CONTRADICTIONS) do
    WRONG[#WRONG + 1] = { of_bit(results.has_contradiction, one[1]), analysis_experts[one[2]] }
  end

  local is_shown = {}
  for _, one in ipairs(SHOWN) do
    is_shown[one[1]] = one[2]
  end

  -- Return the function that gives the value of this name by frame; nil where there is none.
  function analysis.value_of(name)
    return is_shown[name]
  end

  local IS_TIME = { ack_time = true, ["msg.time"] = true, ["analysis.rtt"] = true }
  local asked, shown_frame = nil, 0

  local function show_value(one, value, branch)
    local field = names[one[1]]
    if IS_TIME[one[1]] then
      branch:add(field, time_value(value)):set_generated()
    elseif type(value) == "table" then
      for _, number_of in ipairs(value) do
        branch:add(field, number_of):set_generated()
      end
    elseif value == true then
      local item = branch:add(field):set_generated()
      if one.expert then
        item:add_proto_expert_info(one.expert)
      end
    else
      branch:add(field, value):set_generated()
    end
  end

  -- The same without what nobody sees of it.
  local function add_value(one, value, top)
    local field = names[one[1]]
    if IS_TIME[one[1]] then
      top:add(field, time_value(value))
    elseif type(value) == "table" then
      for _, number_of in ipairs(value) do
        top:add(field, number_of)
      end
    elseif value == true then
      top:add(field)
    else
      top:add(field, value)
    end
  end

  -- Show what is known of a frame, or of that what is asked for. `lean`: what `only` names.
  function analysis.show(frame, top, all, lean)
    for i = 1, lean and 0 or #WRONG do
      if WRONG[i][1](frame) then
        top:add_proto_expert_info(WRONG[i][2])
      end
    end
    if all then
      local branch
      for _, one in ipairs(SHOWN) do
        local value = one[2](frame)
        if value then
          branch = branch or top:add(f_analysis):set_generated()
          show_value(one, value, branch)
        end
      end
      return
    end
    if not asked or frame <= shown_frame then
      asked = {}
      for _, one in ipairs(SHOWN) do
        local wanted = one.expert and not lean or is_asked(top, names[one[1]], lean)
        asked[#asked + 1] = wanted and one or nil
      end
    end
    shown_frame = frame
    local show = lean and add_value or show_value
    for i = 1, #asked do
      local one = asked[i]
      local value = one[2](frame)
      if value then
        show(one, value, top)
      end
    end
  end
end

make_analysis()

-- With a filter of a listener, Wireshark has a tree already when it reads a capture, so that the interface is known then.
if gui_enabled() then
  Listener.new("frame", "frame.interface_id")
end
