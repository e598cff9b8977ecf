// SPDX-License-Identifier: GPL-2.0-only
/* Returns the fields of all packets as the program of the page takes them from the bytes. */
() => {
  const layer = (data, form, offset) => { let bit = 8 * offset; const values = {};
    for (const [size, name, signed] of D.forms[form] ?? []) { if (bit + size > 8 * data.length) break;
      let value = bits(data, bit, size); if (signed && value >> BigInt(size - 1)) value -= 1n << BigInt(size);
      values[name] = String(value); bit += size; }
    return values; };
  return D.number.map((number, i) => [number, D.shapes[D.shape[i]].map(([form, offset]) => [form, layer(bytesOf(i), form, offset)])]);
}
