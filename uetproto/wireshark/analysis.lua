-- What the packets around a packet say ------------------------------------------------------------------------------
--
-- Written by hand; `tools/generate` puts it where "@analysis" stands in prelude.lua. docs/analysis.md has the rules, and
-- uetproto/audit/per_packet does the same in Python. Everything is computed when a packet comes for the first time, and
-- kept in tables by frame.

local analyse, show_analysis, reset_analysis, finish_analysis, is_analysis -- for the dissector

local function make_analysis() -- a function of its own, since Lua limits the local variables of one
  local HISTORY, RECENT, FAR, HALF, M32 = 32768, 1024, 65536, 2147483648, 4294967296
  local WINDOW, MOST, BYTES = 0.001, 65536, 64 -- of copies
  local get_interface = Field.new("frame.interface_id")

  local function diff(a, b)
    local d = (a - b) % M32
    return d < HALF and d or d - M32
  end

  -- Results, by frame; the messages by index.
  local sender_of, psn_of, flight, flags, acks, acked_in, ack_time, nacked_in, rtt, again_of, copy_of
  local response_in, response_to, message_of, missing_of, first_of, last_of, time_of, contradictions
  -- State.
  local pairs_of, taps, pdc_count, message_count, waiting, newest
  local copies, copy_count, several, first_tap, old, young
  local stream_of, alias, directions, stream_count, newest_stream -- of RoCE

  function reset_analysis()
    sender_of, psn_of, flight, flags, acks, acked_in, ack_time, nacked_in = {}, {}, {}, {}, {}, {}, {}, {}
    rtt, again_of, copy_of, response_in, response_to, message_of, missing_of = {}, {}, {}, {}, {}, {}, {}
    first_of, last_of, time_of, contradictions = {}, {}, {}, {}
    pairs_of, taps, pdc_count, message_count = {}, {}, 0, 0
    waiting, newest = nil, 0
    stream_of, alias, directions, stream_count, newest_stream = {}, {}, {}, 0, 0
    copies, copy_count, several, first_tap, old, young = {}, 0, false, nil, {}, {}
  end

  reset_analysis()

  -- Flags of a packet, as bits of `flags`.
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

  -- Contradictions between packets, as bits of `contradictions`; they have no names, only expert infos. Where `only` names
  -- are looked at, there are none.
  local CONTRADICTS = not only
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

  local function contradict(frame, bit)
    local bits = contradictions[frame] or 0
    if floor(bits / bit) % 2 == 0 then
      contradictions[frame] = bits + bit
    end
  end

  local function flag(frame, bit)
    flags[frame] = (flags[frame] or 0) + bit
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
    return { use = use, pair = pair, next = 0, sent = {}, cack = 0, checked = 0, mpr = 0, packets = 0, bytes = 0,
             messages = {} } -- stylua: ignore
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
    CLASS[made] = kind and { kind = kind, psn = psn and psn[2], ids = rows.spdcid and rows.spdcid[2] }
  end

  local IS_SES = {}
  for name, made in pairs(forms) do
    IS_SES[made] = name:match("^ses%.") and true or nil
  end

  -- Records of PSNs are lists.
  local NUMBER, TIME, FLYING, MESSAGE, CUT, AGAIN, ACKED, NAMED, REFUSED, COUNTED = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10
  local ID, CONTENT = 11, 12 -- the id that responses have, -1: none; the headers from SES on; false: not known

  local function new_record(p)
    return { p.frame, p.time, 0, false, p.trimmed, p.retx, false, false, false, false, false, false }
  end

  local function is_acked(sender, psn)
    local record = sender.sent[psn]
    return sender.base and (diff(psn, sender.cack) <= 0 or record and record[ACKED]) or false
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
    if before and not sender.sent[psn] and before.sent[psn] then
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

  local function advance(sender, following)
    local oldest, recent = add32(sender.next, -HISTORY), add32(sender.next, -RECENT)
    for step = 0, diff(following, sender.next) - 1 do
      local psn = add32(oldest, step)
      local record = sender.sent[psn]
      if record then
        sender.sent[psn] = nil
        land(sender, record)
      end
      psn = add32(recent, step)
      record = sender.sent[psn]
      if record and record[ACKED] then
        sender.sent[psn] = nil
      end
    end
    sender.next = following
  end

  -- Note a retransmission of what has a record.
  local function repeated(record, p, acked)
    flag(p.frame, RETRANSMISSION + (acked and SPURIOUS or 0))
    again_of[p.frame] = record[NUMBER]
    record[NUMBER], record[TIME], record[CUT], record[AGAIN], record[REFUSED] = p.frame, p.time, p.trimmed, true, false
  end

  local function send(sender, psn, p)
    if not sender.base then
      local ahead = sender.start and diff(psn, sender.start)
      sender.base = ahead and 0 <= ahead and ahead < HISTORY and sender.start or psn
      sender.next, sender.cack = sender.base, add32(sender.base, -1)
      sender.checked = sender.cack
    end
    local ahead, record = diff(psn, sender.next), sender.sent[psn]
    if not record then
      if p.retx then
        flag(p.frame, RETRANSMISSION + (is_acked(sender, psn) and SPURIOUS or 0))
      end
      local forgotten = ahead < -RECENT and diff(psn, sender.cack) <= 0
      if not p.retx and ahead < 0 and not forgotten then
        flag(p.frame, OUT_OF_ORDER)
      end
      if ahead < -HISTORY or forgotten then
        return nil
      end
      record = new_record(p)
      record[ACKED] = diff(psn, sender.cack) <= 0
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
    if record[FLYING] == 0 and not record[REFUSED] and not record[CUT] and not is_acked(sender, psn) then
      record[FLYING] = p.size
      sender.packets, sender.bytes = sender.packets + 1, sender.bytes + p.size
    end
    flight[p.frame] = sender.packets * M32 + sender.bytes
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
    local content = ses.raw:sub(ses.at + 1, p.at)
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

  -- Compare a request with the first packet of its message that was seen. Which of both is wrong is not known.
  local function compare_message(message, ses, psn, frame, som)
    local key, rows = nil, ses.form.by_name
    local row = rows.memory_key or rows.match_bits
    if row then
      key = ses.raw:sub(ses.at + row[2] + 1, ses.at + row[2] + 8)
    end
    local opcode, job = get(ses, "opcode"), get(ses, "job_id")
    local first = first_of[message.index]
    if first == frame then
      message.opcode, message.job, message.key, message.psn, message.parts = opcode, job, key, psn, {}
    else
      local wrong = (opcode ~= message.opcode and OPCODE_CHANGE or 0) + (job ~= message.job and JOB_CHANGE or 0)
      wrong = wrong + (key and message.key and key ~= message.key and KEY_CHANGE or 0)
      if opcode ~= OPCODE.MSG_ERROR and wrong > 0 then
        contradictions[frame] = (contradictions[frame] or 0) + wrong
        for _, one in ipairs(CONTRADICTIONS) do
          if floor(wrong / one[1]) % 2 == 1 then
            contradict(first, one[1])
          end
        end
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
      if message and som and message.begun and message.missing > 0 and message.total == total and message.part then
        local packets = math.ceil(total / message.part) -- of the message, so that this PSN is one of its own
        local ahead = message.psn and diff(p.psn, message.psn)
        if ahead and 0 < ahead and ahead < packets then
          contradict(p.frame, SOM_TWICE)
        end
      end
      if not message or som and message.begun or message.missing == 0 or message.total ~= total then
        message = { index = message_count, record = record, since = p.time, total = total, missing = total, unacked = 0,
                    read = opcode == OPCODE.READ, fetches = FETCHES[opcode] } -- stylua: ignore
        first_of[message_count] = p.frame
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
      end
    end
    message_of[p.frame], missing_of[p.frame] = message.index, message.missing
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

  local function note_response(asked, p, first)
    local message = asked[MESSAGE]
    if message then
      message_of[p.frame] = message.index
    end
    if not p.ses or get(p.ses, "opcode") == RESPONSE.NO_RESPONSE then
      return
    end
    response_to[p.frame] = asked[NUMBER]
    response_in[asked[NUMBER]] = response_in[asked[NUMBER]] or p.frame
    local length = get(p.ses, "payload_length")
    if not message or not message.fetches or not length then
      return
    end
    if message.read then
      if first then
        arrive(message, length, p.frame)
      end
      missing_of[p.frame] = message.missing
    end
    if message.missing == 0 then
      finish(message, p.time)
    end
  end

  -- What is answered ------------------------------------------------------------------------------------------------

  local function cumulative(sender, cack, add)
    local newest_psn = add32(sender.next, -1)
    if diff(cack, newest_psn) > 0 then
      if diff(cack, newest_psn) >= FAR then
        return
      end
      cack = newest_psn
    end
    local steps = diff(cack, sender.cack)
    if steps <= 0 then
      return
    end
    for step = math.max(1, steps - HISTORY), steps do
      add(sender.sent[add32(sender.cack, step)])
    end
    sender.cack = cack
  end

  local function look_for_unseen(sender, named, frame)
    local top = sender.checked
    local unseen, lost = false, false
    for _, psn in ipairs(named) do
      local behind = diff(sender.next, psn)
      if behind <= RECENT and diff(psn, sender.base) >= 0 and behind > -FAR then
        unseen = unseen or not sender.sent[psn]
        local last_psn = behind > 0 and psn or sender.next
        if diff(last_psn, top) > 0 then
          top = last_psn
        end
      end
    end
    local steps = diff(top, sender.checked)
    for step = math.max(1, steps - HISTORY), steps - 1 do
      lost = lost or not sender.sent[add32(sender.checked, step)]
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

  local function acknowledge(sender, head, cack, exact, p)
    if not sender.base then
      return
    end
    local row = head.form.by_name.sack_bitmap
    local named = { cack, exact }
    if row then
      local base_psn = add32(cack, get(head, "sack_psn_offset"))
      for half = 0, 1 do
        local bits, bit = number(head.raw, head.at + row[2] + 4 - 4 * half, 4), 32 * half
        while bits > 0 do
          if bits % 2 == 1 then
            named[#named + 1] = add32(base_psn, bit)
          end
          bits, bit = floor(bits / 2), bit + 1
        end
      end
      local mpr = get(head, "mpr")
      sender.mpr = mpr > 0 and mpr or sender.mpr
    end

    local new = {}
    local function add(record)
      if record and not record[ACKED] then
        record[ACKED] = true
        new[#new + 1] = record
      end
    end
    cumulative(sender, cack, add)
    for i = 2, #named do
      add(sender.sent[named[i]])
    end
    local answer, is_new = exact and sender.sent[exact], false
    local told = {}
    for _, record in ipairs(new) do
      land(sender, record)
      is_new = is_new or record == answer
      if not record[CUT] then
        acked_in[record[NUMBER]], ack_time[record[NUMBER]] = p.frame, p.time - record[TIME]
        told[#told + 1] = record[NUMBER]
      end
    end
    if answer then
      if is_new and not answer[AGAIN] then
        rtt[p.frame] = p.time - answer[TIME]
      end
      if answer[NAMED] and #new == 0 then
        flag(p.frame, DUPLICATE_ACK)
      end
      answer[NAMED] = true
      if not is_new and not answer[CUT] then
        told[#told + 1] = answer[NUMBER]
      end
    end
    if #told > 1 then
      table.sort(told)
      acks[p.frame] = told
    else
      acks[p.frame] = told[1]
    end
    look_for_unseen(sender, named, p.frame)
    for _, record in ipairs(new) do
      note_acked(record, p.time)
    end
  end

  local function refuse(record, frame)
    if record and not record[ACKED] then
      if not record[REFUSED] then
        nacked_in[record[NUMBER]] = frame
      end
      record[REFUSED] = true
      return record
    end
    return nil
  end

  -- Packets ---------------------------------------------------------------------------------------------------------

  -- Return the record that a response answers: it names a message or a PSN, or its ACK does.
  local function asked_by(sender, ses, exact)
    local id, psn = get(ses, "read_request_message_id"), get(ses, "original_request_psn")
    if id then
      return sender.messages[id] and sender.messages[id].record
    elseif psn then
      return sender.sent[psn]
    end
    return exact
  end

  local CTL = by_name(CtlType)

  -- A READ names its rendezvous by a key, a restart what it restarts by a token. Of each pair of hosts the last `LINKS` are
  -- remembered.
  local LINKS = 4096

  local function bytes_at(layer, row)
    return row and layer.raw:sub(layer.at + row[2] + 1, layer.at + row[2] + row[3])
  end

  local function remember(links, key, record)
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
    links.order[links.last], links[key] = key, record
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

  local function note_links(links, p, record)
    local rows = p.ses.form.by_name
    local extension = get(p.ses, "opcode") ~= OPCODE.READ and find(p.layers, "ses.ext.rendezvous")
    if extension then
      local made = extension.form.by_name
      local key = bytes_at(extension, made.read_memory_key) .. bytes_at(extension, made.read_offset)
      remember(links, "rendezvous " .. key, record)
    end
    if rows.sender_token then
      remember(links, "restart " .. get(p.ses, "sender_token"), record)
    elseif rows.initiator_restart_token and get(p.ses, "target_restart_token") == 0 then
      local token = get(p.ses, "initiator_restart_token")
      if token > 0 then
        remember(links, "deferrable " .. token, record)
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
    sender_of[p.frame], psn_of[p.frame] = sender, psn
    local record = send(sender, psn, p)
    if head.form.by_name.ctl_type and get(head, "ctl_type") == CTL.CLOSE_CMD then
      sender.use.closer, sender.use.close_psn = sender, psn
    end
    if CONTRADICTS and record and not p.retx and record[NUMBER] == p.frame and head.form.by_name.clear_psn_offset then
      local clear = add32(psn, get(head, "clear_psn_offset"))
      local top = sender.clear
      if top and diff(psn, sender.clear_at) > 0 and diff(clear, top) < 0 then
        contradict(p.frame, CLEAR_FALLS)
      elseif not top or diff(clear, top) > 0 then
        sender.clear, sender.clear_at = clear, psn
      end
    end
    if not record or not p.ses then
      return
    end
    p.psn = psn
    if CONTRADICTS and not p.trimmed and not p.truncated then
      compare_content(record, p)
    end
    if not get(p.ses, "return_code") then
      note_request(sender.messages, record, p)
      local asked = find_link(links_of(p.tap, pairs_of[sender.pair]), p.ses)
      if asked then
        response_to[p.frame] = asked[NUMBER]
        response_in[asked[NUMBER]] = response_in[asked[NUMBER]] or p.frame
      end
      if first_of[message_of[p.frame]] == p.frame then
        note_links(links_of(p.tap, sender.pair), p, record)
      end
      return
    end
    local asked = asked_by(sender.other, p.ses)
    if asked then
      local first = not record[COUNTED] and not p.trimmed
      record[COUNTED] = record[COUNTED] or first
      note_response(asked, p, first)
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
    sender_of[p.frame] = sender
    acknowledge(sender, head, cack, offset and psn, p)
    local exact = offset and sender.sent[psn]
    if exact and p.ses and exact[ID] and not p.truncated then
      compare_id(exact[ID], p.ses, psn, p.frame)
    end
    local asked = exact
    if p.ses then
      asked = asked_by(sender, p.ses, exact)
    end
    if asked then
      note_response(asked, p, not p.trimmed)
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
        sender_of[p.frame] = sender
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
      sender_of[p.frame] = sender
      psn_of[p.frame] = sender.base and control.names_psn and psn or nil
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

  local function send_rudi(records, id, p)
    local record = records[id]
    if p.trimmed then
      flag(p.frame, TRIMMED)
    end
    if not record then
      if p.retx then
        flag(p.frame, RETRANSMISSION)
      end
      record = new_record(p)
      records.count = (records.count or 0) + 1
      inner(records, "order")[records.count] = id
      local old = records.count - HISTORY
      if old > 0 then
        records[records.order[old]], records.order[old] = nil, nil
      end
      records[id] = record
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
      local record = send_rudi(inner(tap.rudi, pair), get(head, "pkt_id"), p)
      if CONTRADICTS and p.ses and not p.trimmed and not p.truncated then
        compare_content(record, p)
      end
      if is_request then
        note_request(inner(tap.rudi_messages, pair), record, p)
      end
      return
    elseif kind == "uud_req" then
      if is_request then
        note_request(inner(tap.uud_messages, pair), new_record(p), p)
      end
      return
    end
    local records = tap.rudi[pairs_of[pair]]
    local asked = records and records[get(head, "pkt_id") or get(head, "nack_pkt_id")]
    if not asked then
      return
    elseif kind ~= "rudi_resp" then
      refuse(asked, p.frame)
      return
    end
    if p.ses and asked[ID] and not p.truncated then
      compare_id(asked[ID], p.ses, nil, p.frame)
    end
    acks[p.frame] = not asked[CUT] and asked[NUMBER] or nil
    if asked[ACKED] then
      flag(p.frame, DUPLICATE_ACK)
    else
      asked[ACKED] = true
      local since = p.time - asked[TIME]
      rtt[p.frame] = not asked[AGAIN] and since or nil
      if not asked[CUT] then
        acked_in[asked[NUMBER]], ack_time[asked[NUMBER]] = p.frame, since
      end
      note_acked(asked, p.time)
    end
    note_response(asked, p, not asked[NAMED])
    asked[NAMED] = true
  end

  local function find_copy(key, frame, interface, time)
    local known_copy = copies[key]
    if known_copy and known_copy[2] ~= interface and math.abs(time - known_copy[3]) <= WINDOW then
      copy_of[frame] = known_copy[1]
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
  local function look_for_copy(p)
    local more = p.entropy * 65536 + p.size % 65536
    if several then
      find_copy(copy_key(p.start, p.ends, more), p.frame, p.interface, p.time)
      return
    end
    first_tap = first_tap or p.interface
    if p.interface == first_tap then
      local count = #young
      if count >= 5 * MOST or count > 0 and p.time - young[5] > WINDOW then
        old, young, count = young, {}, 0
      end
      young[count + 1], young[count + 2], young[count + 3], young[count + 4], young[count + 5] =
        p.start, p.ends, more, p.frame, p.time
      return
    end
    several = true
    for _, list in ipairs({ old, young }) do
      for i = 1, #list, 5 do
        find_copy(copy_key(list[i], list[i + 1], list[i + 2]), list[i + 3], first_tap, list[i + 4])
      end
    end
    old, young = {}, {}
    look_for_copy(p)
  end

  local function take(p, head)
    local tap = table_of(p.interface)
    local pair = pair_of(tap, p.ends)
    p.tap = tap
    look_for_copy(p)
    p.retx = get(head, "retx") == 1
    if CLASS[head.form].kind == "datagram" then
      take_datagram(tap, pair, head, p)
    else
      take_pdc(tap, pair, head, p)
    end
  end

  -- Take note of a packet whose headers are `layers`, up to `at` of `raw`.
  function analyse(layers, raw, at, below, tvb, pinfo)
    local frame, index = pinfo.number, 1
    if pinfo.visited or frame <= newest or below.quoted then
      return
    end
    if layers[1] and layers[1].form.filter == "entropy" then
      index = 2
    end
    local head = layers[index]
    if not head or not CLASS[head.form] then
      return
    end
    newest = frame
    local ses
    for i = index + 1, #layers do
      if IS_SES[layers[i].form] then
        ses = layers[i]
        break
      end
    end
    local size, interface = tvb:reported_len() - head.at, get_interface()
    local p = {
      frame = frame, time = pinfo.rel_ts, layers = layers, ses = ses, trimmed = below.trimmed, size = size,
      at = at, truncated = below.truncated, left = size + head.at - at, start = raw:sub(head.at + 1, head.at + BYTES),
      entropy = below.udp and pinfo.src_port or get(layers[1], "entropy"),
      interface = interface and interface.value or 0,
    } -- stylua: ignore
    if below.covered then
      p.ends = below.covered:sub(1, below.ip4 and 8 or 32)
      take(p, head)
    else
      p.ends = bytes_of_address(tostring(pinfo.net_src)) .. bytes_of_address(tostring(pinfo.net_dst))
      waiting = { p, head, raw, tvb:offset(), below.udp }
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
  function finish_analysis(tvb, pinfo, tree)
    if tree then
      show_stream(pinfo, tree)
    end
    if not waiting then
      return
    end
    local p, head, raw, start, udp = table.unpack(waiting)
    waiting = nil
    local all, ends = tvb:raw(), start - (udp and 8 or 0)
    if all:sub(start + 1, start + #raw) == raw then
      for size = 20, 60, 4 do
        local at = ends - size
        if at >= 0 and byte(all, at + 1) == 64 + size / 4 and number(all, at + 2, 2) >= size then
          p.trimmed = trimmed_dscp[floor(byte(all, at + 2) / 4)] or udp and start - 8 + number(all, start - 4, 2) > at + number(all, at + 2, 2)
          break
        end
      end
      if ends >= 40 and floor(byte(all, ends - 39) / 16) == 6 and byte(all, ends - 33) == (udp and 17 or uetp.prefs.protocol) then
        p.trimmed = trimmed_dscp[floor(number(all, ends - 40, 2) / 64) % 64] or udp and number(all, start - 4, 2) > number(all, ends - 36, 2)
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

  local function of_flag(bit)
    return function(frame)
      local bits = flags[frame]
      return bits and floor(bits / bit) % 2 == 1
    end
  end

  local function of_table(get_table)
    return function(frame)
      return get_table()[frame]
    end
  end

  local function of_message(get_table)
    return function(frame)
      return message_of[frame] and get_table()[message_of[frame]]
    end
  end

  -- What is shown: the name, the value by frame, and for some a note, a warning and its text.
  local SHOWN = {
    { "pdc", function(frame) return sender_of[frame] and sender_of[frame].use.index end },
    { "rel_psn", function(frame) return psn_of[frame] and diff(psn_of[frame], sender_of[frame].base) end },
    { "acked_in", of_table(function() return acked_in end) },
    { "ack_time", of_table(function() return ack_time end) },
    { "acks", of_table(function() return acks end) },
    { "nacked_in", of_table(function() return nacked_in end) },
    { "retransmission_of", of_table(function() return again_of end) },
    { "response_in", of_table(function() return response_in end) },
    { "response_to", of_table(function() return response_to end) },
    { "msg", of_table(function() return message_of end) },
    { "msg.first", of_message(function() return first_of end) },
    { "msg.last", of_message(function() return last_of end) },
    { "msg.missing", of_table(function() return missing_of end) },
    { "msg.time", of_message(function() return time_of end) },
    { "analysis.packets_in_flight", function(frame) return flight[frame] and floor(flight[frame] / M32) end },
    { "analysis.bytes_in_flight", function(frame) return flight[frame] and flight[frame] % M32 end },
    { "analysis.rtt", of_table(function() return rtt end) },
    { "analysis.copy_of", of_table(function() return copy_of end) },
  } -- stylua: ignore
  for _, one in ipairs(FLAGS) do
    SHOWN[#SHOWN + 1] = { "analysis." .. one[2], of_flag(one[1]), expert = analysis_experts[one[2]] }
  end
  local function of_contradiction(bit)
    return function(frame)
      local bits = contradictions[frame]
      return bits and floor(bits / bit) % 2 == 1
    end
  end

  local WRONG = {}
  for _, one in ipairs(CONTRADICTIONS) do
    WRONG[#WRONG + 1] = { of_contradiction(one[1]), analysis_experts[one[2]] }
  end

  local is_shown = {}
  for _, one in ipairs(SHOWN) do
    is_shown[one[1]] = one[2]
  end

  -- Return the function that gives the value of this name by frame; nil where there is none.
  function is_analysis(name)
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

  -- Show what is known of a frame, or of that what is asked for. `lean`: what `only` names.
  function show_analysis(pinfo, top, all, lean)
    local frame = pinfo.number
    if contradictions[frame] and not lean then
      for _, one in ipairs(WRONG) do
        if one[1](frame) then
          top:add_proto_expert_info(one[2])
        end
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
    for i = 1, #asked do
      local one = asked[i]
      local value = one[2](frame)
      if value then
        show_value(one, value, top)
      end
    end
  end
end

make_analysis()

-- With a filter of a listener, Wireshark has a tree already when it reads a capture, so that the interface is known then.
if gui_enabled() then
  Listener.new("frame", "frame.interface_id")
end
