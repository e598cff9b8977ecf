-- SPDX-License-Identifier: GPL-2.0-only
-- What is kept of each frame ----------------------------------------------------------------------------------------
--
-- Written by hand; `tools/generate` puts it where "@results" stands in prelude.lua. What analysis.lua finds out is asked for
-- again when a frame is dissected again: in a second pass, when somebody looks at it, and by statistics. It has to be
-- small. Each column is a list of numbers by frame. A number of Lua has 53 bits, so that two results share one; a pair that
-- needs more is a list of two. Frames of a direction and their answers have different results in the same column.
--
-- In one pass of tshark no frame comes again: then nothing is kept but what is known of the latest one.

local results = (function()
  local M21, M32, HALF = 2097152, 4294967296, 2147483648
  local places, answers, counts, parts, responses -- of most frames
  local refused_in, again_of, copy_of, flags, wrong -- of few frames

  local function pack(high, low)
    if 0 <= high and high < M21 and 0 <= low and low < M32 then
      return high * M32 + low
    end
    return { high, low }
  end

  local function unpack_pair(pair)
    if type(pair) == "table" then
      return pair[1], pair[2]
    end
    return floor(pair / M32), pair % M32
  end

  local function nanoseconds(seconds)
    return floor(seconds * 1e9 + 0.5)
  end

  local made = {}

  function made.reset()
    places, answers, counts, parts, responses = {}, {}, {}, {}, {}
    refused_in, again_of, copy_of, flags, wrong = {}, {}, {}, {}, {}
  end

  -- Forget what is known of a frame that does not come again.
  function made.forget(frame)
    if not comes_again then
      places[frame], answers[frame], counts[frame], parts[frame], responses[frame] = nil, nil, nil, nil, nil
      again_of[frame], copy_of[frame], flags[frame], wrong[frame] = nil, nil, nil, nil
    end
  end

  -- What is found out -----------------------------------------------------------------------------------------------

  function made.set_place(frame, pdc, rel_psn)
    places[frame] = rel_psn and pack(pdc, rel_psn + HALF) or -1 - pdc
  end

  -- `number` is an earlier frame in each of these.

  function made.set_acked(number, frame, time)
    if comes_again then
      answers[number] = pack(frame - number, nanoseconds(time))
    end
  end

  function made.set_refused(number, frame)
    if comes_again then
      refused_in[number] = frame
    end
  end

  -- Return how far behind a frame its request is, and how far ahead its response; 0 where there is none.
  local function response_of(frame)
    if responses[frame] then
      return unpack_pair(responses[frame])
    end
    return 0, 0
  end

  function made.set_response(number, frame)
    local _, ahead = response_of(frame)
    responses[frame] = pack(frame - number, ahead)
    local behind, first = response_of(number)
    if comes_again and first == 0 then
      responses[number] = pack(behind, frame - number)
    end
  end

  function made.set_again(frame, number)
    again_of[frame] = number
  end

  function made.set_copy(frame, number)
    copy_of[frame] = number
  end

  -- Of an ACK: the round-trip time, and the frames that it acknowledges.
  function made.set_rtt(frame, time)
    local ns = nanoseconds(time)
    answers[frame] = ns >= 0 and -1 - ns or { nil, ns }
  end

  function made.set_acks(frame, numbers)
    counts[frame] = #numbers > 1 and numbers or numbers[1] and -numbers[1] or nil
  end

  function made.set_flight(frame, packets, bytes)
    counts[frame] = packets * M32 + bytes
  end

  -- The message of a frame, and the bytes that were missing after it, or nil.
  function made.set_part(frame, message, missing)
    parts[frame] = missing and pack(message, missing) or -1 - message
  end

  local function add_bit(of, frame, bit)
    local bits = of[frame] or 0
    if floor(bits / bit) % 2 == 0 then
      of[frame] = bits + bit
    end
  end

  function made.flag(frame, bit)
    add_bit(flags, frame, bit)
  end

  function made.contradict(frame, bit)
    add_bit(wrong, frame, bit)
  end

  -- What is asked for -----------------------------------------------------------------------------------------------

  function made.pdc(frame)
    local place = places[frame]
    if type(place) == "number" and place < 0 then
      return -1 - place
    end
    return place and (unpack_pair(place))
  end

  function made.rel_psn(frame)
    local place = places[frame]
    if not place or type(place) == "number" and place < 0 then
      return nil
    end
    local _, rel_psn = unpack_pair(place)
    return rel_psn - HALF
  end

  -- Return the frame of the ACK, as a difference, and the time of it or of the round trip.
  local function answer_of(frame)
    local answer = answers[frame]
    if type(answer) == "number" and answer < 0 then
      return nil, -1 - answer
    elseif answer then
      return unpack_pair(answer)
    end
    return nil, nil
  end

  function made.acked_in(frame)
    local ahead = answer_of(frame)
    return ahead and frame + ahead
  end

  function made.ack_time(frame)
    local ahead, ns = answer_of(frame)
    return ahead and ns / 1e9
  end

  function made.rtt(frame)
    local ahead, ns = answer_of(frame)
    return not ahead and ns and ns / 1e9 or nil
  end

  -- Return a frame, or a list of frames.
  function made.acks(frame)
    local count = counts[frame]
    if type(count) == "number" then
      return count < 0 and -count or nil
    end
    return count
  end

  -- Return packets and bytes in flight.
  function made.flight(frame)
    local count = counts[frame]
    if type(count) == "number" and count >= 0 then
      return unpack_pair(count)
    end
    return nil, nil
  end

  function made.refused_in(frame)
    return refused_in[frame]
  end

  function made.again_of(frame)
    return again_of[frame]
  end

  function made.copy_of(frame)
    return copy_of[frame]
  end

  function made.response_to(frame)
    local behind = response_of(frame)
    return behind > 0 and frame - behind or nil
  end

  function made.response_in(frame)
    local _, ahead = response_of(frame)
    return ahead > 0 and frame + ahead or nil
  end

  function made.message(frame)
    local part = parts[frame]
    if type(part) == "number" and part < 0 then
      return -1 - part
    end
    return part and (unpack_pair(part))
  end

  function made.missing(frame)
    local part = parts[frame]
    if not part or type(part) == "number" and part < 0 then
      return nil
    end
    local _, missing = unpack_pair(part)
    return missing
  end

  function made.has_flag(frame, bit)
    return flags[frame] and floor(flags[frame] / bit) % 2 == 1
  end

  function made.has_contradiction(frame, bit)
    return wrong[frame] and floor(wrong[frame] / bit) % 2 == 1
  end

  return made
end)()

